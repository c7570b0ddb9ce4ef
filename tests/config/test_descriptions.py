"""Descriptions of policy keys, from the strings below them."""

from typing import Any

from pydantic import Field, create_model

from proxy.config.scalars import Section, descriptions_of


class Heater(Section):
    """A heater."""

    watts: int
    """Power;
    never negative."""
    silent: bool = False
    name: str = Field("", description="Name.")
    """Ignored."""


class Stove(Heater):
    """A stove."""

    watts: int = 3
    plates: int = 4
    """Number of plates."""


def test_string_below_a_key_is_its_description() -> None:
    assert descriptions_of(Heater) == {
        "watts": "Power;\nnever negative.",
        "name": "Name.",
    }


def test_descriptions_of_bases_are_inherited() -> None:
    assert descriptions_of(Stove) == {"name": "Name.", "plates": "Number of plates."}


def test_created_model_inherits_descriptions() -> None:
    fields: Any = {"fuel": (str, Field(description="Fuel."))}
    result = create_model("Burner", __base__=Stove, **fields)

    assert descriptions_of(result) == {**descriptions_of(Stove), "fuel": "Fuel."}
    schema = result.model_json_schema()["properties"]
    assert schema["plates"]["description"] == "Number of plates."
    assert "description" not in schema["silent"]


def test_nested_class_is_described() -> None:
    class Lamp(Section):
        """A lamp."""

        class Bulb(Section):
            """A bulb."""

            lumens: int
            """Brightness."""

        watts: int
        """Power."""

    assert descriptions_of(Lamp) == {"watts": "Power."}
    assert descriptions_of(Lamp.Bulb) == {"lumens": "Brightness."}
