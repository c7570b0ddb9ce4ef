"""Who may ask the admin port, and from where: not a page in the browser of somebody who may."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import field
from ipaddress import ip_address

from proxy.frozen import frozen

OPEN = ("/healthz", "/readyz")  # they say nothing, and probes have no token


@frozen
class Access:
    """The ``hosts`` by whose names the port may be asked, beside addresses and localhost, and the
    ``token`` that it wants, if any."""

    token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()

    def refuses(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Return status and reason of a request that may not be answered; None for one that may."""
        if not self._is_known_host(headers.get("Host", "")):
            return 403, "The Host header is not allowed. Add its host to HEADRACE_ADMIN_HOSTS."
        if _is_from_browser_page(method, headers):
            return 403, "Requests from web pages are not allowed."
        if self.token is not None and path not in OPEN and not self._has_token(headers):
            return 401, "Send the token of HEADRACE_ADMIN_TOKEN as Authorization: Bearer TOKEN."
        return None

    def _is_known_host(self, host: str) -> bool:
        """True for a name that nobody else can lead to this address, and where none is given."""
        name, colon, port = host.rpartition(":")
        name = (name if colon and port.isdigit() else host).lower().rstrip(".")
        if name in ("", "localhost", *self.hosts):
            return True
        try:
            return bool(ip_address(name.removeprefix("[").removesuffix("]")))
        except ValueError:
            return False

    def _has_token(self, headers: Mapping[str, str]) -> bool:
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        given = token.strip().encode("utf-8", "surrogateescape")
        wanted = (self.token or "").encode()
        return scheme.lower() == "bearer" and hmac.compare_digest(given, wanted)


def _is_from_browser_page(method: str, headers: Mapping[str, str]) -> bool:
    """True for what a page of another site asks, and for a change that any page asks for."""
    site = headers.get("Sec-Fetch-Site")
    if "Origin" in headers or site in ("cross-site", "same-site"):
        return True
    return method not in ("GET", "HEAD") and site is not None
