"""The documentation says what the code does: generated parts, examples, names and links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from proxy import __version__
from proxy.demo.examples import KEY, examples
from proxy.guards.kinds import KINDS
from proxy.policy import schema
from proxy.policy.schema.guards import GuardConfig, config_of
from proxy.policytest.cases import Suite, read_cases
from tests.for_each import for_each
from tools import docs

TOP = Path(__file__).parents[1]
FOLDERS = ("dashboards", "deploy", "docs", "proxy", "tests", "tools")
PAGES = sorted(
    page
    for page in [
        *TOP.glob("*.md"),
        *(page for name in FOLDERS for page in (TOP / name).rglob("*.md")),
    ]
    if "node_modules" not in page.parts
)
POLICIES = (TOP / "docs" / "policies.md").read_text()
GUARDS = (TOP / "docs" / "guards.md").read_text()
REFERENCE = (TOP / "docs" / "policy-reference.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", POLICIES, re.DOTALL)
EXAMPLES = [block for block in BLOCKS if not re.search(r"^tests:", block, re.MULTILINE)]
TESTS = [block for block in BLOCKS if re.search(r"^tests:", block, re.MULTILINE)]


@for_each("page", docs.BLOCKS)
def test_generated_parts_are_up_to_date(page: str) -> None:
    text = (docs.DOCS / page).read_text()

    assert docs.written(text, docs.BLOCKS[page]) == text, "run make docs"


def test_a_page_without_its_markers_is_told() -> None:
    with pytest.raises(ValueError, match="markers of codes"):
        docs.written("nothing", {"codes": docs.codes})


@pytest.mark.parametrize("example", TESTS)
def test_every_example_of_a_test_is_one(example: str, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "example.yaml").write_text(example)

    cases, _ = read_cases(tmp_path)

    assert cases


def kinds(kind: Any) -> Iterator[Any]:
    """All models that a type is made of; of a guard, those of its kinds."""
    if kind is GuardConfig:
        yield from map(config_of, KINDS)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
        for field in kind.model_fields.values():
            if field.annotation is not kind and "When" not in str(field.annotation):
                yield from kinds(field.annotation)
    for part in get_args(kind):
        yield from kinds(part)


@for_each("section", schema.PoliciesConfig.model_fields)
def test_every_section_and_its_keys_are_documented(section: str) -> None:
    assert re.search(rf"^## {section}:|^{section}:", POLICIES, re.MULTILINE), section
    known_items: list[Any] = [
        *kinds(schema.PoliciesConfig.model_fields[section].annotation),
        schema.When,
    ]
    for kind in known_items:
        for name, item in kind.model_fields.items():
            word = rf"\b{item.alias or name}\b"
            page = GUARDS if issubclass(kind, GuardConfig) else REFERENCE
            assert re.search(word, page), f"{kind.__name__}.{name}"


def test_every_key_of_a_test_is_documented() -> None:
    for kind in kinds(Suite):
        for name in kind.model_fields:
            assert re.search(rf"\b{name}\b", POLICIES), f"{kind.__name__}.{name}"


@for_each("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        if not link.startswith("http"):
            target = page.parent / link if link else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), f"{link}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}


def test_index_links_every_page() -> None:
    index = (TOP / "docs" / "index.md").read_text()
    listed = {*(TOP / "docs").glob("*.md"), *TOP.glob("*.md")} - {
        TOP / "docs/index.md",
        TOP / "README.md",
    }
    linked = {(TOP / "docs" / link).resolve() for link in re.findall(r"\]\(([^)#]+)\)", index)}

    assert listed - linked == set()
    assert {TOP / "docs/runbooks/README.md", TOP / "docs/decisions"} <= linked


def test_the_way_of_a_call_names_files_and_functions_that_exist() -> None:
    text = (TOP / "docs" / "request.md").read_text()
    code = "".join(file.read_text() for file in (TOP / "proxy").rglob("*.py"))

    for name in re.findall(r"`([a-z_]+/[a-z_/.]*)`", text):
        assert (TOP / "proxy" / name).exists(), name
    for name in ("read_head", "parse_head", "identify", "read_call", "decide"):
        assert f"`{name}`" in text
        assert f"def {name}(" in code


def test_the_glossary_names_classes_that_exist() -> None:
    text = (TOP / "docs" / "glossary.md").read_text()
    code = "".join(file.read_text() for file in (TOP / "proxy").rglob("*.py"))

    for name in re.findall(r"`([A-Z]\w+)`", text):
        assert re.search(rf"^class {name}\b", code, re.MULTILINE), name


def test_the_demos_key_is_the_one_of_the_shipped_policies() -> None:
    assert KEY in examples("here", "there")
    assert KEY in (TOP / "policies" / "keys.yaml").read_text()


def test_changelog_starts_with_unreleased_and_versions() -> None:
    changelog = (TOP / "CHANGELOG.md").read_text()

    assert re.findall(r"^## (.*)", changelog, re.MULTILINE)[:2] == ["Unreleased", __version__]
    released = changelog.partition(f"## {__version__}\n")[2]
    assert len(released.split()) <= 1200, "a merge may have restored old entries"


def test_changelog_entries_are_whole_and_unique() -> None:
    """Merging two branches keeps the lines of both, which can tear or repeat an entry."""
    changelog = (TOP / "CHANGELOG.md").read_text()
    entries = re.findall(r"^- (.*(?:\n  .*)*)", changelog, re.MULTILINE)

    assert [entry for entry in entries if not entry.endswith(".")] == []
    assert len(set(entries)) == len(entries)
