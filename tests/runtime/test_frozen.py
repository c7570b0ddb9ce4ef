from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from typing import Any

import pytest

from proxy.runtime.frozen import frozen, memo


@frozen
class Point:
    x: int
    marks: tuple[str, ...] = field(default=())
    squares: dict[int, int] = memo(dict)


def test_a_value_is_equal_to_its_like_and_has_room_for_its_fields_alone() -> None:
    point = Point(1, ("a",))

    assert point == Point(1, marks=("a",)) != replace(point, x=2)
    assert len({point, Point(1, ("a",))}) == 1
    assert not hasattr(point, "__dict__")


def test_the_type_checker_lets_nobody_set_a_field() -> None:
    point = Point(1)

    point.x = 2  # type: ignore[misc]  # mypy fails here if it has nothing to ignore


def test_what_is_kept_with_a_value_is_no_part_of_it() -> None:
    point = Point(2)
    point.squares[2] = 4

    assert point == Point(2)
    assert hash(point) == hash(Point(2))
    assert repr(point) == repr(Point(2))
    assert replace(point).squares == {}


@frozen
class Path:
    points: list[Point]
    name: str = field(compare=False)
    secret: str = field(default="x", repr=False)


@frozen
class NamedPoint:
    name: str

    def __eq__(self, other_value: object) -> bool:
        return isinstance(other_value, NamedPoint) and other_value.name.lower() == self.name.lower()

    def __hash__(self) -> int:
        return hash(self.name.lower())

    def __repr__(self) -> str:
        return f"<{self.name}>"


@frozen
class Nothing:
    pass


def test_what_is_left_out_of_comparing_or_showing_is_left_out() -> None:
    path = Path([Point(1)], "a")

    assert path == Path([Point(1)], "b") != Path([Point(1)], "a", secret="y")
    assert path.__eq__(Point(1)) is NotImplemented
    assert repr(path) == "Path(points=[Point(x=1, marks=())], name='a')"


def test_a_value_that_holds_itself_can_be_shown() -> None:
    path = Path([], "a")
    path.points.append(path)  # type: ignore[arg-type]

    assert repr(path) == "Path(points=[...], name='a')"


def test_what_a_class_says_itself_is_kept() -> None:
    assert NamedPoint("A") == NamedPoint("a")
    assert (len({NamedPoint("A"), NamedPoint("a")}), repr(NamedPoint("A"))) == (1, "<A>")


def test_values_of_one_field_or_none_are_compared_and_keyed() -> None:
    assert Nothing() == Nothing()
    assert len({Nothing(), Nothing()}) == 1
    assert hash(Point(1)) == hash(Point(1))


def _twins() -> list[type]:
    """Return a class of plain fields as it is made here, and as a dataclass."""

    class Place:
        town: str
        at: Point
        zoom: int = 3
        note: str | None = None

    return [frozen(Place), dataclass(Place)]


def _error(make: Callable[[], object]) -> str:
    with pytest.raises(TypeError) as raised:
        make()
    return str(raised.value)


def test_values_of_plain_fields_are_made_as_a_dataclass_makes_them() -> None:
    local_value, context = _twins()
    values = ("Rome", Point(1))

    def instances_of(cls: Any) -> list[tuple[object, ...]]:
        every = (cls(*values), cls(*values, 5), cls(*values, note="n"), cls(at=1, town="x", zoom=2))
        return [(item.town, item.at, item.zoom, item.note) for item in every]

    assert instances_of(local_value) == instances_of(context)
    assert list(signature(local_value).parameters) == list(signature(context).parameters)
    assert [_error(partial(local_value, *item)) for item in ((), "abcde")] == [
        _error(partial(context, *item)) for item in ((), "abcde")
    ]
    assert _error(partial(local_value, "a", x=1)) == _error(partial(context, "a", x=1))


def test_a_field_without_a_default_follows_none_that_has_one() -> None:
    class Wrong:
        first: int = 1
        second: int

    with pytest.raises(TypeError, match="default"):
        frozen(Wrong)


@frozen
class Wide(Point):
    width: int = 1


@frozen
class Counted:
    count: int

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError("less than none")


def test_what_has_more_to_do_than_to_set_its_fields_does_it() -> None:
    with pytest.raises(ValueError, match="less than none"):
        Counted(-1)
    assert Wide(1, ("a",), 3).squares == {}
    assert (Wide(1).marks, Wide(1).width) == ((), 1)
