"""Which texts may be shown in traces, from schema to what redacts them."""

from __future__ import annotations

from proxy.guardrails.kinds.table import KINDS
from proxy.policy import schema
from proxy.policy.schema.guards import COMMON, GuardConfig, PiiConfig, SecretsConfig
from proxy.types.guard import Capture, GuardRule

KIND = frozenset({"guard"})


def captured(config: schema.CaptureConfig) -> Capture:
    """Read which texts may be shown. What redacts them tells of itself to nobody."""
    redact = (
        _masking("secrets", SecretsConfig(guard="secrets")),
        _masking("pii", PiiConfig(guard="pii")),
    )
    share, most = config.share, config.max_chars
    return Capture(
        share=share,
        input="input" in config.fields,
        output="output" in config.fields,
        max_chars=most,
        redact=redact,
    )


def _masking(name: str, config: GuardConfig) -> GuardRule:
    kind = KINDS[name]
    detector = kind.make(config.model_dump(exclude=set(COMMON | KIND)))
    return GuardRule(name=name, detector=detector, action="mask", cased=kind.cased, kind=name)
