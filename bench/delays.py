"""``python -m bench.delays``: how late guards show a stream, by a clock that nobody waits for.

An answer of 400 tokens comes at 50 a second into the window of each set of guards; what is told is
when its first characters are shown, and how long after its coming each token is, on average and at
most. Figures of another revision are made by this very file: ``PYTHONPATH=THERE python
bench/delays.py --as before --to FILE``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from proxy.guards.findings import RuleTally
from proxy.guards.guard_kind import NO_CONTEXT
from proxy.guards.kinds.pii import ENTITIES
from proxy.guards.kinds.table import KINDS
from proxy.guards.stream.placeholders import Masks, placeholder_key
from proxy.guards.stream.window import Window
from proxy.types.guard import GuardRule, PromptContext

KEPT = Path(__file__).parent / "results" / "delays.json"
TOKENS, A_SECOND = 400, 50

PROSE = (
    "Members may borrow fifteen books at once and keep them for three weeks. I am told that a lost "
    "card is replaced for a small fee, and that the key to a locker is handed out at the desk. Is "
    "it open on Sundays? No: it opens at nine, closes at eight, and is shut on holidays; please "
    "call before you come. Whoever found a token of thanks in one of our old maps may keep it. "
)
KEY = "".join(["gh", "p_", "a1B2c3D4e5f6G7h8", "i9J0k1L2m3N4o5P6", "q7R8"])
FOUND = (
    f"{PROSE}Write to ada@mill.example or call +49 30 901820 before noon. The key is {KEY}, and it "
    "is explained at https://mill.example/of/keys; fees go to the card 4111 1111 1111 1111. "
)
CODE = (
    "This reads a file of loans and counts those that are late:\n\n```python\nimport csv\n\n"
    "def late(path, today):\n    with open(path) as file:\n        rows = csv.DictReader(file)\n"
    "        return sum(row['due'] < today for row in rows)\n```\n\nIt is called once a day, and "
    "what it returns is shown on the board beside the desk. Without loans it is zero.\n\n"
)
CHINESE = (
    "图书馆每天上午九点开门，晚上八点关门，节假日休息。读者一次最多可以借十五本书，借期为三个星期。"  # noqa: RUF001
    "如果借书证丢失了，请尽快到服务台补办，需要交一点手续费。储物柜的钥匙在服务台领取，离开之前请归还。"  # noqa: RUF001
    "老地图放在二楼的阅览室里，只能在馆内阅读，不能带走。来之前请先打电话问一下，以免白跑一趟。"  # noqa: RUF001
)
PROMPT = (
    "You are the assistant of a town library. Answer in one or two sentences, never tell a reader "
    "what another one has borrowed, and send those who ask for legal advice to the desk."
)
POEM = (
    "Over the hill the mill wheel turns, and in the evening when the low fire burns we count the "
    "sacks that came by cart, and those that went, and who shall start again tomorrow."
)
TEXTS = {"prose": PROSE, "with findings": FOUND, "code": CODE, "Chinese": CHINESE}

Keys = Mapping[str, Any]
GUARDS: dict[str, tuple[str, Keys]] = {
    "pii": ("pii", {}),
    "pii, every entity": ("pii", {"entities": [*ENTITIES]}),
    "secrets": ("secrets", {}),
    "urls": ("urls", {"deny": ["mill.example"]}),
    "code": ("code", {}),
    "keywords": ("keywords", {"words": ["hippo", "blue whale", "project meridian"]}),
    "keywords, a pattern": ("keywords", {"patterns": ["order {1,3}no[.:]? ?[0-9]{4,40}"]}),
    "injection": ("injection", {}),
    "toxicity": ("toxicity", {}),
    "nsfw": ("nsfw", {}),
    "system_prompt": ("system_prompt", {}),
    "copyright, passages": ("copyright", {"texts": [POEM], "share": None}),
    "copyright": ("copyright", {"texts": [POEM]}),
    "length": ("length", {"characters": 100_000}),
}
RULES = (*tuple(GUARDS)[:8], "toxicity", "nsfw", "system_prompt", "copyright, passages")
SETS: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in GUARDS},
    "pii and secrets": ("pii", "secrets"),
    "secrets and urls": ("secrets", "urls"),
    "toxicity and nsfw": ("toxicity", "nsfw"),
    "pii and keywords": ("pii", "keywords"),
    "injection and system_prompt": ("injection", "system_prompt"),
    "all that are rules": RULES,
    "the same, to block": RULES,
    "none, and values put back": (),
}
BLOCKS, BACK = "the same, to block", "none, and values put back"
VALUES = ("ada@mill.example", "+49 30 901820")

Delay = tuple[float, float, float]
"""Seconds until the first characters are shown, and how late a token is on average and at most."""


def tokens(text: str) -> list[str]:
    """Cut a text as models do: some six letters, or one or two where none stands apart."""
    found = re.findall(r"[\u3400-\u9fff]{1,2}|\s?[A-Za-z0-9_]{1,6}|\s?[^\w\s]|\s+|\w", text)
    return list(itertools.islice(itertools.cycle(found), TOKENS))


def delay(name: str, text: str) -> Delay:
    """Return how late a set of guards shows a text; one that is blocked up to where it is."""
    filters = _filters(name)
    if name == BACK:
        masks = Masks.of(placeholder_key("bench"), "key")
        for value in VALUES:
            text = text.replace(value, masks.placeholder("value", value))
        filters = [masks.unmasker()]
    sent = tokens(text)
    ends = [*itertools.accumulate(map(len, sent))]
    first, late = len(sent), list[int]()
    for at, shown in enumerate(_shown_with(filters, sent)):
        first = min(first, at) if shown else first
        while len(late) < min(at + 1, len(ends)) and ends[len(late)] <= shown:
            late.append(at - len(late))
    mean, most = (sum(late) / len(late), max(late)) if late else (first, first)
    return first / A_SECOND, mean / A_SECOND, most / A_SECOND


def _shown_with(filters: Sequence[Any], sent: Sequence[str]) -> Iterator[int]:
    """Yield how many characters are shown once each token has come, and at last the end."""
    shown = 0
    for token in (*sent, None):
        try:
            shown += _shown(filters, token)
        except Exception as blocked:
            if type(blocked).__name__ != "GuardBlocked":  # of which revision, it is not known
                raise
            return
        yield shown


def _shown(filters: Sequence[Any], text: str | None) -> int:
    """Return how many characters leave the last filter; None ends the text."""
    ends, size = text is None, 0
    for each in filters:
        pieces = [*(each.feed(text) if text else ()), *(each.close() if ends else ())]
        size, text = sum(piece.size for piece in pieces), "".join(piece.text for piece in pieces)
    return size


def _filters(name: str) -> list[Any]:
    action = "block" if name == BLOCKS else "mask"
    rules = [_rule(*GUARDS[each], action) for each in SETS[name]]
    return [Window([RuleTally(rule, time.perf_counter) for rule in rules])]


def _rule(word: str, keys: Keys, action: Any) -> GuardRule:
    kind = KINDS[word]
    detector: Any = kind.make(kind.Keys(**keys), NO_CONTEXT)
    if hasattr(detector, "about"):
        detector = detector.about(PromptContext(PROMPT))
    return GuardRule(name=word, detector=detector, action=action, cased=kind.cased, kind=word)


def delays() -> dict[str, dict[str, Delay]]:
    return {name: {kind: delay(name, text) for kind, text in TEXTS.items()} for name in SETS}


def table(kept: Mapping[str, Any], revision: str = "now") -> Iterator[str]:
    """Return the table of what was kept of a revision."""
    yield f"| guards | {' | '.join(TEXTS)} |"
    yield f"|---|{'---|' * len(TEXTS)}"
    for name, texts in kept[revision].items():
        cells = ("/".join(f"{seconds:.2f}" for seconds in texts[kind]) for kind in TEXTS)
        yield f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--as", dest="name", default="now", help="under which name it is kept")
    asked.add_argument("--to", type=Path, default=KEPT, help="the file that keeps it")
    chosen = asked.parse_args()
    kept = json.loads(chosen.to.read_text()) if chosen.to.exists() else {}
    kept[chosen.name] = {
        name: {kind: [round(each, 3) for each in told] for kind, told in texts.items()}
        for name, texts in delays().items()
    }
    text = json.dumps(kept, indent=1)
    text = re.sub(r"\[\s+([^][]*?)\s+\]", lambda found: f"[{' '.join(found[1].split())}]", text)
    chosen.to.write_text(text + "\n")
    print("\n".join(table(kept, chosen.name)))


if __name__ == "__main__":
    main()
