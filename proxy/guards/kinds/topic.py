"""The `topic` guard: compares the distinctive words of a text with examples of topics.

A text that shares no words with the examples has no topic. To forbid topics, list examples with the
decisive words. To allow topics, list many examples. Tune the threshold on your own texts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pydantic import Field

from proxy.config.scalars import Name, PositiveShare, Section, TextList
from proxy.dialects.findings import to_inverse_flag
from proxy.guards.guard_kind import GuardKind
from proxy.guards.matching import english
from proxy.types.detections import DetectionFormat
from proxy.types.guard import Finding

OFF_TOPIC = "off_topic"
BANNED_KIND = "banned"
MIN_TOPIC_STEMS = 2  # minimum for a text with a topic; greetings have fewer

Vector = dict[str, float]


class Topic:
    """Detector of texts that are similar to a banned topic, or to no allowed topic.

    ``threshold`` is the minimum similarity to a topic, from 0 to 1.
    """

    lookback = None

    def __init__(
        self,
        allowed: Mapping[str, Sequence[str]] = MappingProxyType({}),
        banned: Mapping[str, Sequence[str]] = MappingProxyType({}),
        threshold: float = 0.2,
    ) -> None:
        topics = {**allowed, **banned}
        if not topics or not all(topics.values()):
            raise ValueError("each topic must have examples")
        if allowed.keys() & banned.keys():
            raise ValueError("a topic must not be both allowed and banned")
        self.allowed, self.banned, self.threshold = allowed, banned, threshold
        self._idf_by_stem = _compute_stem_idf(topics)
        self._example_vectors = {
            name: [self._build_vector(t) for t in texts] for name, texts in topics.items()
        }

    def find(self, text: str) -> Sequence[Finding]:
        if len(set(english.find_content_stems(text))) < MIN_TOPIC_STEMS:
            return []
        start, end = len(text) - len(text.lstrip()), len(text.rstrip())
        similarity = self.measure_topic_similarities(text)
        name = max(self.banned, key=lambda topic: similarity[topic], default="")
        if name and similarity[name] >= max(self.threshold, *similarity.values()):
            return [Finding(start, end, kind=f"{BANNED_KIND}:{name}", score=similarity[name])]
        nearest = max((similarity[topic] for topic in self.allowed), default=1.0)
        if nearest < self.threshold:
            return [Finding(start, end, kind=OFF_TOPIC, score=round(1 - nearest, 3))]
        return []

    def measure_topic_similarities(self, text: str) -> dict[str, float]:
        vector = self._build_vector(text)
        return {
            name: round(_measure_max_similarity(vector, examples), 3)
            for name, examples in self._example_vectors.items()
        }

    def _build_vector(self, text: str) -> Vector:
        """Return the unit vector of a text: its stems, weighted by rarity among the topics.

        A stem of no example has the highest rarity, so that unrelated texts are similar to no
        topic.
        """
        rarest = max(self._idf_by_stem.values(), default=1.0)
        counts = Counter(english.find_content_stems(text))
        raw = {s: (1 + math.log(n)) * self._idf_by_stem.get(s, rarest) for s, n in counts.items()}
        length = math.sqrt(sum(weight * weight for weight in raw.values())) or 1.0
        return {stem: weight / length for stem, weight in raw.items()}


def _compute_stem_idf(topics: Mapping[str, Sequence[str]]) -> Vector:
    texts = [" ".join(examples) for examples in topics.values()]
    counts = Counter(stem for text in texts for stem in set(english.find_content_stems(text)))
    return {stem: 1 + math.log((1 + len(topics)) / (1 + count)) for stem, count in counts.items()}


def _measure_max_similarity(vector: Vector, examples: Sequence[Vector]) -> float:
    """Return the similarity to the nearest example, or to the stems of all examples combined."""
    similarities = [sum(w * example.get(s, 0.0) for s, w in vector.items()) for example in examples]
    stems = {stem for example in examples for stem in example}
    covered = sum(weight * weight for stem, weight in vector.items() if stem in stems)
    return min(1.0, max(*similarities, 0.6 * covered))


class TopicConfig(Section):
    """Topics of a text, by the words that it shares with examples.

    A text that shares none is `off_topic` under `allowed`, and no finding under `banned`.
    """

    allowed: dict[Name, TextList] = Field(default_factory=dict)
    """Allowed topics with examples. A text must resemble one of them."""
    banned: dict[Name, TextList] = Field(default_factory=dict)
    """Forbidden topics with examples. A text must resemble none of them."""
    threshold: PositiveShare = 0.2
    """Minimum similarity to an example."""


KIND = GuardKind(
    TopicConfig,
    lambda keys, context: Topic(keys.allowed, keys.banned, keys.threshold),
    detections=(DetectionFormat("topic_detector", "on_topic", summary=to_inverse_flag),),
    example={"banned": {"stocks": ["shares"]}},
)
