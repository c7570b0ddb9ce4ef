"""Models as Anthropic's API tells of them: a page of all, or one alone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from proxy.errors import InvalidField
from proxy.types import Call, Json, RequestHead

MOST = 1000  # models of a page


def check_page(head: RequestHead) -> None:
    """Raise ``InvalidField`` for a page of no size, or of more than there may be on one."""
    limit = head.parameter("limit")
    if limit is not None and not (limit.isascii() and limit.isdigit() and _number(limit) > 0):
        raise InvalidField("limit", f"must be an integer between 1 and {MOST}")


def _number(limit: str | None) -> int:
    """Return how many models a page may have: all that any may have, where nobody says."""
    number = MOST if limit is None else int(limit[:5])
    return number if number <= MOST else 0


def whole(call: Call, parts: Mapping[int, Json]) -> Json:
    """Return a document that no model has answered, in Anthropic's form."""
    return models_answer(call.head, parts[0]) if call.head.endpoint == "models" else parts[0]


def models_answer(head: RequestHead, data: Json) -> Json:
    """Return a list or a model of OpenAI's form as Anthropic's. A page begins behind ``after_id``,
    or ends before ``before_id``. For an unknown id, for example of a model that a reload has
    removed, it has the models whose ids sort behind or before it."""
    if data.get("object") != "list":
        return _model_info(data)
    models, most = data["data"], _number(head.parameter("limit"))
    after, before = head.parameter("after_id"), head.parameter("before_id")
    positions = {each["id"]: position for position, each in enumerate(models)}
    if after in positions:
        models = models[positions[after] + 1 :]
    elif after is not None:
        models = [each for each in models if each["id"] > after]
    elif before in positions:
        models = models[: positions[before]]
    elif before is not None:
        models = [each for each in models if each["id"] < before]
    page = models[-most:] if after is None and before is not None else models[:most]
    return {
        "data": [_model_info(each) for each in page],
        "has_more": len(page) < len(models),
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
    }


def _model_info(model: Json) -> Json:
    created = datetime.fromtimestamp(model["created"], UTC)
    return {
        "type": "model",
        "id": model["id"],
        "display_name": model["id"],
        "created_at": f"{created:%Y-%m-%dT%H:%M:%SZ}",
        "lifecycle": "active",
    }
