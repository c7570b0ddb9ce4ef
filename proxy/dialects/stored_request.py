"""What an upstream is asked about a response that it keeps: a method, a path and a query."""

from __future__ import annotations

from urllib.parse import quote, urlencode, urlsplit

from proxy.dialects.base import Dialect
from proxy.dialects.responses.sealing import unknown_id
from proxy.dialects.responses.stored import asked_of, kind_of
from proxy.dialects.upstream_request import MODEL, UpstreamRequest
from proxy.dialects.ways import beside, target_endpoint
from proxy.types import Call, Target


def build_stored_request(call: Call, target: Target, to_dialect: Dialect) -> UpstreamRequest:
    """Write a call about a response for the target that keeps it. Raises ``NotFound`` where that
    speaks no Responses any more, and ``BadField``."""
    head, pin = call.head, call.pin
    if pin is None or target_endpoint("responses", target, to_dialect) != "responses":
        raise unknown_id(head, head.parameter("id") or "")
    path = f"/responses/{quote(pin.id, safe='')}{kind_of(head).suffix}"
    url, headers = beside(target.upstream, to_dialect, path)
    url = url.replace(MODEL, quote(target.model, ""))
    query = urlencode(asked_of(head))
    if query:
        url += ("&" if urlsplit(url).query else "?") + query
    return UpstreamRequest(
        url=url,
        headers={name: value for name, value in headers.items() if name != "content-type"},
        body=b"",
        endpoint="stored",
        dropped=(),
        most_answered=0,
        method=head.method,
    )
