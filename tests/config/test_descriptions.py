from typing import Any

from pydantic import Field, create_model

from proxy.config.scalars import Section, descriptions_of


class Heater(Section):
    """What heats."""

    watts: int
    """How much it takes;
    never negative."""
    silent: bool = False
    name: str = Field("", description="What it is called.")
    """Not what stands here."""


class Stove(Heater):
    """What cooks."""

    watts: int = 3
    plates: int = 4
    """How many it has."""


def test_what_stands_below_a_key_is_its_description_and_what_its_field_says_wins() -> None:
    assert descriptions_of(Heater) == {
        "watts": "How much it takes;\nnever negative.",
        "name": "What it is called.",
    }


def test_bases_describe_their_keys_unless_a_key_is_said_again() -> None:
    assert descriptions_of(Stove) == {"name": "What it is called.", "plates": "How many it has."}


def test_a_model_that_is_made_of_others_has_their_descriptions() -> None:
    fields: Any = {"fuel": (str, Field(description="What it burns."))}
    result = create_model("Burner", __base__=Stove, **fields)

    assert descriptions_of(result) == {**descriptions_of(Stove), "fuel": "What it burns."}
    schema = result.model_json_schema()["properties"]
    assert schema["plates"]["description"] == "How many it has."
    assert "description" not in schema["silent"]


def test_a_class_within_another_or_a_function_is_described_too() -> None:
    class Lamp(Section):
        """What shines."""

        class Bulb(Section):
            """What glows."""

            lumens: int
            """How bright it is."""

        watts: int
        """How much it draws."""

    assert descriptions_of(Lamp) == {"watts": "How much it draws."}
    assert descriptions_of(Lamp.Bulb) == {"lumens": "How bright it is."}
