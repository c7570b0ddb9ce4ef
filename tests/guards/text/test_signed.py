"""Signed thoughts that a guard has changed go no further."""

from __future__ import annotations

from proxy.guards.text.signed import without_broken

SIGNED = {"type": "thinking", "thinking": "Write to jane@example.com", "signature": "s"}
MASKED = {**SIGNED, "thinking": "Write to [EMAIL_1]"}
TEXT = {"type": "text", "text": "jane@example.com"}


def asked(*blocks: object) -> dict[str, object]:
    return {"messages": [{"role": "assistant", "content": [*blocks]}, {"role": "user"}]}


def test_a_signed_block_that_was_masked_is_left_out_and_others_stay() -> None:
    after = asked(MASKED, {**TEXT, "text": "[EMAIL_1]"})

    assert without_broken(asked(SIGNED, TEXT), after) == asked({**TEXT, "text": "[EMAIL_1]"})


def test_a_block_that_was_not_masked_stays() -> None:
    after = asked(SIGNED, {**TEXT, "text": "[EMAIL_1]"})

    assert without_broken(asked(SIGNED, TEXT), after) == after


def test_a_message_of_nothing_else_is_left_out() -> None:
    assert without_broken(asked(SIGNED), asked(MASKED)) == {"messages": [{"role": "user"}]}


def test_a_request_without_messages_is_as_it_was() -> None:
    assert without_broken({"prompt": "a"}, {"prompt": "b"}) == {"prompt": "b"}
