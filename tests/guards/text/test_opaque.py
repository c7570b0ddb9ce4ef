"""Pictures, sounds and files are known by their names, by the type of their part, or as data."""

from __future__ import annotations

from typing import Any

from proxy.guards.text.opaque import is_data, is_opaque, kind_of
from proxy.types import Json
from tests.for_each import for_each

PICTURE = {"media_type": "image/png", "data": "AA"}


@for_each(
    ("name", "value", "item"),
    [
        ("image_url", "https://example.com/a.png", {}),
        ("source", PICTURE, {}),
        ("inline_data", {"mime_type": "image/png", "data": "AA"}, {}),
        ("inlineData", {"mimeType": "image/png", "data": "AA"}, {}),
        ("x", {"mediaType": "audio/wav", "bytes": [1]}, {}),
        ("source", {"type": "url", "url": "https://example.com/a.png"}, {"type": "image"}),
        ("source", {"type": "url", "url": "https://example.com/a.pdf"}, {"type": "document"}),
    ],
)
def test_content_that_is_no_text_is_opaque(name: str, value: Any, item: Json) -> None:
    assert is_opaque(name, value, item)


@for_each(
    ("name", "value", "item"),
    [
        ("source", {"title": "an article"}, {"type": "text"}),
        ("source", "where it is from", {"type": ["image"]}),
        ("data", "AAAA", {"type": "image"}),
        ("x", {"media_type": "text/plain", "text": "all is well"}, {}),
        ("x", "media_type", {}),
    ],
)
def test_all_else_is_text(name: str, value: Any, item: Json) -> None:
    assert not is_opaque(name, value, item)


def test_a_media_type_without_data_makes_no_data() -> None:
    assert is_data(PICTURE)
    assert not is_data({"media_type": "image/png"})
    assert not is_data({"data": "AA"})
    assert not is_data(["media_type", "data"])


def test_what_has_a_name_of_its_own_is_reported_under_it() -> None:
    assert kind_of("image_url") == "image_url"
    assert kind_of("source") == "file"
