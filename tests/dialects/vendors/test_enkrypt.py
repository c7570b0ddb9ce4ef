"""Enkrypt's headers, its context, and errors that its SDK can read."""

from __future__ import annotations

from hashlib import sha256

from proxy.dialects import DIALECTS, Received, parse_head, read_call
from proxy.errors import InvalidField, Unauthorized

HEADERS = {
    "apikey": "ek",
    "authorization": "Bearer idle",
    "x-enkrypt-deployment": "support-chat",
    "x-enkrypt-tags": "a,b",
    "x-enkrypt-refresh-cache": "true",
}
REFUSE = DIALECTS["enkrypt"].client.refuse


def test_its_headers_name_key_deployment_tags_and_refresh() -> None:
    head = parse_head("POST", "/ai-proxy/completions", HEADERS, Received("req_1"))

    assert head.digest == sha256(b"ek").digest()
    assert (head.deployment, head.bypass_cache) == ("support-chat", True)
    assert head.tags == (("a", None), ("b", None))
    assert head.echo == (("x-enkrypt-correlation-id", "req_1"),)


def test_context_is_another_name_for_its_context() -> None:
    head = parse_head("POST", "/ai-proxy/completions", HEADERS, Received("req_1"))

    body = read_call(head, {"model": "m", "prompt": None, "context": "c"}).body

    assert body["enkrypt_context"] == "c"
    assert "context" not in body
    assert body["prompt"] == "<|endoftext|>"


def test_a_bad_key_is_answered_as_its_gateway_does() -> None:
    refusal = REFUSE(Unauthorized(), "req_1")

    assert refusal.body == {"message": "Unauthorized", "request_id": "req_1"}


def test_other_errors_keep_the_detections_readable() -> None:
    refusal = REFUSE(InvalidField("n", "must be an integer"), "req_1")

    assert "message" not in refusal.body
    assert refusal.body["error"]["param"] == "n"
    assert "enkrypt_policy_detections" in refusal.body
