"""Prejudice against groups of people, as a model judges it by a rule of ours."""

from __future__ import annotations

from proxy.dialects.detections import yes
from proxy.guardrails.guard_kind import GuardKind
from proxy.guardrails.services.judge import ByModelConfig, judged_by
from proxy.guardrails.services.wire import SPOKEN_KINDS
from proxy.types.detections import DetectionFormat

BIAS = """\
A text must not judge, mock or favour people for their origin, skin colour, sex, gender, religion,
age, disability, looks or whom they love, nor take for granted that all of such a group are alike.
To speak of such groups, or to report what somebody said of them, does not break the rule."""


class BiasConfig(ByModelConfig):
    """Prejudice against groups of people, as judged by a model."""


KIND = GuardKind(
    BiasConfig,
    lambda keys, context: judged_by(keys, context, BIAS, "bias"),
    fields=SPOKEN_KINDS,
    asks=True,
    detections=(DetectionFormat("bias", "bias", yes("bias_detected")),),
)
