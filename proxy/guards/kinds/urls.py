"""The `urls` guard: finds URLs with a denied host, or with a host that is not allowed.

Hosts are parsed as browsers do. Bare names (``example.com``), which may be files, schemes without a
host (``data:``) and redirects of allowed hosts are not found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import Field

from proxy.config.scalars import Section, TextList
from proxy.guards.guard_kind import GuardKind
from proxy.guards.matching.partial_match import StreamPattern, StreamPatternMatcher
from proxy.guards.matching.re2set import CharacterOffsets, Pattern, encode_utf8
from proxy.guards.text.hosts import (
    is_at_or_below_entry,
    list_hosts,
    matches_host_entry,
    normalize_host_entry,
)
from proxy.types.guard import Finding

LOOKBACK = 2048
URL_STOPS = r"\s\"'<>\x60"
URL_START = (
    r"(?i)(?:\b(?:https?|wss?|ftp):[/\\]{1,6}|\b[a-z][a-z0-9+.-]{1,19}://|(?:^|[\s(\"'=<\[])[/\\]{2}"
    rf"|\bwww\d?\.)[^/\\?#{URL_STOPS}]"
)
TRAILING_PUNCTUATION = b".,;:!?)}*_|"

Kind = Literal["denied", "unlisted"]


class Urls:
    """Detector of URLs by host.

    A URL is found if its host is in or below ``deny``, or if ``allow`` is not empty and does
    not list it. In ``allow``, ``example.com`` is that host only, and ``*.example.com`` all its
    subdomains. Raises ``ValueError`` for an entry that is not a host, wildcard or address.
    """

    def __init__(self, allow: Iterable[str] = (), deny: Iterable[str] = ()) -> None:
        self._allow = frozenset(map(normalize_host_entry, allow))
        self._deny = frozenset(map(normalize_host_entry, deny))
        self._url_start = Pattern(URL_START)
        self._url_rest = Pattern(rf"[^{URL_STOPS}]*")
        self.partial_matcher = StreamPatternMatcher(
            [StreamPattern(URL_START)], partial_finders={0: self._find_partial_url}
        )
        self.prefilter = self.partial_matcher.prefilter

    lookback = LOOKBACK

    def find(self, text: str) -> Sequence[Finding]:
        data = encode_utf8(text)
        characters = CharacterOffsets(text, data)
        findings, end = [], 0
        while spans := self._url_start.search(data, end):
            start, end = spans[0]
            if lead := re.match(rb"[\s(\"'=<\[](?=[/\\])", data[start:end]):
                start += lead.end()
            tail = self._url_rest.match(data[end : start + LOOKBACK])
            end += tail[1] if tail else 0
            url = data[start:end]
            url = url.rstrip(TRAILING_PUNCTUATION if b"[" in url else TRAILING_PUNCTUATION + b"]")
            if kind := self._classify_url(url.decode("utf-8", "replace")):
                stop = start + len(url)
                findings.append(characters.to_finding(start, stop, kind))
        return findings

    def _find_partial_url(self, data: bytes, start: int) -> int:
        while spans := self._url_start.search(data, start):
            begin, start = spans[0]
            tail = self._url_rest.match(data[start:])
            start += tail[1] if tail else 0
            if start == len(data):
                return begin
        return len(data)

    def _classify_url(self, url: str) -> Kind | None:
        names = list_hosts(url)
        if any(is_at_or_below_entry(name, self._deny) for name in names):
            return "denied"
        if self._allow and not all(matches_host_entry(name, self._allow) for name in names):
            return "unlisted"
        return None


class UrlsConfig(Section):
    """URLs, by host."""

    allow: TextList = Field(default_factory=list)
    """Allowed hosts. `*.example.com` includes all subdomains. All others are forbidden."""
    deny: TextList = Field(default_factory=list)
    """Forbidden hosts, including their subdomains."""


KIND = GuardKind(UrlsConfig, lambda keys, context: Urls(keys.allow, keys.deny))
