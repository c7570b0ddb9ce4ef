"""Hosts of a URL in one normalized form."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Collection, Iterator
from urllib.parse import unquote

FULL_STOPS = str.maketrans(dict.fromkeys("\u3002\uff0e\uff61", "."))
INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u2060\ufeff"))
IPV4_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")


def list_hosts(url: str) -> set[str]:
    """Return the hosts of a URL; two if parsers differ on whether a backslash ends the host."""
    authority = re.sub(r"(?i)^(?:[a-z][a-z0-9+.-]*:)?[/\\]*", "", url)
    ends = (r"[/?#\\]", r"[/?#]")
    return {normalize_host(re.split(end, authority, maxsplit=1)[0]) for end in ends}


def normalize_host(authority: str) -> str:
    """Return the normalized host of ``user:password@host:port``."""
    host = authority.rpartition("@")[2]
    if literal := re.match(r"\[([^\]]*)\]", host):
        return _normalize_ip_literal(literal[1])
    host = unicodedata.normalize("NFKC", unquote(host.partition(":")[0]).translate(INVISIBLE))
    host = host.translate(FULL_STOPS).casefold().rstrip(".")
    try:
        host = host.encode("idna").decode()
    except UnicodeError:
        return host
    return _parse_ipv4(host) or host


def _normalize_ip_literal(literal: str) -> str:
    try:
        address = ipaddress.IPv6Address(literal.partition("%")[0])
    except ValueError:
        return literal
    return str(address.ipv4_mapped or address)


def _parse_ipv4(host: str) -> str | None:
    """Return an IPv4 address in any notation: ``127.1``, ``0x7f.0.0.1``, ``2130706433``."""
    parts = host.split(".")
    if len(parts) > 4 or not all(IPV4_NUMBER.fullmatch(part) and len(part) < 20 for part in parts):
        return None
    try:
        *heads, tail = [_parse_ipv4_part(part) for part in parts]
    except ValueError:
        return None
    if any(head > 255 for head in heads) or tail >= 256 ** (4 - len(heads)):
        return None
    return str(ipaddress.IPv4Address(sum(h << 8 * (3 - i) for i, h in enumerate(heads)) + tail))


def _parse_ipv4_part(part: str) -> int:
    if part.startswith("0x"):
        return int(part[2:] or "0", 16)
    return int(part, 8 if part.startswith("0") else 10)


def matches_host_entry(host: str, entries: Collection[str]) -> bool:
    """Return True if an entry is the host, or ``*.`` and a parent domain of the host."""
    return host in entries or any(f"*.{parent}" in entries for parent in _iter_parent_domains(host))


def is_at_or_below_entry(host: str, entries: Collection[str]) -> bool:
    """Return True if an entry matches the host or is a parent domain of it."""
    parents = _iter_parent_domains(host)
    return matches_host_entry(host, entries) or any(parent in entries for parent in parents)


def _iter_parent_domains(host: str) -> Iterator[str]:
    labels = host.split(".")
    return (".".join(labels[start:]) for start in range(1, len(labels)))


def normalize_host_entry(entry: str) -> str:
    """Return the normalized entry of a policy. Raises ``ValueError`` if it is not a host."""
    prefix, bare = ("*.", entry[2:]) if entry.startswith("*.") else ("", entry)
    if re.search(r"[\s/\\@?#]|^$", bare):
        raise ValueError(f"{entry[:80]!r} is not a host name")
    host = _normalize_ip_literal(bare.strip("[]")) if bare.count(":") > 1 else normalize_host(bare)
    if not re.fullmatch(r"[a-z0-9_.:-]+", host):
        raise ValueError(f"{entry[:80]!r} is not a host name")
    return prefix + host
