"""Members of a document with images, audio and files, which no guard can read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from proxy.types import Json

OPAQUE = frozenset(
    {"audio", "document", "file", "file_data", "file_id", "file_url", "image", "image_url",
     "images", "input_audio", "input_file", "input_image", "video", "video_url"}
)  # fmt: skip
PAYLOAD = frozenset({"b64_json", "bytes", "data", "file_data"})
FOR_DATA = OPAQUE | PAYLOAD | {"url"}

_MEDIA_TYPE = frozenset({"media_type", "mediaType", "mimeType", "mime_type"})
_TEXT_MEDIA = re.compile(
    r"\s*(?:text/|[a-z]+/(?:[\w.-]+\+)?(?:x-)?"
    r"(?:csv|javascript|json|jsonl|markdown|ndjson|rtf|sh|sql|toml|xml|yaml)\b)",
    re.IGNORECASE,
)
_OTHER_MEDIA = re.compile(
    r"\s*(?:(?:audio|font|image|video)/|application/(?:gzip|msword|pdf|vnd\.|zip))", re.IGNORECASE
)
_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?([a-z0-9_-]{1,32})", re.IGNORECASE)
_TEXT_TYPES = frozenset({"input_text", "output_text", "plain_text", "text"})
_TEXT_FORMATS = frozenset({"csv", "html", "json", "markdown", "md", "plain", "text", "txt", "xml"})
_NEVER_TEXT = frozenset(
    {"audio", "image", "image_url", "images", "input_audio", "input_image", "video", "video_url"}
)
_SOURCE = "source"  # member with the content of a part

TextClaim = str | bool | None
"""Declared type of data: True or a charset for a text, False for no text, None if undeclared."""


def kind_of(name: str) -> str:
    """Return the kind under which the content of a member is reported."""
    return name if name in OPAQUE else "file"


def is_opaque(name: str, value: Any, item: Json) -> bool:
    """Return True if a member of an item is no text, by its name, by the item's type, or because
    it is data."""
    if name in OPAQUE or is_data(value):
        return True
    kind = item.get("type")
    return name == _SOURCE and isinstance(kind, str) and kind in OPAQUE


def is_data(value: Any) -> bool:
    """Return True if a value is data with a media type."""
    names = value.keys() if isinstance(value, dict) else ()
    return not _MEDIA_TYPE.isdisjoint(names) and not PAYLOAD.isdisjoint(names)


def is_for_data(path: Sequence[object]) -> bool:
    """Return True if the innermost name of a path is a member for data."""
    return next((step for step in reversed(path) if isinstance(step, str)), "") in FOR_DATA


def says_text(item: Json, around: TextClaim) -> TextClaim:
    """Return the declared type of the data in an item, by its type, format or media type; else what
    is declared ``around`` it. A text around it wins."""
    media = [media_type for name in _MEDIA_TYPE if isinstance(media_type := item.get(name), str)]
    texts = [each for each in media if _TEXT_MEDIA.match(each)] if media else media
    for text in texts:
        if named := _CHARSET.search(text):
            return named[1].lower()
    if around or texts or _is_one_of(_TEXT_TYPES, item.get("type")):
        return around or True
    if _is_one_of(_TEXT_FORMATS, item.get("format")):
        return True
    return False if any(map(_OTHER_MEDIA.match, media)) else around


def may_be_text(names: Iterable[object]) -> bool:
    """Return True unless one of the names above data belongs to an image or audio."""
    return _NEVER_TEXT.isdisjoint(names)


def _is_one_of(words: frozenset[str], value: Any) -> bool:
    return isinstance(value, str) and value.lower() in words
