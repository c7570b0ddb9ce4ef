"""Results of SDK calls and exceptions as plain data."""

from __future__ import annotations

from typing import Any

Step = dict[str, Any]


def plain(value: Any) -> Any:
    """Return an SDK object as plain data."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return value


def text_of(data: Any) -> str:
    """Join the texts of all choices of a response or chunk, legacy or chat."""
    fields = ""
    for choice in (data or {}).get("choices") or ():
        part = choice.get("message") or choice.get("delta") or choice
        fields += part.get("content") or part.get("text") or ""
    return fields


def whole_answer(answer: Any) -> Step:
    data = plain(answer)
    return {"ok": True, "text": text_of(data), "data": data}


def streamed(chunks: list[Any]) -> Step:
    all_data = [plain(chunk) for chunk in chunks]
    usages = [data.get("usage") for data in all_data if data.get("usage")]
    text = "".join(map(text_of, all_data))
    return {"ok": True, "text": text, "usage": usages[-1] if usages else None, "data": all_data}


def document_of(response: Any) -> Any:
    """Return the JSON body of a response. An SDK's ``body`` is only the ``error`` object."""
    try:
        return response.json()
    except Exception:
        return None


def failed(error: BaseException) -> Step:
    response = getattr(error, "response", None)
    return {
        "ok": False,
        "exception": type(error).__name__,
        "mro": [kind.__name__ for kind in type(error).__mro__],
        "status": getattr(error, "status_code", getattr(response, "status_code", None)),
        "message": str(error)[:2000],
        "code": getattr(error, "code", None),
        "param": getattr(error, "param", None),
        "body": getattr(error, "body", None),
        "document": document_of(response),
        "request_id": getattr(error, "request_id", None),
    }
