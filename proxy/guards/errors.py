"""What an upstream says against a call, as guards of answers leave it.

Its words are shown like those of an answer, and it may quote the question in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from proxy.errors import ProxyError, UpstreamError
from proxy.guards.text.walk import Path, Text
from proxy.types.guard import GuardRule

MESSAGE: Path = ("error", "message")
PARAM: Path = ("error", "param")
CODE: Path = ("error", "code")
TYPE: Path = ("error", "type")


def error_texts(error: ProxyError) -> list[Text]:
    """Return the words of an upstream in an error; none where the words are ours."""
    words: dict[Path, str | None] = {}
    if error.upstream_message is not None:
        words[MESSAGE] = error.message
    if isinstance(error, UpstreamError):
        words |= {PARAM: error.param, CODE: error.upstream_code, TYPE: error.upstream_type}
    return [
        Text(path=path, text=text, kind="content", role="assistant")
        for path, text in words.items()
        if text
    ]


def acting(rules: Sequence[GuardRule]) -> list[GuardRule]:
    """Return the rules that keep something back, which look at an error whatever fields they are
    for."""
    return [replace(rule, fields=None, roles=None) for rule in rules if rule.enforces]


def rewrite(error: ProxyError, changes: Mapping[Path, str]) -> None:
    """Put other words for an upstream's; of its short words nothing is left that is changed."""
    error.say(changes.get(MESSAGE, error.message))
    if PARAM in changes:
        error.param = None
    if isinstance(error, UpstreamError):
        error.upstream_code = None if CODE in changes else error.upstream_code
        error.upstream_type = None if TYPE in changes else error.upstream_type


def withhold(error: ProxyError) -> None:
    """Leave nothing of an upstream's words."""
    rewrite(error, dict.fromkeys((PARAM, CODE, TYPE), ""))
    if error.upstream_message is not None:
        error.say(error.own_message)
