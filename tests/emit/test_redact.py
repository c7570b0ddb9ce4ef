"""The last net: credentials of known shapes are taken out, and lines stay what they are."""

from __future__ import annotations

import json

from proxy.emit.redact import redacted
from tests.for_each import for_each

SECRETS = [
    "sk-proj-abcdefghijklmnop1234",
    "hr-" + "a1B_" * 11,
    "Bearer abc.def-ghi_jkl",
    "AKIA" + "ABCDEFGHIJKLMNOP",
    "ghp_" + "a" * 36,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc",
    "redis://user:hunter22@cache:6379",
]


@for_each("secret", SECRETS)
def test_a_credential_is_taken_out_and_the_line_is_still_json(secret: str) -> None:
    line = json.dumps({"event": "bug", "said": f"before {secret} after"}).encode()

    said = json.loads(redacted(line))["said"]

    assert "[redacted]" in said
    assert said.startswith("before ")
    assert said.endswith(" after") or "redis" in secret
    assert secret not in said


def test_other_lines_are_left_as_they_are() -> None:
    line = json.dumps(
        {"key": "support-widget", "request_id": "req_0123456789abcdef", "url": "http://here:80/v1"}
    ).encode()

    assert redacted(line) == line
