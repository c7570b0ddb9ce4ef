"""The `grounded` and `relevant` guards: judge a response by the context or question of its call.

`grounded` compares words, numbers and names. It finds unmentioned facts, and contradictions by
another number or name, a negation or an opposite. It misses swapped subjects and objects, and flags
true paraphrases. With ``nli``, a user's model of natural language inference judges instead: a
classifier of text pairs in the format of the `onnx` guard, with labels for entailment,
contradiction or both. Each sentence of a response is paired with the sentences of the context that
share the most words. Claims that need several sentences look unsupported.

`relevant` finds responses that share no words with the question or the context. Paraphrased answers
look irrelevant, and responses that repeat the question look relevant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, cached_property, partial
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Literal

from pydantic import StringConstraints

from proxy.config.scalars import PositiveShare, Section
from proxy.dialects.findings import make_inverse_score_details, to_inverse_flag
from proxy.guards.guard_kind import GuardKind, PromptDetectorFactory
from proxy.guards.guard_threads import GuardThreads
from proxy.guards.kinds.onnx import MAX_TEXT_CHARS, CannotClassify, OnnxModel, load_model
from proxy.guards.matching import english
from proxy.guards.matching.english import Sentence
from proxy.guards.matching.re2set import replace_surrogates
from proxy.types.detections import DetectionFormat
from proxy.types.guard import Action, Finding, GuardClient, PromptContext, ServiceText

FINDING_KINDS = ("number", "name", "negation", "unsupported")
MIN_ANSWER_STEMS = 4  # minimum stems of a response; a name, a number or "yes" has fewer
MIN_QUESTION_STEMS = 2  # stems of the question that make a response relevant
MIN_FACT_STEMS = 4  # minimum for a sentence without numbers and names
MAX_SENTENCE_PAIRS = 20_000  # pairs of sentences per response, about 20 ms
MAX_CONTEXT_CHARS = 64 * 1024  # characters of a context or a question, about 100 ms
MIN_SIMILARITY = 0.5  # minimum share of common stems of comparable sentences

PREMISES_PER_CLAIM = 4  # sentences of the context per sentence of the response
MAX_MODEL_PAIRS = 400  # per text
ENTAILMENT_PREFIX, CONTRADICTION_PREFIX = "entail", "contra"  # prefixes of the labels


class Groundedness:
    """Detector for the responses to one context.

    Finds sentences that the context does not support, by scores of at least ``threshold``. The
    context is parsed with the first response. The time is proportional to the product of both
    lengths. Raises ``ValueError`` above the bounds, because part of a context would not support all
    true sentences.
    """

    lookback = None

    def __init__(self, context: str, threshold: float = 0.5) -> None:
        self._context, self._threshold = context, threshold
        self._clauses = cache(english.parse_clauses)

    @property
    def context_chars(self) -> int:
        return len(self._context)

    @cached_property
    def _context_sentences(self) -> tuple[Sentence, ...]:
        return tuple(english.split_sentences(self._context))

    @cached_property
    def _context_stems(self) -> frozenset[str]:
        return frozenset[str]().union(*(sentence.stems for sentence in self._context_sentences))

    @cached_property
    def _context_numbers(self) -> frozenset[str]:
        return frozenset(english.find_normalized_numbers(self._context))

    def find(self, text: str) -> Sequence[Finding]:
        sentences = [
            sentence
            for sentence in english.split_sentences(text)
            if _has_facts(sentence) or len(sentence.stems) >= english.MIN_SHARED_STEMS
        ]
        is_long = len(self._context) > MAX_CONTEXT_CHARS  # checked before it is split
        if is_long or len(sentences) * len(self._context_sentences) > MAX_SENTENCE_PAIRS:
            raise ValueError("the context or the response is too long to compare")
        scores = [(sentence, *self.score_sentence(sentence)) for sentence in sentences]
        return [
            Finding(sentence.start, sentence.end, kind=kind, score=score)
            for sentence, kind, score in scores
            if score >= self._threshold
        ]

    def score_sentence(self, sentence: Sentence) -> tuple[str, float]:
        """Return the kind and the score of the strongest reason to doubt a sentence."""
        doubts = self._find_doubts(sentence)
        return max(doubts, key=itemgetter(1), default=("unsupported", 0.0))

    def _find_doubts(self, sentence: Sentence) -> Iterator[tuple[str, float]]:
        nearest = self._find_nearest(sentence)
        nearest_numbers = frozenset[str]().union(*(item.numbers for item in nearest))
        if sentence.numbers - self._context_numbers:
            yield "number", 0.9
        elif nearest and sentence.numbers - nearest_numbers:
            yield "number", 0.55
        if sentence.names - self._context_stems:
            yield "name", 0.8
        clauses = [clause for item in nearest for clause in self._clauses(item.text)]
        if kind := english.find_contradiction(english.parse_clauses(sentence.text), clauses):
            yield kind, 0.7
        facts = sentence.stems | sentence.numbers
        if facts and _has_facts(sentence):
            nearest_facts = nearest_numbers.union(*(item.stems for item in nearest))
            known_share = len(facts & (self._context_stems | self._context_numbers)) / len(facts)
            nearby_share = len(facts & nearest_facts) / len(facts)
            yield "unsupported", round(1 - (0.7 * known_share + 0.3 * nearby_share), 2)

    def _find_nearest(self, sentence: Sentence) -> list[Sentence]:
        """Return at most two comparable sentences of the context."""
        least = MIN_SIMILARITY * (len(sentence.stems) or 1)
        nearest = english.rank_by_shared_stems(sentence, self._context_sentences)[:2]
        return [item for item in nearest if len(item.stems & sentence.stems) >= least]


def _has_facts(sentence: Sentence) -> bool:
    return bool(sentence.numbers or sentence.names) or len(sentence.stems) >= MIN_FACT_STEMS


class LocalEntailmentDetector:
    """Compares responses with the context of their call, using the model in ``folder``.

    Raises ``ValueError`` as ``Onnx`` does, and if the model has neither a label for entailment nor
    one for contradiction.
    """

    def __init__(self, folder: str, threshold: float) -> None:
        self._model, self._threshold = load_model(Path(folder)), threshold
        self._entailment = _find_label(self._model, ENTAILMENT_PREFIX)
        self._contradiction = _find_label(self._model, CONTRADICTION_PREFIX)
        if self._entailment is None and self._contradiction is None:
            prefixes = f"{ENTAILMENT_PREFIX!r} or {CONTRADICTION_PREFIX!r}"
            raise ValueError(f"the model has no label that begins with {prefixes}")

    async def find_all(
        self, texts: Sequence[ServiceText], prompt: PromptContext, client: GuardClient
    ) -> Sequence[Sequence[Finding]]:
        """Return the findings for each text.

        Raises ``CannotClassify``, and ``Busy`` if too many calls wait.
        """
        context = replace_surrogates(prompt.context.strip())
        if max(len(context), sum(len(piece.text) for piece in texts)) > MAX_TEXT_CHARS:
            raise CannotClassify
        with self._model.pool.reserve_threads(client.caller) as in_thread:
            sources = await in_thread(lambda: list(english.split_sentences(context)))
            pieces = [replace_surrogates(text.text) for text in texts]
            return [await self._judge_sentences(piece, sources, in_thread) for piece in pieces]

    async def _judge_sentences(
        self, text: str, sources: Sequence[Sentence], in_thread: GuardThreads
    ) -> list[Finding]:
        findings = []
        for sentence, premises in await in_thread(partial(_pair_with_nearest, text, sources)):
            kind, score = await self._measure_doubt(sentence.text, premises, in_thread)
            if score >= self._threshold:
                findings.append(Finding(sentence.start, sentence.end, kind, score=round(score, 3)))
        return findings

    async def _measure_doubt(
        self, claim: str, premises: Sequence[str], in_thread: GuardThreads
    ) -> tuple[Literal["contradicted", "unsupported"], float]:
        """Return the kind and the score of the doubt about a claim. Raises ``CannotClassify``."""
        # One job per pair, so that a call past its deadline stops soon.
        judge_pair = self._model.classify_pair
        results = [await in_thread(partial(judge_pair, premise, claim)) for premise in premises]
        support, contradiction = 1.0, 0.0
        if label := self._entailment:
            support = max((result[label] for result in results), default=0.0)
        if label := self._contradiction:
            contradiction = max((result[label] for result in results), default=0.0)
        if contradiction > support or self._entailment is None:
            return "contradicted", contradiction
        return "unsupported", 1 - support


def _pair_with_nearest(
    text: str, sources: Sequence[Sentence]
) -> list[tuple[Sentence, Sequence[str]]]:
    """Return the sentences of a text with the nearest sentences of the context.

    Raises ``CannotClassify`` if there are too many pairs.
    """
    claims = list(english.split_sentences(text))
    if len(claims) * min(PREMISES_PER_CLAIM, len(sources)) > MAX_MODEL_PAIRS:
        raise CannotClassify
    ranked = [english.rank_by_shared_stems(claim, sources)[:PREMISES_PER_CLAIM] for claim in claims]
    premises = [[source.text for source in nearest] for nearest in ranked]
    return list(zip(claims, premises, strict=True))


def _find_label(model: OnnxModel, prefix: str) -> str | None:
    return next((label for label in model.labels if label.lower().startswith(prefix)), None)


class GroundedConfig(Section):
    """Sentences of a response without support in the call's `context`.

    Words, numbers and names decide, or your own model.
    """

    action: Action = "flag"
    """Action on findings. Default `flag`, because of false positives."""
    threshold: PositiveShare = 0.5
    """Minimum confidence that a sentence lacks support."""
    nli: Annotated[str, StringConstraints(min_length=1, max_length=1000)] | None = None
    """Folder with an ONNX model that judges entailment, contradiction or both."""


def build_groundedness_factory(
    keys: GroundedConfig,
) -> PromptDetectorFactory[Groundedness | LocalEntailmentDetector]:
    """Return a factory that makes a detector for each call with a context."""
    model = LocalEntailmentDetector(keys.nli, keys.threshold) if keys.nli else None

    def build_detector(prompt: PromptContext) -> Groundedness | LocalEntailmentDetector | None:
        if not prompt.context.strip():
            return None
        return model or Groundedness(prompt.context, keys.threshold)

    return PromptDetectorFactory(build_detector)


ADHERENCE_DETAILS = make_inverse_score_details("adherence_score")
GROUNDED_GUARD = GuardKind(
    GroundedConfig,
    lambda keys, context: build_groundedness_factory(keys),
    fields=frozenset({"content"}),
    is_output_only=True,
    detections=(
        DetectionFormat(
            "hallucination", "is_hallucination", lambda results: {"is_hallucination": results.flag}
        ),
        DetectionFormat("adherence", "adherence_score", ADHERENCE_DETAILS, summary=to_inverse_flag),
    ),
)


class Relevance:
    """Detector for the responses to one question.

    Finds responses with an irrelevance of at least ``threshold``. The question and the context are
    parsed with the first response.
    """

    lookback = None

    def __init__(self, question: str, context: str = "", threshold: float = 0.8) -> None:
        self._question, self._context, self._threshold = question, context, threshold

    @property
    def context_chars(self) -> int:
        return len(self._question) + len(self._context)

    @cached_property
    def _question_and_context_stems(self) -> tuple[frozenset[str], frozenset[str]]:
        """The stems and numbers of the question, and the stems of the context."""
        numbers = english.find_normalized_numbers(self._question)
        question = frozenset(english.find_content_stems(self._question)) | numbers
        return question, frozenset(english.find_content_stems(self._context))

    def find(self, text: str) -> Sequence[Finding]:
        score = self.score_irrelevance(text)
        if score < self._threshold:
            return []
        start = len(text) - len(text.lstrip())
        return [Finding(start, len(text.rstrip()), kind="irrelevant", score=score)]

    def score_irrelevance(self, text: str) -> float:
        """Return the irrelevance of a response, from 0 to 1."""
        question, context = self._question_and_context_stems
        stems = frozenset(english.find_content_stems(text))
        if len(stems) < MIN_ANSWER_STEMS or not question:
            return 0.0
        stems |= english.find_normalized_numbers(text)
        shared = min(1.0, len(stems & question) / min(MIN_QUESTION_STEMS, len(question)))
        context_share = len(stems & context) / len(stems) if context else 0.0
        return round(1 - max(shared, context_share), 2)


def build_relevance_factory(threshold: float) -> PromptDetectorFactory[Relevance]:
    """Return a factory that makes a detector for each call with a question."""

    def build_detector(prompt: PromptContext) -> Relevance | None:
        if not prompt.user_message.strip():
            return None
        question, context = prompt.user_message[:MAX_CONTEXT_CHARS], prompt.context
        return Relevance(question, context[:MAX_CONTEXT_CHARS], threshold)

    return PromptDetectorFactory(build_detector)


class RelevantConfig(Section):
    """Responses with few words in common with the question or the `context` of the call."""

    action: Action = "flag"
    """Action on findings. Default `flag`, because of false positives."""
    threshold: PositiveShare = 0.8
    """Minimum irrelevance of a response."""


RELEVANCY_DETAILS = make_inverse_score_details("relevancy_score")
RELEVANT_GUARD = GuardKind(
    RelevantConfig,
    lambda keys, context: build_relevance_factory(keys.threshold),
    fields=frozenset({"content"}),
    is_output_only=True,
    detections=(
        DetectionFormat("relevancy", "relevancy_score", RELEVANCY_DETAILS, summary=to_inverse_flag),
    ),
)
