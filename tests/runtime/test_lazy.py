import pytest

from proxy.runtime.lazy import LazyTable

TABLE: LazyTable[object] = LazyTable(
    {"sep": "os.path:sep", "gone": "proxy.is_no_module:x", "nameless": "os.path:is_no_name"}
)


def test_a_table_gives_what_stands_at_the_place_of_a_word() -> None:
    assert TABLE["sep"] == "/"
    assert TABLE.get("other") is None


def test_a_table_knows_its_words_without_importing_what_they_stand_for() -> None:
    assert list(TABLE) == ["sep", "gone", "nameless"]
    assert len(TABLE) == 3
    assert "gone" in TABLE
    assert "other" not in TABLE


def test_what_stands_beside_a_table_is_imported_with_any_of_its_words() -> None:
    table: LazyTable[object] = LazyTable({"sep": "os.path:sep"}, companion="proxy.is_no_module")

    assert "sep" in table
    with pytest.raises(ImportError, match="is_no_module"):
        table["sep"]


def test_a_place_that_is_not_there_is_told_when_it_is_asked_for() -> None:
    with pytest.raises(ImportError, match="is_no_module"):
        TABLE["gone"]
    with pytest.raises(AttributeError, match="is_no_name"):
        TABLE["nameless"]
