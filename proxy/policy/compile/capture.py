"""Which texts may be shown in traces, from schema to what redacts them."""

from __future__ import annotations

from typing import cast

from proxy.guardrails.guard_kind import NO_CONTEXT
from proxy.guardrails.kinds.table import KINDS
from proxy.policy import schema
from proxy.types.guard import Capture, Detector, GuardRule


def captured(config: schema.CaptureConfig) -> Capture:
    """Read which texts may be shown. What redacts them tells of itself to nobody."""
    redact = (_masking("secrets"), _masking("pii"))
    share, most = config.share, config.max_chars
    return Capture(
        share=share,
        input="input" in config.fields,
        output="output" in config.fields,
        max_chars=most,
        redact=redact,
    )


def _masking(word: str) -> GuardRule:
    """Return a rule that masks what a kind of guard finds as it stands in the table."""
    kind = KINDS[word]
    detector = cast(Detector, kind.make(kind.Keys(), NO_CONTEXT))
    return GuardRule(name=word, detector=detector, action="mask", cased=True, kind=word)
