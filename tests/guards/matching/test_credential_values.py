from __future__ import annotations

from base64 import b64encode

from proxy.guards.matching.gitleaks import (
    MAX_BYTES,
    is_basic_credential,
    is_generated_token,
    is_literal,
    is_password,
)
from tests.for_each import for_each
from tests.guards.credentials import draw


def test_token_longer_than_the_bound_is_data() -> None:
    for size, expected in ((MAX_BYTES - 5, True), (MAX_BYTES + 1, False)):
        token = f"acme_{draw('long', size)}".encode()

        assert is_generated_token(token, (0, len(token))) is expected


@for_each(
    ("value", "expected"),
    [("s3cret", True), ("20240815", True), ("swordfish", False), ("utf-8", False), ("f(1)x", False),
     ("SHA-256", False), ("1.2.3", False), ("32-bit", False), ("self.x.y1", False)],
)  # fmt: skip
def test_password_has_letters_and_digits_or_only_digits(value: str, expected: bool) -> None:
    assert is_password(value.encode(), (0, len(value))) is expected


@for_each(
    ("plain", "expected"),
    [("ada:s3cret", True), ("ada:", False), ("ada", False), ("a:\x00", False)],
)
def test_basic_credential_is_the_base64_of_user_and_password(plain: str, expected: bool) -> None:
    value = b64encode(plain.encode())

    assert is_basic_credential(value, (0, len(value))) is expected
    assert not is_basic_credential(b"authentication", (0, 14))


@for_each(("value", "expected"), [("hunter", True), ("getenv(x)", False), ("${X}", False)])
def test_literal_is_no_expression(value: str, expected: bool) -> None:
    assert is_literal(value.encode(), (0, len(value))) is expected
