"""The simulated upstream answers each route."""

from __future__ import annotations

from pathlib import Path

from proxy.demo.simulated import RESPONSE_TEXT, run_simulated_model
from proxy.settings import Address
from tests.conftest import policies_for, running_proxy
from tests.test_pipeline import ROUTES, Route, reply_text

PROMPT = "Name three colors of the sky"
LIMITED = (b'"length"', b'"max_tokens"', b'"reason":"max_output_tokens"')


def length(route: Route) -> dict[str, int]:
    """Return the field that bounds a response of this route to three words."""
    return {"max_output_tokens": 3} if "input" in route.content else {"max_tokens": 3}


def prompt(route: Route) -> dict[str, object]:
    """Return the field for the prompt, with a prompt of six words."""
    messages = [{"role": "user", "content": PROMPT}]
    fields = {"prompt": PROMPT, "input": PROMPT, "messages": messages}
    return {name: value for name, value in fields.items() if name in route.content}


async def test_each_route_is_answered(tmp_path: Path) -> None:
    assert "simulated" in RESPONSE_TEXT
    full_text, short = RESPONSE_TEXT, " ".join(RESPONSE_TEXT.split()[:3])
    calls = 0
    async with (
        run_simulated_model(Address("127.0.0.1", 0)) as address,
        running_proxy(tmp_path / "p", policies_for(f"http://{address}")) as proxy,
    ):
        for name, route in ROUTES.items():
            cases = [
                (streamed, bound, text)
                for streamed in ((False, True) if route.streams else (False,))
                for bound, text in (({}, full_text), (length(route), short))
            ]
            for streamed, bound, text in cases:
                extra = prompt(route) | bound
                body = route.body(streamed=streamed, model="gpt-4o-mini", **extra)
                raw = (await proxy.send(route.path, body, route.credential)).raw
                calls += 1
                record = (await proxy.sink.wait(calls))[-1]
                case = (name, streamed, bound, raw)
                assert reply_text(route, raw, streamed=streamed).strip() == text, case
                assert record.billing.usage_source == "provider", case
                tokens = record.billing.tokens
                assert (tokens.input, tokens.output) == (6, len(text.split())), case
                assert any(word in raw for word in LIMITED) == bool(bound), case
