"""Random requests on all routes, with known and foreign fields and unusual values.

A drawn request is a plain value that can be printed, shrunk and repeated.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from hypothesis import strategies as st

from proxy.dialects import DIALECTS
from proxy.types import Endpoint
from tests.adversary.hostile_texts import HOSTILE_TEXTS, repeat_text
from tests.test_pipeline import ROUTES, Route

FORBIDDEN = "zqforbidden"
"""The word that a guard blocks. No upstream may receive it, wherever a request has it."""

BOUNDS = (
    "max_tokens", "max_completion_tokens", "max_new_tokens", "max_output_tokens", "max_length",
    "n_predict", "num_predict", "min_tokens", "max_gen_len", "max_token_count",
    "max_tokens_to_generate",
)  # fmt: skip
"""Names by which some server bounds the length of a response, listed apart from the product."""

ROUTING = (
    "models", "fallbacks", "route", "provider", "api_base", "base_url", "api_key",
    "custom_llm_provider", "callbacks", "extra_headers", "prompt_embeds", "chat_template",
    "mock_response", "guardrails", "engine", "model_id", "model_name", "lora_adapter", "adapter_id",
    "data_sources", "preset", "plugins", "cached_content",
)  # fmt: skip
"""Fields that choose a model, an address or a key at some server."""

OTHER_NAMES = (
    "options", "extra_body", "metadata", "documents", "guided_json", "context", "zq_unknown",
    "stop_token_ids", "logit_bias", "prompt_logprobs", "images", "audio", "tools", "", "Prompt",
    "thinking", "reasoning", "thinking_budget", "generation_config", "google", "maxTokens",
    "api-key",
)  # fmt: skip

DECLARED_NAMES = sorted(
    {n for d in DIALECTS.values() for fields in d.fields.values() for n in fields}
)
NAMES = st.sampled_from((*BOUNDS, *ROUTING, *OTHER_NAMES, *DECLARED_NAMES))

NUMBERS = st.one_of(
    st.sampled_from(
        (0, 1, -1, 2, 7, 128, 129, 4096, -(10**9), 10**9, 2**31, 2**53, 2**53 + 1, 2**63, 2**64)
    ),
    st.sampled_from((0.5, -0.0, 1e-9, 1e300, -1e300, 1.0, 2.0)),
    st.integers(-100, 10_000),
)
HOSTILE_STRINGS = tuple(repeat_text(name, size) for name, size in product(HOSTILE_TEXTS, (40, 600)))
STRINGS = st.one_of(
    st.sampled_from(HOSTILE_STRINGS), st.text(st.characters(codec="utf-8"), max_size=60)
)
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, STRINGS)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(NAMES, STRINGS), inner, max_size=4)
    ),
    max_leaves=8,
)
PARTS = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, STRINGS),
    st.builds(lambda text: {"type": "image_url", "image_url": {"url": text}}, STRINGS),
    VALUES,
)
MESSAGES = st.lists(
    st.builds(
        lambda role, content, more: {**more, "role": role, "content": content},
        st.sampled_from(("user", "system", "assistant", "tool", "developer", "critic", "")),
        st.one_of(STRINGS, st.lists(PARTS, max_size=3), st.none()),
        st.dictionaries(
            st.sampled_from(("name", "tool_calls", "refusal", "id")), VALUES, max_size=1
        ),
    ),
    min_size=1,
    max_size=4,
)
PROMPTS = st.one_of(
    STRINGS,
    st.lists(STRINGS, max_size=4),
    st.lists(st.integers(-2, 60_000), max_size=5),
    st.lists(st.lists(st.integers(0, 60_000), max_size=3), max_size=3),
    VALUES,
)
HEADERS = st.dictionaries(
    st.sampled_from(
        ("x-headrace-tags", "x-headrace-deployment", "x-headrace-user", "x-headrace-timeout-ms",
         "x-headrace-refresh-cache", "cache-control", "traceparent", "x-request-id", "via",
         "x-portkey-metadata", "x-portkey-config", "x-enkrypt-tags", "accept", "user-agent")
    ),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40),
    max_size=2,
)  # fmt: skip


Path = tuple[Any, ...]


@dataclass(frozen=True)
class HostileRequest:
    """One request. ``is_forbidden`` is True if its body contains the forbidden word."""

    name: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    is_forbidden: bool = False

    @property
    def route(self) -> Route:
        return ROUTES[self.name]

    def __repr__(self) -> str:
        return f"{self.route.path} ({self.name}) {dict(self.headers)} {self.body[:2000]!r}"


def list_text_paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of each string in a JSON value. That of a name of an object ends in None."""
    if isinstance(value, str):
        yield path
    members: Any = value.items() if isinstance(value, dict) else ()
    for step, inner in enumerate(value) if isinstance(value, list) else members:
        if path and isinstance(value, dict):
            yield (*path, step, None)
        yield from list_text_paths(inner, (*path, step))


def insert_forbidden(value: Any, path: Path) -> Any:
    """Return the value with the forbidden word in the string at a path."""
    if not path:
        return f"{value} {FORBIDDEN} please"
    step, *more = path
    if more == [None]:
        return {(f"{FORBIDDEN} {n}" if n == step else n): inner for n, inner in value.items()}
    result = copy.copy(value)
    result[step] = insert_forbidden(value[step], tuple(more))
    return result


FIELD_VALUES: tuple[Any, ...] = (
    True, False, 0, 1, 2, 3, 7, 20, 40, 4096, -1, 0.5, "a", "none", "auto", "text", [], ["a", "b"],
    {}, {"type": "text"}, {"a": "b"}, [{"type": "function", "function": {"name": "f"}}], {"5": 1},
    [1, 2], "json", "low", "b64_json", None,
)  # fmt: skip


def list_valid_values(route: Route, name: str) -> list[Any]:
    """Return values that some dialect accepts in a field, or all for an unknown field."""
    endpoint: Endpoint = "chat" if route.chat else "completions"
    tables = [d.fields[endpoint] for d in DIALECTS.values() if endpoint in d.fields]
    checks = [table[name].check for table in tables if name in table]
    return [v for v in FIELD_VALUES if not checks or any(check(v) is None for check in checks)]


@st.composite
def bodies(draw: st.DrawFn, route: Route) -> dict[str, Any]:
    body = route.body(streamed=route.streams and draw(st.booleans()))
    if draw(st.integers(0, 3)) == 0:
        body |= {"messages": draw(MESSAGES)} if route.chat else {"prompt": draw(PROMPTS)}
    for name in draw(st.lists(NAMES, max_size=4, unique=True)):
        valid = list_valid_values(route, name)
        if name in BOUNDS and draw(st.booleans()):
            body[name] = draw(NUMBERS)
        elif valid and draw(st.integers(0, 9)) > 0:
            body[name] = draw(st.sampled_from(valid))
        else:
            body[name] = draw(VALUES)
    if draw(st.integers(0, 5)) == 0:
        body["options"] = {"num_predict": draw(NUMBERS), "num_ctx": 5}
    if route.path == "/v1/completion" and draw(st.booleans()):
        body["model"] = draw(st.permutations(["first", "second", "third"]))[
            : draw(st.integers(1, 3))
        ]
    return body


@st.composite
def hostile_requests(draw: st.DrawFn) -> HostileRequest:
    """Draw a request. One in ten has invalid JSON."""
    name = draw(st.sampled_from(sorted(ROUTES)))
    body = draw(bodies(ROUTES[name]))
    paths = [path for path in list_text_paths(body) if path[0] != "model"]
    is_forbidden = bool(paths) and draw(st.integers(0, 2)) == 0
    if is_forbidden:
        body = insert_forbidden(body, draw(st.sampled_from(paths)))
    raw = json.dumps(body, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 9)) == 0:
        raw = draw(broken_json(raw))
    headers = draw(HEADERS)
    return HostileRequest(name, raw, tuple(headers.items()), is_forbidden)


@st.composite
def broken_json(draw: st.DrawFn, raw: bytes) -> bytes:
    index = draw(st.integers(0, len(raw)))
    return draw(
        st.sampled_from(
            (
                raw[:index],
                raw[:index] + b"\xff\xfe" + raw[index:],
                raw[:-1] + b', "model": "support-chat"}',
                raw[:-1] + b', "temperature": NaN}',
                b"\xef\xbb\xbf" + raw,
                b"[" * 2000 + raw,
                raw + raw,
                b'{"a":' * 2000 + b"1" + b"}" * 2000,
                raw[:-1] + b', "n": 1' + b"0" * 5000 + b"}",
                b"",
            )
        )
    )
