"""Vectors in memory: what is near, what goes first, and what all of it takes."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field

import pytest

from proxy.cache.fingerprint import fingerprint
from proxy.cache.vector_index import ROWS, IndexEntry, VectorIndex
from proxy.ports import Vector
from tests.cache.stores import Clock

GIST = fingerprint("Where is my parcel?", b"")


def at(degrees: float) -> Vector:
    """Give a vector of length 1 at an angle."""
    angle = math.radians(degrees)
    return array("f", (math.cos(angle), math.sin(angle))).tobytes()


@dataclass
class World:
    room: int = 10_000_000
    clock: Clock = field(default_factory=Clock)
    told: tuple[int, int] = (0, 0)
    nearest: VectorIndex = field(init=False)

    def __post_init__(self) -> None:
        self.nearest = VectorIndex(self.room, self.clock, self.held)

    def held(self, entries: int, size: int) -> None:
        self.told = (entries, size)

    def put(self, key: str, degrees: float, space: str = "a", ttl: float = 60) -> None:
        entry = IndexEntry(key.encode(), GIST, self.clock.now + ttl)
        self.nearest.put(space, entry, at(degrees))

    def near(self, degrees: float, space: str = "a", least: float = 0.9) -> list[str]:
        found = self.nearest.near(space, at(degrees), least)
        return [entry.key.decode() for _, entry in found]


def test_the_nearest_comes_first_and_the_far_not_at_all() -> None:
    world = World()
    for key, degrees in (("far", 90), ("near", 10), ("same", 0), ("next", 20)):
        world.put(key, degrees)

    assert world.near(0) == ["same", "near", "next"]
    [(score, _), *_] = world.nearest.near("a", at(0), 0.9)
    assert score == pytest.approx(1)


def test_spaces_do_not_see_each_other() -> None:
    world = World()
    world.put("mine", 0, space="a")

    assert world.near(0, space="b") == []


def test_vectors_of_another_length_are_of_another_space() -> None:
    world = World()
    world.put("two", 0)
    longer = array("f", (1, 0, 0)).tobytes()
    world.nearest.put("a", IndexEntry(b"three", GIST, world.clock.now + 60), longer)

    assert world.near(0) == ["two"]
    assert [entry.key for _, entry in world.nearest.near("a", longer, 0.9)] == [b"three"]


def test_what_has_expired_is_not_found() -> None:
    world = World()
    world.put("old", 0, ttl=1)
    world.clock.now += 1

    assert world.near(0) == []


def test_a_key_is_there_once() -> None:
    world = World()
    world.put("same", 0)
    world.put("same", 90)

    assert world.near(0) == []
    assert world.near(90) == ["same"]
    assert world.told[0] == 1


def test_what_is_dropped_is_gone_and_the_others_stay() -> None:
    world = World()
    for key, degrees in (("first", 0), ("second", 30), ("third", 60)):
        world.put(key, degrees)

    world.nearest.drop("a", at(0), b"first")
    world.nearest.drop("a", at(0), b"never")
    world.nearest.drop("never", at(0), b"first")

    assert world.near(30, least=0.8) == ["second", "third"]
    for gone in (b"second", b"third"):
        world.nearest.drop("a", at(0), gone)
    assert world.told == (0, 0)


def test_within_a_space_the_first_goes_first() -> None:
    world = World()
    for number in range(ROWS + 1):
        world.put(str(number), 0 if number in (0, 1) else 90)

    assert world.near(0) == ["1"]
    assert world.told[0] == ROWS


def test_of_spaces_the_one_used_longest_ago_goes_first() -> None:
    world = World(room=8000)
    for space in "abc":
        world.put(space, 0, space=space)
    world.near(0, space="a")
    for space in "defgh":
        world.put(space, 0, space=space)
        world.near(0, space="a")
        assert world.told[1] <= 8000

    assert world.near(0, space="a") == ["a"]
    assert world.near(0, space="b") == []
    assert world.near(0, space="h") == ["h"]


@pytest.mark.parametrize("room", [0, 1000, 2500, 20_000, 100_000])
def test_any_room_is_enough_or_unused_but_never_exceeded(room: int) -> None:
    world = World(room=room)
    for number in range(500):
        world.put(str(number), number, space="ab"[number % 2])
        assert world.told[1] <= room

    assert (world.told[0] > 0) == (room >= 2500)
