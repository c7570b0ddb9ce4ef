from __future__ import annotations

from proxy.guards.kinds.code import LANGUAGE_BY_NAME, LINE_PATTERNS, LOOKBACK, Code
from tests.for_each import for_each

CODE = Code()


def find_spans(text: str) -> list[tuple[str, str]]:
    return [(finding.kind, text[finding.start : finding.end]) for finding in CODE.find(text)]


@for_each(("word", "kind"), [*LANGUAGE_BY_NAME.items(), ("brainfuck", "code"), ("", "code")])
def test_fenced_block_is_found_with_its_language(word: str, kind: str) -> None:
    block = f"```{word}\norder 17\n```\n"

    assert find_spans(f"Grüße:\n\n{block}\nThanks.") == [(kind, block)]


@for_each(
    ("text", "kinds"),
    [
        ("~~~ python\nx\n~~~", ["python"]),
        ("> ```py\n> x\n> ```", ["python"]),
        ("````python\nx\n````", ["python"]),
        ("- ```python title=a\n  x", ["python"]),
        ("```python\na\n```\n\nthen\n\n```\nb\n```\n\n```sql\nc\n```", ["python", "code", "sql"]),
    ],
)
def test_all_forms_of_fences_are_found(text: str, kinds: list[str]) -> None:
    assert [kind for kind, _ in find_spans(text)] == kinds


def test_unclosed_block_ends_at_the_lookback() -> None:
    text = "```python\n" + "order\n" * 2000

    ((kind, block),) = find_spans(text)

    assert (kind, len(block)) == ("python", LOOKBACK)


@for_each(
    ("kind", "line"),
    [
        ("c", "#include <stdio.h>"), ("go", "func (o *Order) Total() int {"),
        ("html", "<script src='x'>"), ("java", "public static void main(String[] args) {"),
        ("javascript", "const order = await search();"), ("javascript", "orders.map((order) => {"),
        ("php", "<?php echo 1;"), ("python", "    async def search(order: int) -> None:"),
        ("python", "from orders import search"), ("ruby", "require 'orders'"),
        ("rust", "pub fn search(order: u32) -> bool {"), ("shell", "$ curl https://orders.example"),
        ("shell", "#!/bin/sh"), ("sql", "SELECT id FROM orders"), ("sql", "DELETE FROM orders"),
    ],
)  # fmt: skip
def test_line_of_code_is_found_without_a_fence(kind: str, line: str) -> None:
    text = f"Use this, please:\n{line}\nand tell me."

    assert [(finding.kind, finding.score) for finding in CODE.find(text)] == [(kind, 0.6)]


@for_each(
    "text",
    [
        "Please select one order from the list and update it.",
        "I import goods from Peru. From orders we import nothing.",
        "The class of 2004, the public interface of the team, and let us be frank.",
        "Use `pip install headrace` or ``code``.",
        "It cost $ 5 and the function of this is unclear (x).",
        "A row of ``` marks",
        "```text\ndear team\n```\n\nthanks",
        "```markdown\ndear team\n```\n\nthanks",
        "# include me in the list",
        "",
    ],
)
def test_prose_is_not_code(text: str) -> None:
    assert find_spans(text) == []


def test_kinds_are_a_closed_set() -> None:
    assert CODE.kinds == {*LINE_PATTERNS, "code"}
    assert LINE_PATTERNS.keys() == {*LANGUAGE_BY_NAME.values()}
