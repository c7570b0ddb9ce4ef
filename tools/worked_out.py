"""Write what is worked out of the patterns of the code: ``python -m tools.worked_out``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import orjson

from proxy.guardrails.kinds.pii import ENTITIES, Pii
from proxy.guardrails.kinds.secrets import WHOLES, Secrets
from proxy.guardrails.matching import gitleaks
from proxy.guardrails.matching.injection_languages import LANGUAGES, phrases_of
from proxy.guardrails.matching.phrases import BETWEEN
from proxy.guardrails.matching.within_match import work_out_beginnings
from proxy.guardrails.matching.worked_out import FILE, WorkedOut, digest
from tools.needed_words import needed


def work_out() -> WorkedOut:
    """Return what the file holds, by the code alone."""
    phrases = [rule.pattern for words in LANGUAGES for rule in phrases_of(words)]
    return WorkedOut(
        beginnings={digest(each): work_out_beginnings(each) for each in begun()},
        needed={digest(each): sorted(needed(each, f"{BETWEEN}+")) for each in phrases},
    )


def begun() -> Iterator[str]:
    """Yield the patterns of whose beginnings ``secrets`` and ``pii`` ask."""
    for hold in (*Secrets().groups, Pii(ENTITIES).hold):
        yield from (shape.pattern for shape in hold.shapes) if hold is not None else ()
    yield WHOLES["private-key"]
    for rule in gitleaks.rules():
        for allowed in rule.allowed:
            if allowed.target == "line":
                yield from (pattern.written for pattern in allowed.patterns)


def written(found: WorkedOut) -> bytes:
    """Return the file: a line for each pattern, in the order of their digests."""
    tables = [
        orjson.dumps(name) + b": {\n" + b",\n".join(_lines(kept)) + b"\n}"
        for name, kept in (
            ("beginnings", found["beginnings"]),
            ("needed", found["needed"]),
        )
    ]
    return b"{\n" + b",\n".join(tables) + b"\n}\n"


def _lines(kept: Mapping[str, object]) -> list[bytes]:
    return [orjson.dumps({each: kept[each]})[1:-1] for each in sorted(kept)]


if __name__ == "__main__":
    FILE.write_bytes(written(work_out()))
