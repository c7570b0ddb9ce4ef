"""Multipart forms on passthrough paths: forwarded or refused at any cut of their bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.dialects.passthrough.form import MAX_PARTS, FormChecker, FormUpload, can_be_form
from proxy.errors import InvalidField
from proxy.types import Target, Upstream
from tests.for_each import for_each

OPENAI = Upstream(name="openai", dialect="openai", base_url="https://api.openai.com/v1")
TARGET = Target(OPENAI, "gpt-4o-transcribe")
TYPE = "multipart/form-data; boundary=x1"


def part(name: str, value: str = "v", extra: str = "") -> str:
    return f'--x1\r\nContent-Disposition: form-data; name="{name}"{extra}\r\n\r\n{value}\r\n'


MODEL = part("model", "gpt-4o-transcribe")
SOUND = part("file", "RI\r\nFF --x \r\n--", '; filename="a b.wav"\r\nContent-Type: audio/wav')
END = "--x1--\r\n"
GOOD = [
    MODEL + SOUND + END,
    SOUND + MODEL + END,
    SOUND + END.strip(),
    MODEL.replace('"model"', "model") + SOUND.replace('"a b.wav"', "a.wav") + END,
    part("timestamp_granularities[]", "word") + part("language") + END,
    part("file", "", "; filename=\"a\"; filename*=UTF-8''a") + END,
    part("purpose", "batch") + "--x1--",
    part("file", '{"custom_id": "a", "body": {"model": "gpt-4o"}}', '; filename="a.jsonl"') + END,
    part("files[]", '{"headers": "' + "a" * 20_000 + '"}', '; filename="a.json"') + END,
    part("session", '{"type": "realtime"}', '; filename="blob"') + END,
    part("service_tier", "flex") + part("extra_body[model]", "gpt-4o-transcribe") + END,
    part("prompt", "[Scene 1] {a cat}") + part("prompt", "a" * 40_000) + END,
    SOUND.replace("audio/wav", "text/csv; charset=utf-16") + END,
    part("language", "en", "\r\nContent-Type: text/plain; charset=UTF-8") + END,
    part("tools", '\ufeff [{"type": "function", "n": %s}]' % ("1" * 5000)) + END,
    part("metadata[server_url]", "a") + part("tools", '[{"type": "function"}]') + END,
    END,
]
BAD = {
    "another model": part("model", "gpt-4o") + END,
    "a model with a blank": part("model", "gpt-4o-transcribe ") + END,
    "no model": part("model", "") + END,
    "two models": MODEL + part("model", "gpt-4o") + END,
    "a list of models": part("model[]", "gpt-4o") + END,
    "a model in capitals": part("MODEL", "gpt-4o") + END,
    "a model in camel case": part("Mo-Del", "gpt-4o") + END,
    "a long model": part("model", "a" * 3000) + END,
    "too many parts": part("a", "") * (MAX_PARTS + 1) + END,
    "a field of the policy": MODEL + part("api_base", "http://x") + END,
    "the same, spelled otherwise": MODEL + part("apiBase", "http://x") + END,
    **{
        name: MODEL + part(name, value) + END
        for name, value in {
            "tools": '[{"type": "mcp", "server_url": "https://evil.example"}]',
            "Tools": ' \n[{"function": {}}, {"SERVER_URL": "https://evil.example"}]',
            "tools ": '[{"server_url": "https://evil.example", "server_url": null}]',
            "tools[0][server_url]": "https://evil.example",
            "tools.0.server_url": "https://evil.example",
            "tools[]": '{"server_url": "https://evil.example"}',
            "extra_body": '{"api_base": "https://evil.example"}',
            "extra_body[model]": "gpt-4o",
            "session": '{"model": "gpt-4o"}',
            "container": "cntr_1",
            "file_ids[]": "file-1",
            "service_tier": "priority",
            "nested": "[" * 10_000,
            "after space": " \r\n" * 6_000 + '[{"server_url": "https://evil.example"}]',
            "after a mark": "\ufeff" * 6_000 + '{"api_base": "https://evil.example"}',
            "long": '{"a": "' + "a" * 20_000 + '"}',
        }.items()
    },
    "JSON in a file": part("tools", '[{"server_url": "https://evil.example"}]', '; filename="blob"')
    + END,
    "long JSON in a file": part("session", '{"a": "' + "a" * 20_000 + '"}', '; filename="a"') + END,
    "a model in a file": part("session", '{"model": "gpt-4o"}', '; filename="a"') + END,
    "a file for a field of the policy": part("api_base", "a", '; filename="a"') + END,
    "a file for a field with usual values": part("service_tier", "auto", '; filename="a"') + END,
    "nothing": "",
    "no end": MODEL + SOUND,
    "a part without an end": '--x1\r\nContent-Disposition: form-data; name="model"\r\n\r\ngpt-4o',
    "something before it": "before\r\n" + MODEL + END,
    "a blank line before it": "\r\n" + MODEL + END,
    "something after it": SOUND + END + "after it",
    "a line after it": SOUND + END + "\r\n",
    "an end that goes on": SOUND + "--x1--x\r\n" + part("model", "gpt-4o") + END,
    "an end with a blank": SOUND + "--x1-- \r\n" + part("model", "gpt-4o") + END,
    "an end, and no line end": SOUND + "--x1--\n" + part("model", "gpt-4o") + END,
    "line ends of another kind": SOUND.replace("\r\n", "\n") + END,
    "a delimiter that only some see": part("file", f"a\n{part('model', 'gpt-4o')}") + END,
    "a delimiter that goes on": MODEL.replace("--x1", "--x12") + END,
    "a part without a name": "--x1\r\n\r\nv\r\n" + END,
    "a name without quotes": part("model", "gpt-4o").replace('"model"', "model") + END,
    "a name in part in quotes": MODEL.replace('"model"', 'mod"el"') + END,
    "an escaped name": part("mod\\el") + END,
    "two dispositions": MODEL.replace("\r\n\r\n", '\r\nContent-Disposition: a; name="b"\r\n\r\n'),
    "a folded line": MODEL.replace("; name", ";\r\n name") + END,
    "base64": MODEL.replace("\r\n\r\n", "\r\nContent-Transfer-Encoding: base64\r\n\r\n") + END,
    **{
        f"{kind} of JSON": part("a", "v", f"\r\n{header}") + END
        for kind, header in {
            "another encoding": "Content-Encoding: gzip",
            "another charset": "Content-Type: application/json; charset=cp037",
            "a charset in quotes": 'Content-Type: application/json; CharSet = "utf-16"',
        }.items()
    },
    "a charset of JSON in a file": part(
        "session", "v", '; filename="a"\r\nContent-Type: application/json; charset=cp037'
    )
    + END,
    "a charset for all fields": part("_charset_", "utf-16") + MODEL + END,
    "a form within it": part("a", "--y\r\n", "\r\nContent-Type: Multipart/mixed; boundary=y") + END,
    "a head without end": "--x1\r\nX: " + "a" * 9000,
}


UNREADABLE_BY_SOME = {
    "plain": b"%s",
    "an integer of 4,400 digits": b'{"n": ' + b"1" * 4400 + b', "a": %s}',
    "a byte that is not UTF-8": b'{"n": "\xff", "a": %s}',
    "a name that is not UTF-8": b'{"\xff": 1, "a": %s}',
    "a trailing comma": b'{"a": %s,}',
    "a control character in a string": b'{"n": "a\tb\x01", "a": %s}',
    "a comment": b'{"a": /* b */ %s}',
    "a name without quotes": b"{a: %s}",
    "single quotes": b"{'a': %s}",
    "a lone surrogate": b'{"n": "\\ud800", "a": %s}',
    "a constant": b'{"n": NaN, "a": %s}',
    "a second document": b'{"n": 1} {"a": %s}',
    "NUL at the end": b"%s\0",
    "NUL and white space before": b"\0 \xc2\xa0\x0c%s",
    "a byte order mark": b"\xef\xbb\xbf%s",
    "half a byte order mark": b"\xbb\xbf%s",
}
"""Objects that Python's JSON parser refuses or reads otherwise, and another parser reads."""
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be")


@for_each("field", ["session", "tools", "session[tools]", "extra_body"])
@for_each("chosen", [b'{"model": "gpt-4o"}', b'[{"server_url": "x"}]', b'{"file_id": "f"}'])
@for_each("form", UNREADABLE_BY_SOME.values(), ids=UNREADABLE_BY_SOME)
def test_ambiguous_json_in_a_field_is_ignored(form: bytes, chosen: bytes, field: str) -> None:
    encodings = ENCODINGS if form == b"%s" else ("utf-8",)
    for encoding in encodings:
        value = form % chosen.decode().encode(encoding)
        head, _, end = part(field, "\0").encode().partition(b"\0")
        with pytest.raises(InvalidField) as refused:
            FormChecker(b"x1", TARGET).feed(head + value + end + END.encode())
        assert str(refused.value.param).startswith(field.partition("[")[0])


class Pieces:
    """An upload in pieces of one size."""

    length: int | None = None
    has_begun = False

    def __init__(self, text: str, size: int) -> None:
        data = text.encode()
        self._left = [data[index : index + size] for index in range(0, len(data), size)]

    async def read_chunk(self) -> bytes:
        self.has_begun = True
        return self._left.pop(0) if self._left else b""


async def forwarded_body(text: str, size: int, target: Target = TARGET) -> bytes:
    upload, response = FormUpload(Pieces(text, size), TYPE, target), b""
    assert (upload.length, upload.has_begun) == (None, False)
    while piece := await upload.read_chunk():
        response += piece
    assert upload.has_begun
    return response


@for_each("size", [1, 2, 3, 7, 64, 10_000])
@for_each("text", GOOD)
async def test_valid_form_is_forwarded_unchanged(text: str, size: int) -> None:
    assert await forwarded_body(text, size) == text.encode()


@for_each("size", [1, 2, 3, 7, 64, 10_000])
@for_each("text", BAD.values(), ids=BAD)
async def test_malformed_or_forbidden_form_is_never_completed(text: str, size: int) -> None:
    upload, response = FormUpload(Pieces(text, size), TYPE, TARGET), b""
    with pytest.raises(InvalidField):
        while piece := await upload.read_chunk():
            response += piece
    assert len(response) < max(1, len(text.encode()))


async def test_accepted_fields_pass() -> None:
    accepting = replace(OPENAI, accepts=frozenset({"provider"}))
    text = part("provider") + END

    assert await forwarded_body(text, 5, Target(accepting, "m"))
    with pytest.raises(InvalidField):
        await forwarded_body(text, 5)


def test_parser_buffer_is_bounded() -> None:
    parts = FormChecker(b"x1", TARGET)
    parts.feed(part("file", "").removesuffix("\r\n").encode())
    for _ in range(100):
        parts.feed(b"a" * 100_000)
        assert len(parts._buffer) < 100


@for_each(
    "media_type",
    [
        *("multipart/form-data", f"{TYPE}; boundary=x2", f"{TYPE}; charset=x", f"{TYPE}\xa0"),
        *("multipart/mixed; boundary=x1", "application/x-www-form-urlencoded"),
    ],
)
def test_content_type_has_one_boundary(media_type: str) -> None:
    assert can_be_form(media_type)
    with pytest.raises(InvalidField):
        FormUpload(Pieces("", 1), media_type, TARGET)
    assert not can_be_form("application/octet-stream")
