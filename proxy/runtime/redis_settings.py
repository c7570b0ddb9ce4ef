"""Parses addresses of Redis servers and clusters."""

from __future__ import annotations

import re
from dataclasses import field

from proxy.runtime.frozen import frozen

REDIS_URL = re.compile(
    r"(redis|rediss|unix(?!\+))(\+cluster)?://([^/?@]*@)?([^/?@]*)(/[^?]*)?(\?.*)?"
)
SERVER_ADDRESS = re.compile(r"([\w.-]+|\[[\w:.]+\])(:\d{1,5})?")


@frozen
class RedisLocation:
    """Address of a Redis or Valkey server, or of some servers of a cluster."""

    urls: tuple[str, ...] = field(repr=False)
    cluster: bool = False


def parse_redis_url(text: str) -> RedisLocation:
    """Parse the URL of a Redis server or cluster.

    Forms: ``redis://USER:PASSWORD@HOST:PORT/DATABASE``, ``rediss://`` for TLS, ``unix://PATH``,
    ``redis+cluster://`` and ``rediss+cluster://`` with comma-separated servers. Raises
    ``ValueError`` without the URL, which may contain a password.
    """
    match = REDIS_URL.fullmatch(text)
    if match is None:
        forms = "redis://HOST:PORT, rediss:// for TLS, redis+cluster:// or rediss+cluster://"
        raise ValueError(
            f"HEADRACE_REDIS_URL must be {forms}. Percent-encode / ? @ in the password."
        )
    scheme, cluster, user, hosts, path, query = (part or "" for part in match.groups())
    names = hosts.split(",")
    if len(names) > 1 and not cluster:
        raise ValueError(
            f"HEADRACE_REDIS_URL has several servers, which requires {scheme}+cluster://"
        )
    if cluster and path not in ("", "/", "/0"):
        raise ValueError("HEADRACE_REDIS_URL must not have a database: clusters have only 0")
    if scheme != "unix" and not all(SERVER_ADDRESS.fullmatch(name) for name in names):
        raise ValueError("HEADRACE_REDIS_URL must have HOST or HOST:PORT, separated by commas")
    urls = tuple(f"{scheme}://{user}{name}{path}{query}" for name in names)
    return RedisLocation(urls, bool(cluster))
