"""How many tokens a request has, where no upstream says it."""

from __future__ import annotations

from typing import Any

from proxy.policy.review.sample_call import suppose
from proxy.types import ModelCall, Plan, Target, Upstream
from proxy.upstream.counted import PICTURE, estimated, is_counted_here
from tests.limits.test_claims import AT

COUNT = "/v1/messages/count_tokens"


def asked(content: Any, path: str = COUNT, **more: Any) -> Any:
    body = {"model": "m", "messages": [{"role": "user", "content": content}], **more}
    return suppose(body, {}, AT, path)


def plan(dialect: str) -> Plan:
    target = Target(Upstream("u", dialect, ""), "m")
    return Plan("r", "k", "d", {}, (ModelCall("m", (target,)),))


def data(media_type: str, size: int) -> dict[str, Any]:
    kind = "image" if media_type.startswith("image/") else "document"
    return {
        "type": kind,
        "source": {"type": "base64", "media_type": media_type, "data": "A" * size},
    }


def test_only_what_its_upstream_cannot_count_is_counted_here() -> None:
    assert is_counted_here(plan("openai"), asked("Hello"))
    assert not is_counted_here(plan("anthropic"), asked("Hello"))
    chat = asked("Hello", "/v1/messages", max_tokens=4)
    assert not is_counted_here(plan("openai"), chat)


def test_every_text_counts() -> None:
    short, long = estimated(asked("x" * 40)), estimated(asked("x" * 440))

    assert long - short == 100
    assert estimated(asked("x" * 40, system="y" * 400)) - short >= 100


def test_a_picture_counts_as_one_and_a_file_by_its_size() -> None:
    none = estimated(asked([{"type": "text", "text": "x"}]))
    picture = estimated(asked([{"type": "text", "text": "x"}, data("image/png", 300_000)]))
    small = estimated(asked([{"type": "text", "text": "x"}, data("application/pdf", 100)]))
    large = estimated(asked([{"type": "text", "text": "x"}, data("application/pdf", 300_000)]))

    assert PICTURE < picture - none < PICTURE + 50
    assert PICTURE < small - none < PICTURE + 50
    assert large - none > 3 * PICTURE
