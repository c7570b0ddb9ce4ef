"""What no guard of texts can read: which members of a document hold pictures, sounds and files, by
what they are called or by what stands in them."""

from __future__ import annotations

from typing import Any

from proxy.types import Json

OPAQUE = frozenset(
    {"audio", "document", "file", "file_data", "file_id", "image", "image_url", "images",
     "input_audio", "input_file", "input_image", "video", "video_url"}
)  # fmt: skip
PAYLOAD = frozenset({"b64_json", "bytes", "data", "file_data"})
FOR_DATA = OPAQUE | PAYLOAD | {"url"}

_MEDIA_TYPE = frozenset({"media_type", "mediaType", "mimeType", "mime_type"})
_SOURCE = "source"  # where a part of the type that is called so has its content


def kind_of(name: str) -> str:
    """Return what the content under a name is reported as."""
    return name if name in OPAQUE else "file"


def is_opaque(name: str, value: Any, item: Json) -> bool:
    """True if the member of an item is content that is no text: by its own name, by the item's
    type, or as it is data."""
    if name in OPAQUE:
        return True
    return is_data(value) or (name == _SOURCE and _is_named_opaque(item.get("type")))


def is_data(value: Any) -> bool:
    """True if a value is data that says of which media type it is."""
    own = value.keys() if isinstance(value, dict) else ()
    return not _MEDIA_TYPE.isdisjoint(own) and not PAYLOAD.isdisjoint(own)


def _is_named_opaque(kind: Any) -> bool:
    return isinstance(kind, str) and kind in OPAQUE
