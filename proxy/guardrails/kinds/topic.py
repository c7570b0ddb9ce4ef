"""Topics by examples: what a text shares of its telling words with the examples in the policy.

Weak without embeddings: a text in other words than the examples' is of no topic. So banning needs
examples with the words that matter, and allowing needs many; thresholds are for trying out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field

from pydantic import Field

from proxy.config.scalars import Name, Section, Share, Words
from proxy.dialects.detections import none_found
from proxy.frozen import frozen
from proxy.guardrails.guard_kind import POSITIVE_SHARE, GuardKind
from proxy.guardrails.matching import word_overlap
from proxy.types.detections import DetectionFormat
from proxy.types.guard import Finding

OFF_TOPIC = "off_topic"
BANNED = "banned"
TELLING = 2  # stems below which a text is of any topic: a greeting, a yes

Vector = dict[str, float]


@frozen
class Topic:
    """Finds texts that are near a banned topic, or near none of the allowed ones.

    ``threshold`` is the likeness, from 0 to 1, from which a text is of a topic.
    """

    allowed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    banned: Mapping[str, Sequence[str]] = field(default_factory=dict)
    threshold: float = 0.2
    _rarity: Vector = field(init=False, repr=False, compare=False)
    _examples: dict[str, list[Vector]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        topics = {**self.allowed, **self.banned}
        if not topics or not all(topics.values()):
            raise ValueError("each topic must have examples")
        if self.allowed.keys() & self.banned.keys():
            raise ValueError("a topic must not be both allowed and banned")
        if not 0 < self.threshold <= 1:
            raise ValueError(POSITIVE_SHARE)
        object.__setattr__(self, "_rarity", _rarity(topics))
        vectors = {name: [self._vector(t) for t in texts] for name, texts in topics.items()}
        object.__setattr__(self, "_examples", vectors)

    @property
    def reach(self) -> None:
        return None

    def find(self, text: str) -> Sequence[Finding]:
        if len(set(word_overlap.stems(text))) < TELLING:
            return []
        start, end = len(text) - len(text.lstrip()), len(text.rstrip())
        like = self.likeness(text)
        name = max(self.banned, key=lambda each: like[each], default="")
        if name and like[name] >= max(self.threshold, *like.values()):
            return [Finding(start=start, end=end, kind=f"{BANNED}:{name}", score=like[name])]
        nearest = max((like[each] for each in self.allowed), default=1.0)
        if nearest < self.threshold:
            return [Finding(start=start, end=end, kind=OFF_TOPIC, score=round(1 - nearest, 3))]
        return []

    def likeness(self, text: str) -> dict[str, float]:
        """Return the likeness of a text to each topic, from 0 to 1."""
        vector = self._vector(text)
        return {name: round(_likeness(vector, known), 3) for name, known in self._examples.items()}

    def _vector(self, text: str) -> Vector:
        """Weigh a text's stems by how rare they are among the topics, to a length of 1.

        Words of no example weigh as the rarest: a text of other things is unlike all.
        """
        rarest = max(self._rarity.values(), default=1.0)
        counts = Counter(word_overlap.stems(text))
        raw = {s: (1 + math.log(n)) * self._rarity.get(s, rarest) for s, n in counts.items()}
        length = math.sqrt(sum(weight * weight for weight in raw.values())) or 1.0
        return {stem: weight / length for stem, weight in raw.items()}


def _rarity(topics: Mapping[str, Sequence[str]]) -> Vector:
    """Weigh a stem by how few of the topics know it."""
    known = Counter(
        s for texts in topics.values() for s in set(word_overlap.stems(" ".join(texts)))
    )
    return {stem: 1 + math.log((1 + len(topics)) / (1 + count)) for stem, count in known.items()}


def _likeness(vector: Vector, examples: Sequence[Vector]) -> float:
    near = [sum(w * known.get(s, 0.0) for s, w in vector.items()) for known in examples]
    together: Vector = {}
    for known in examples:
        for stem, weight in known.items():
            together[stem] = max(weight, together.get(stem, 0.0))
    covered = sum(weight * weight for stem, weight in vector.items() if stem in together)
    return min(1.0, max(*near, 0.6 * covered))


class TopicConfig(Section):
    """Topics, by the words of examples. Texts with other words have no topic."""

    allowed: dict[Name, Words] = Field(default_factory=dict)
    """Allowed topics with examples. A text must resemble one of them."""
    banned: dict[Name, Words] = Field(default_factory=dict)
    """Forbidden topics with examples. A text must resemble none of them."""
    threshold: Share = 0.2
    """Minimum similarity to an example."""


KIND = GuardKind(
    TopicConfig,
    lambda keys, context: Topic(keys.allowed, keys.banned, keys.threshold),
    detections=(DetectionFormat("topic_detector", "on_topic", summary=none_found),),
    example={"banned": {"stocks": ["shares"]}},
)
