"""Responses that repeat their request, for a call whose request differs in parts.

The cache key ignores who sends a request, but a response of the Responses API repeats it.
"""

from __future__ import annotations

from proxy.cache.key import CALLER
from proxy.dialects.responses.schema import ECHOED
from proxy.types import Call, Json
from proxy.types.events import Frame

ECHOING = frozenset({"responses"})
"""Endpoints whose answers repeat the request."""
_NAMES = sorted(CALLER & ECHOED.keys())


def for_call(frame: Frame, call: Call) -> Frame:
    """Return a frame that repeats the request of ``call``."""
    doc = frame.doc
    if frame.family != "responses" or doc is None:
        return frame
    if isinstance(doc.get("response"), dict):
        doc = {**doc, "response": doc["response"] | _repeated(call)}
    elif doc.get("object") == "response":
        doc = doc | _repeated(call)
    else:
        return frame
    return frame._replace(doc=doc, raw=None)


def _repeated(call: Call) -> Json:
    return {name: call.body.get(name, ECHOED[name]) for name in _NAMES}
