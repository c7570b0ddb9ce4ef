"""Routes with path parameters, query strings, request headers, and errors for unknown paths."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from proxy.dialects import (
    PLAIN_ROUTES,
    RequestContext,
    find_dialect,
    parse_request_head,
    read_api_key,
    request_headers,
)
from proxy.dialects.request_headers import (
    MAX_LOGGED_SEGMENTS,
    PASSTHROUGH_HINT,
    compile_route,
    describe_unknown_path,
    list_dropped_parameter_warnings,
    list_key_headers,
    read_path_parameters,
    read_query_parameters,
    redact_path,
)
from proxy.errors import BadRequest, NotFound
from tests.conftest import KEY
from tests.for_each import for_each

ROUTE = "/v1/responses/{id}/cancel"
BODY = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "p"}], "max_tokens": 9}
CHAT = "/v1/chat/completions"


@for_each(
    ("path", "name"),
    [
        ("/v1/responses/resp_1/cancel", "resp_1"),
        ("/v1/responses/a%2Fb%20c/cancel", "a/b c"),
        ("/v1/responses/%ff/cancel", "\N{REPLACEMENT CHARACTER}"),
        ("/v1/responses//cancel", None),
        ("/v1/responses/a/b/cancel", None),
        ("/v1xresponses/a/cancel", None),
    ],
)
def test_id_is_one_path_segment_and_decoded_once(path: str, name: str | None) -> None:
    match = compile_route(ROUTE).fullmatch(path)

    assert (match and read_path_parameters(match)) == (name and (("id", name),))


def test_only_known_query_parameters_are_read() -> None:
    known_names = frozenset({"limit", "include[]"})
    query = "limit=5&api_key=sk-1&include%5B%5D=a%26b&include[]=&limit=6"

    pairs = ("limit", "5"), ("include[]", "a&b"), ("include[]", ""), ("limit", "6")
    assert read_query_parameters(query, known_names) == pairs
    assert read_query_parameters(query, frozenset()) == ()


@for_each(
    ("query", "warned"),
    [
        ("", ()),
        ("limit=5&api-version=2024-10-21&beta=true", ()),
        ("foo=1&limit=5&a.b-c[]=2&foo=3", ("query parameters dropped: foo, a.b-c[]",)),
        (f"hr-key&{'x' * 33}=1&%20=1&=1&foo=", ("query parameters dropped: ?",)),
        ("&".join(f"p{number}=1" for number in range(10)),
            ("query parameters dropped: p0, p1, p2, p3, p4, p5, p6, p7 and 2 more",)),
    ],
)  # fmt: skip
def test_unused_query_parameter_is_named(query: str, warned: tuple[str, ...]) -> None:
    assert list_dropped_parameter_warnings(query, frozenset({"limit"})) == warned


@pytest.mark.parametrize(("method", "path"), [("POST", CHAT), ("GET", "/v1/models")])
async def test_unused_query_is_warned_of(method: str, path: str, client: ClientSession) -> None:
    headers = {"authorization": f"Bearer {KEY}"}
    body = BODY if method == "POST" else None
    url = f"{path}?foo=secret-value&api-version=1"

    async with client.request(method, url, headers=headers, json=body) as answered:
        raw = await answered.read()

    assert "query parameters dropped: foo" in answered.headers["x-headrace-warning"], raw
    assert "secret-value" not in str(answered.headers)


KNOWN_VALUES = {path for _, path in PLAIN_ROUTES}


@for_each(
    ("path", "hint"),
    [
        ("/v1/v1/chat/completions", "Remove /v1 from the client's base URL"),
        ("/v1/v1/messages", "Remove /v1 from the client's base URL"),
        ("/v1/chat/completions/chat/completions", "End the client's base URL with /v1"),
        ("/v1/messages/v1/messages", "End the client's base URL with /v1"),
        ("/api/v1/chat/completions", "/v1/chat/completions is available"),
        ("/api/chat", "This path belongs to Ollama's API"),
        ("/api/tags", "This path belongs to Ollama's API"),
        ("/azure/openai/v1/responses", "/openai/v1/responses is available"),
        ("/anthropic/v1/messages", "/v1/messages is available"),
        ("/v1beta/models/gemini-pro:generateContent", "This path belongs to Gemini's API"),
        ("/v1/chat/completions/", "Remove the slash at the end of the request path"),
        ("//v1/chat/completions", "Remove the slash at the end of the client's base URL"),
        ("/V1/Chat/Completions", "Write the path in lower case"),
    ],
)
def test_common_path_mistake_is_explained(path: str, hint: str) -> None:
    with pytest.raises(NotFound) as refused:
        parse_request_head("POST", path, {}, RequestContext("req_1"))

    assert refused.value.message.startswith(f"Unknown path. {hint}")


@for_each(
    "path",
    ["/", "/v1", "/v1/nothing", "/sk-of-somebody/x", "/v1/fim/completions", "/v1/x/embeddings"],
)
def test_unknown_path_error_lists_paths_and_echoes_nothing(path: str) -> None:
    message = describe_unknown_path(path, KNOWN_VALUES)

    paths = "Available paths include /v1/chat/completions, "
    assert message.startswith(f"Unknown path. {PASSTHROUGH_HINT} {paths}")
    assert "/v1/messages" in message
    assert "sk-" not in message


@for_each(
    ("path", "output"),
    [
        ("/v1/fine_tuning/jobs", "/v1/fine_tuning/jobs"),
        ("/v1/files/file-9aBc/content", "/v1/files/*/content"),
        ("/v1beta/models/gemini-9:generate", "/v1beta/models/*"),
        ("/sk-secret", "/*"),
        ("/" + "a" * 40, "/*"),
        ("/a" * 99, "/a" * MAX_LOGGED_SEGMENTS),
        ("/x\ny", "/*"),
    ],
)
def test_logged_path_hides_possible_secrets(path: str, output: str) -> None:
    assert redact_path(path) == output


MESSAGES, PORTKEY = "/v1/messages", {"x-portkey-trace-id": "t"}
OF_CHAT, OF_MESSAGES, OF_PORTKEY = (
    "Authorization: Bearer, or api-key",
    "x-api-key, or Authorization: Bearer",
    "x-portkey-api-key, or Authorization: Bearer",
)
MISPLACED: dict[str, tuple[str, dict[str, str], str, str]] = {
    "x-api-key on a chat": (CHAT, {"x-api-key": KEY}, OF_CHAT, "x-api-key"),
    "no Bearer": (CHAT, {"authorization": KEY}, OF_CHAT, "Authorization (without Bearer)"),
    "api-key on Messages": (MESSAGES, {"api-key": KEY}, OF_MESSAGES, "api-key"),
    "a query": (f"{CHAT}?api_key={KEY}", {}, OF_CHAT, "the query string"),
    "Gemini's query": (f"{MESSAGES}?key={KEY}", {}, OF_MESSAGES, "the query string"),
    "apikey at Portkey's": (CHAT, {"apikey": KEY} | PORTKEY, OF_PORTKEY, "apikey"),
    "two": (CHAT, {"apikey": KEY, "x-goog-api-key": KEY}, OF_CHAT, "apikey, x-goog-api-key"),
}


@for_each("name", MISPLACED)
async def test_misplaced_key_is_explained(name: str, client: ClientSession) -> None:
    path, headers, read, match = MISPLACED[name]

    async with client.post(path, headers=headers, json=BODY) as answered:
        text = await answered.text()

    assert answered.status == 401
    assert f"the header {read}. The request has a key in {match}." in text
    assert KEY not in text + str(answered.headers)


NO_KEY = "The virtual key is missing or invalid."
NO_CREDENTIALS = {
    dialect.name: (path, ", or ".join(list_key_headers(dialect.client)))
    for (method, path) in PLAIN_ROUTES
    if method == "POST"
    for dialect in [find_dialect(path, {})]
    if dialect.name != "enkrypt"  # its API has one message for this status
}


@for_each("name", NO_CREDENTIALS)
async def test_missing_key_names_headers(name: str, client: ClientSession) -> None:
    path, read = NO_CREDENTIALS[name]

    async with client.post(path, json=BODY) as answered:
        text = await answered.text()

    assert answered.status == 401
    assert f"{NO_KEY} This path reads the key from the header {read}." in text


async def test_wrong_key_in_the_right_header_gets_no_hint(client: ClientSession) -> None:
    headers = {"authorization": "Bearer wrong", "x-api-key": KEY}

    async with client.post(CHAT, headers=headers, json=BODY) as answered:
        error = (await answered.json())["error"]

    assert error["message"] == NO_KEY


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@for_each(
    ("header", "token"),
    [("Bearer abc", "abc"), ("bearer  abc ", "abc")]
    + [(other, None) for other in ("Basic abc", "Bearer", "")],
)
def test_bearer_token_is_read(header: str, token: str | None) -> None:
    secret = read_api_key(("authorization",), {"authorization": header})

    assert (secret.reveal() if secret else None) == token


def test_tags_are_pairs_or_bare_labels() -> None:
    tags = request_headers.read_tag_header("x", {"x": "team=support, beta ,, a=b=c"})

    assert tags == (("team", "support"), ("beta", None), ("a", "b=c"))


@for_each(
    "text",
    [",".join(f"t{i}" for i in range(33)), "a=" + "b" * 257, "a" * 257, "a=\udcff"],
    ids=["many", "a long value", "a long name", "no text"],
)
def test_tags_are_bounded(text: str) -> None:
    with pytest.raises(BadRequest):
        request_headers.read_tag_header("x", {"x": text})


def test_flag_is_true_or_false() -> None:
    for text, value in (("true", True), ("False", False), ("", False)):
        assert request_headers.read_boolean_header("x", {"x": text}) is value
    with pytest.raises(BadRequest):
        request_headers.read_boolean_header("x", {"x": "maybe"})


ZEROS = f"00-{'0' * 32}-{'1' * 16}-01"


@for_each("text", [TRACE, "", "x", TRACE[:-1], TRACE.replace("0af765", "ZZZZZZ"), ZEROS])
def test_only_a_valid_trace_is_continued(text: str) -> None:
    context = request_headers.read_trace_context({"traceparent": text})

    assert (context and context.trace_id) == (TRACE.split("-")[1] if text is TRACE else None)
