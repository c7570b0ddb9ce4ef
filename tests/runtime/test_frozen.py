from dataclasses import field, replace

from proxy.runtime.frozen import empty_cache_field, frozen


@frozen
class Point:
    x: int
    marks: tuple[str, ...] = field(default=())
    squares: dict[int, int] = empty_cache_field(dict)


@frozen
class NamedPoint:
    name: str

    def __eq__(self, other_value: object) -> bool:
        return isinstance(other_value, NamedPoint) and other_value.name.lower() == self.name.lower()

    def __hash__(self) -> int:
        return hash(self.name.lower())

    def __repr__(self) -> str:
        return f"<{self.name}>"


def test_values_are_compared_by_fields_and_have_slots() -> None:
    point = Point(1, ("a",))

    assert point == Point(1, marks=("a",)) != replace(point, x=2)
    assert len({point, Point(1, ("a",))}) == 1
    assert not hasattr(point, "__dict__")


def test_type_checker_refuses_to_set_a_field() -> None:
    point = Point(1)

    point.x = 2  # type: ignore[misc]  # mypy fails here if it has nothing to ignore


def test_cache_of_a_value_is_not_compared() -> None:
    point = Point(2)
    point.squares[2] = 4

    assert point == Point(2)
    assert hash(point) == hash(Point(2))
    assert repr(point) == repr(Point(2))
    assert replace(point).squares == {}


def test_own_methods_of_a_class_are_kept() -> None:
    assert NamedPoint("A") == NamedPoint("a")
    assert (len({NamedPoint("A"), NamedPoint("a")}), repr(NamedPoint("A"))) == (1, "<A>")
