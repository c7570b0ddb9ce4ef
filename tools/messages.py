"""The generated page docs/messages.md: messages of Headrace, collected from its code for review."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

TOP = Path(__file__).parents[1]
PROXY = TOP / "proxy"
SECTIONS = {
    "Responses to clients": (
        *("errors", "server", "dialects", "fields", "limits", "upstream", "cache", "egress"),
        *("policy/decide", "types", "guards/run.py", "guards/findings.py"),
    ),
    "Checks and decisions of policies": ("config", "policy", "prices", "guards", "policytest"),
    "Commands, settings and start": (
        *("settings.py", "cli", "app", "demo", "migrate", "ledger", "telemetry", "runtime"),
    ),
}
OTHER_TEXT = (
    *("errors/table.py", "guards/matching/data", "guards/services/judge.py", "guards/text"),
    *("ledger/schema.py", "demo/simulated.py", "demo/examples.py", "telemetry/catalog"),
)
"""Modules whose texts are tables of pages, prompts of judges, SQL or data."""
NO_MESSAGE = re.compile(
    r"compile|execute|Pattern|option|argument|command|remove(?:prefix|suffix)|_lazy|cast|replace|"
    r"\bre\.|TypeVar|RuntimeError|split|startswith|getLogger|^_field$|PromptContext|field_validator"
)
"""Calls whose arguments are patterns, SQL, help texts or parts of other texts."""
NOT_PROSE = re.compile(
    r"SELECT |INSERT |UPDATE |CREATE |DELETE FROM|[A-Z]+\(|json_extract|unixepoch|PRAGMA|\(\?|"
    r"\\[bsdw]|charset=|-src 'self'|^[a-z]+-?[a-z/-]*, [a-z/-]+(, [a-z-]+)*$|^HTTP/|HTTP/1\.1$|"
    r"word 1 of 2|^# |^[,.;:(]|^and \{|^[A-Z]{3,}(, | )[A-Z]{3,}|^Expected dot|^Pause on PRI"
)
"""SQL, patterns, headers, samples, file templates, and parts that begin with punctuation."""
SAYS_SOMETHING = re.compile(
    r"\b(?:must|may|cannot|not|is|are|was|were|has|have|does?|requires?|use[ds]?|set|send|add|run|"
    r"dropped|ignored|changed|rejected|failed|retried|returned|expired|reserve[ds]?|available)\b"
)
"""Occurs in a message. Shorter texts than four words without such a word are parts of others."""


def page() -> Iterator[str]:
    """Yield all messages by section and folder, sorted so that moved code changes nothing."""
    listed: set[Path] = set()
    for section, places in SECTIONS.items():
        yield f"## {section}"
        yield ""
        folders: dict[str, set[str]] = {}
        for file in (file for place in places for file in _files(PROXY / place)):
            name = file.relative_to(PROXY).as_posix()
            if file not in listed and not name.startswith(OTHER_TEXT):
                listed.add(file)
                folder = name.rpartition("/")[0] or name
                folders.setdefault(folder, set()).update(_messages(ast.parse(file.read_text())))
        for folder, messages in folders.items():
            if messages:
                yield f"`{folder}`"
                yield ""
                yield "```text"
                yield from sorted(messages)
                yield "```"
                yield ""
    yield "## Alerts"
    yield ""
    yield "```text"
    rules = yaml.safe_load((TOP / "dashboards/rules/alerts.yaml").read_text())
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        yield f"{rule['alert']}: {rule['annotations']['summary']}"
    yield "```"


def _files(place: Path) -> list[Path]:
    return sorted(place.rglob("*.py")) if place.is_dir() else [place]


def _messages(module: ast.Module) -> Iterator[str]:
    """Yield texts of two words or more that are neither documentation nor patterns."""
    skipped = {id(node) for root in _without_messages(module) for node in ast.walk(root)}
    module = _Inliner().visit(module)
    for text in _texts(module, skipped):
        words = " ".join(text.split())
        plain = re.sub(r"\{\w*\}", "", words)
        has_words = len(re.findall(r"[A-Za-z]{2,}", plain)) > (
            1 if SAYS_SOMETHING.search(plain) else 3
        )
        if has_words and " " in plain.strip() and not NOT_PROSE.search(words):
            yield words


class _Inliner(ast.NodeTransformer):
    """Moves a text that an f-string uses by a local name into the f-string, as one message."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        assigned: dict[str, list[ast.Assign]] = {}
        for part in ast.walk(node):
            match part:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if _text(value):
                    assigned.setdefault(name, []).append(part)
                case ast.AugAssign(target=ast.Name(id=name), value=value) if name in assigned:
                    start = assigned[name][-1]
                    start.value = ast.BinOp(start.value, ast.Add(), value)
                    part.value = ast.Constant(None)
                case _:
                    pass
        moved: list[ast.Assign] = []
        for part in ast.walk(node):
            match part:
                case ast.FormattedValue(value=ast.Name(id=name)) if name in assigned:
                    before = [a for a in assigned[name] if a.lineno < part.lineno]
                    moved += before[-1:]
                    part.value = before[-1].value if before else part.value
                case _:
                    pass
        for assign in moved:
            assign.value = ast.Constant(None)
        return node


def _without_messages(module: ast.Module) -> Iterator[ast.AST]:
    """Yield the parts of a module whose texts are no messages."""
    for node in ast.walk(module):
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Compare():
                yield node
            case ast.Call(func=function) if NO_MESSAGE.search(ast.unparse(function)):
                yield node
            case ast.Subscript(slice=part):
                yield part
            case ast.AnnAssign(annotation=part):
                yield part
            case ast.arg(annotation=ast.AST() as part):
                yield part
            case ast.FunctionDef(returns=ast.AST() as part):
                yield part
            case _:
                pass


def _texts(node: ast.AST, skipped: set[int]) -> Iterator[str]:
    """Yield each text below a node, with the names of inserted values in braces."""
    if id(node) in skipped:
        return
    text = _text(node)
    if text is not None:
        yield text
        return
    for child in ast.iter_child_nodes(node):
        yield from _texts(child, skipped)


def _text(node: ast.AST) -> str | None:
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_text(value) or "" for value in values)
        case ast.FormattedValue(value=value):
            return _text(value) or _placeholder(value)
        case ast.Call(func=ast.Name(id="format_count"), args=[count, *nouns]):
            return f"{_placeholder(count)} {_text(nouns[-1])}" + ("s" if len(nouns) == 1 else "")
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = (_text(left), _text(right))
            if parts == (None, None):
                return None
            return (parts[0] or _placeholder(left)) + (parts[1] or _placeholder(right))
        case _:
            pass
    return None


def _placeholder(node: ast.AST) -> str:
    """Return the last name of an expression that is no method of strings, in braces."""
    code = re.sub(r"'[^']*'", "", ast.unparse(node))
    names = [name for name in re.findall(r"[A-Za-z]\w*", code) if not hasattr(str, name)]
    return f"{{{names[-1]}}}" if names else "{}"
