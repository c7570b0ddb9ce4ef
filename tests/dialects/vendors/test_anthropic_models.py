"""Pages of models as Anthropic's API has them: none is left out, and none comes twice."""

from __future__ import annotations

import pytest

from proxy.dialects.vendors.anthropic import check_page, convert_models
from proxy.errors import InvalidField
from proxy.types import Json, RequestHead
from tests.for_each import for_each

NAMES = list("fgabcde")  # deployments come before models
LIST: Json = {"object": "list", "data": [{"id": name, "created": 0} for name in NAMES]}


def models_head(**parameters: object) -> RequestHead:
    pairs = tuple((name, str(value)) for name, value in parameters.items())
    return RequestHead("anthropic", "models", "/v1/models", "req_1", parameters=pairs)


@for_each("limit", range(1, 9))
@for_each(("cursor", "end"), [("after_id", "last_id"), ("before_id", "first_id")])
def test_pages_have_each_model_once(limit: int, cursor: str, end: str) -> None:
    observed: list[str] = []
    options: dict[str, object] = {} if cursor == "after_id" else {"before_id": "z"}
    while True:
        page = convert_models(models_head(limit=limit, **options), LIST)
        names = [model["id"] for model in page["data"]]
        observed = [*observed, *names] if cursor == "after_id" else [*names, *observed]
        if not page["has_more"]:
            break
        options = {cursor: page[end]}

    assert observed == NAMES


def test_behind_the_last_there_is_an_empty_page() -> None:
    assert convert_models(models_head(after_id="z"), LIST) == {
        "data": [],
        "has_more": False,
        "first_id": None,
        "last_id": None,
    }


def test_page_behind_an_unknown_model_has_the_later_names() -> None:
    page = convert_models(models_head(after_id="bb"), LIST)

    assert [model["id"] for model in page["data"]] == ["f", "g", "c", "d", "e"]


def test_model_says_when_it_was_created() -> None:
    model = convert_models(models_head(), {"id": "a/b", "object": "model", "created": 86_400})

    assert model == {
        "type": "model",
        "id": "a/b",
        "display_name": "a/b",
        "created_at": "1970-01-02T00:00:00Z",
        "lifecycle": "active",
    }


@pytest.mark.parametrize("limit", ["1", "1000", "00020"])
def test_a_page_of_a_size_passes(limit: str) -> None:
    check_page(models_head(limit=limit))


@for_each("limit", ["", "0", "1001", "-1", "many", "\N{ARABIC-INDIC DIGIT THREE}"])
def test_a_page_of_no_size_is_refused(limit: str) -> None:
    with pytest.raises(InvalidField) as refused:
        check_page(models_head(limit=limit))

    assert refused.value.param == "limit"
