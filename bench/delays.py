"""``python -m bench.delays``: delay of a stream by output guards, on a simulated clock.

A response of 400 tokens arrives at 50 tokens per second in the window of each set of guards. The
figures are the time of the first released characters, and the average and maximum delay of a token.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench import results
from bench.results import Results
from proxy.errors import GuardBlocked
from proxy.guards.findings import RuleTally
from proxy.guards.guard_kind import NO_CONTEXT
from proxy.guards.kinds import KINDS
from proxy.guards.kinds.pii import ENTITIES
from proxy.guards.stream.placeholders import Masks, derive_placeholder_key
from proxy.guards.stream.window import Window
from proxy.types.guard import GuardRule, PromptContext

TOKENS, TOKENS_PER_S = 400, 50

PROSE = (
    "Members may borrow fifteen books at once and keep them for three weeks. I am told that a lost "
    "card is replaced for a small fee, and that the key to a locker is handed out at the desk. Is "
    "it open on Sundays? No: it opens at nine, closes at eight, and is shut on holidays; please "
    "call before you come. Whoever found a token of thanks in one of our old maps may keep it. "
)
KEY = "".join(["gh", "p_", "a1B2c3D4e5f6G7h8", "i9J0k1L2m3N4o5P6", "q7R8"])
FINDINGS = (
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
TEXTS = {"prose": PROSE, "with findings": FINDINGS, "code": CODE, "Chinese": CHINESE}

Options = Mapping[str, Any]
GUARDS: dict[str, tuple[str, Options]] = {
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
BLOCKING, UNMASKING = "the same, to block", "none, and values put back"
MASKED_VALUES = ("ada@mill.example", "+49 30 901820")

Delay = tuple[float, float, float]
"""Seconds until the first release, and average and maximum delay of a token."""


def split_tokens(text: str) -> list[str]:
    """Split and repeat a text to ``TOKENS`` tokens of at most six letters or two ideographs."""
    pattern = r"[\u3400-\u9fff]{1,2}|\s?[A-Za-z0-9_]{1,6}|\s?[^\w\s]|\s+|\w"
    return list(itertools.islice(itertools.cycle(re.findall(pattern, text)), TOKENS))


def measure_delay(name: str, text: str) -> Delay:
    """Measure one set of guards. Text after a block does not count."""
    if name == UNMASKING:
        masks = Masks.for_virtual_key(derive_placeholder_key("bench"), "key")
        for value in MASKED_VALUES:
            text = text.replace(value, masks.make_placeholder("value", value))
        text_filter: Any = masks.build_unmasker()
    else:
        action = "block" if name == BLOCKING else "mask"
        rules = [_rule(*GUARDS[guard], action) for guard in SETS[name]]
        text_filter = Window([RuleTally(rule, time.perf_counter) for rule in rules])
    tokens = split_tokens(text)
    ends = [*itertools.accumulate(map(len, tokens))]
    first_tick, delays = len(tokens), list[int]()
    for tick, released in enumerate(_released(text_filter, tokens)):
        first_tick = min(first_tick, tick) if released else first_tick
        while len(delays) < min(tick + 1, len(ends)) and ends[len(delays)] <= released:
            delays.append(tick - len(delays))
    mean, maximum = (sum(delays) / len(delays), max(delays)) if delays else (first_tick, first_tick)
    return first_tick / TOKENS_PER_S, mean / TOKENS_PER_S, maximum / TOKENS_PER_S


def _released(text_filter: Any, tokens: Sequence[str]) -> Iterator[int]:
    """Yield the number of released characters after each token and after the end of the text."""
    released = 0
    try:
        for token in tokens:
            released += sum(piece.size for piece in text_filter.feed(token))
            yield released
        yield released + sum(piece.size for piece in text_filter.close())
    except GuardBlocked:
        return


def _rule(kind_name: str, options: Options, action: Any) -> GuardRule:
    kind = KINDS[kind_name]
    detector: Any = kind.make(kind.Keys(**options), NO_CONTEXT)
    if hasattr(detector, "for_prompt"):
        detector = detector.for_prompt(PromptContext(PROMPT))
    return GuardRule(
        name=kind_name, detector=detector, action=action, cased=kind.cased, kind=kind_name
    )


def table(results: Results) -> Iterator[str]:
    yield f"| guards | {' | '.join(TEXTS)} |"
    yield f"|---|{'---|' * len(TEXTS)}"
    for name, delays in results.items():
        cells = ("/".join(f"{seconds:.2f}" for seconds in delays[kind]) for kind in TEXTS)
        yield f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    measured = {
        name: {kind: [*measure_delay(name, text)] for kind, text in TEXTS.items()} for name in SETS
    }
    results.write(results.DELAYS, measured)
    print("\n".join(table(measured)))


if __name__ == "__main__":
    main()
