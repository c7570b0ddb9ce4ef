"""Which texts may be shown in traces, from schema to what redacts them."""

from __future__ import annotations

from proxy.guardrails.kinds import pii, secrets
from proxy.policy import schema
from proxy.types.guard import Capture, Detector, GuardRule


def captured(config: schema.CaptureConfig) -> Capture:
    """Read which texts may be shown. What redacts them tells of itself to nobody."""
    redact = (_masking("secrets", secrets.shared()), _masking("pii", pii.Pii()))
    share, most = config.share, config.max_chars
    return Capture(
        share=share,
        input="input" in config.fields,
        output="output" in config.fields,
        max_chars=most,
        redact=redact,
    )


def _masking(name: str, detector: Detector) -> GuardRule:
    return GuardRule(name=name, detector=detector, action="mask", cased=True, kind=name)
