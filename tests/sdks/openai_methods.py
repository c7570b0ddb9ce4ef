"""Calls methods of OpenAI's client by their name, such as ``files.create``.

``with`` has the arguments of a step. A ``file`` is a text.
"""

from __future__ import annotations

import hashlib
from operator import attrgetter
from typing import Any

Step = dict[str, Any]


def call_client(client: Any, step: Step) -> Step:
    """Call a method and return its result. Bytes are replaced by their number and digest."""
    fields = dict(step["with"])
    if "file" in fields:
        fields["file"] = ("heard.wav", fields["file"].encode(), "audio/wav")
    answer = attrgetter(step["method"])(client)(*step.get("of", ()), **fields)
    kind = type(answer).__name__
    if hasattr(answer, "iter_bytes"):
        data = answer.read()
        digest = hashlib.sha256(data).hexdigest()
        return {"ok": True, "kind": kind, "data": len(data), "text": digest}
    if isinstance(answer, str):
        return {"ok": True, "kind": kind, "data": answer, "text": ""}
    if step["do"] == "call-stream":
        events = [item.model_dump(mode="json") for item in answer]
        return {"ok": True, "kind": kind, "data": events, "text": ""}
    return {"ok": True, "kind": kind, "data": answer.model_dump(mode="json"), "text": ""}
