"""Fingerprints in memory: which are found, what goes first, and what all of it takes."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from proxy.cache.fingerprint import fingerprint
from proxy.cache.word_index import ORDERS, IndexEntry, WordIndex
from tests.cache.stores import Clock
from tests.for_each import for_each
from tools.alike import SETS, pairs

PARCEL, AGAIN = "Where is my parcel?", "Could you tell me where my parcel is?"
SORT, MOVED = "How do I sort a list in Python?", "In Python, how can I sort a list?"
TIED, UNTIED = "What is the capital of Portugal?", "what's the Portugal capital"


@dataclass
class World:
    room: int = 10_000_000
    clock: Clock = field(default_factory=Clock)
    told: tuple[int, int] = (0, 0)
    index: WordIndex = field(init=False)

    def __post_init__(self) -> None:
        self.index = WordIndex(self.room, self.clock, self.held)

    def held(self, entries: int, size: int) -> None:
        self.told = (entries, size)

    def put(self, key: str, text: str = PARCEL, space: str = "a", ttl: float = 60) -> None:
        entry = IndexEntry(key.encode(), fingerprint(text, b""), self.clock.now + ttl)
        self.index.put(space, entry)

    def find(self, text: str = PARCEL, space: str = "a") -> str | None:
        key = self.index.find(space, fingerprint(text, b""))
        return None if key is None else key.decode()

    def drop(self, key: str, text: str = PARCEL, space: str = "a") -> None:
        self.index.drop(space, fingerprint(text, b""), key.encode())


@pytest.mark.parametrize(("one", "other"), [(PARCEL, AGAIN), (SORT, MOVED), (TIED, UNTIED)])
def test_a_question_is_found_in_other_words_either_way(one: str, other: str) -> None:
    for put, asked in ((one, other), (other, one)):
        world = World()
        world.put("kept", put)

        assert world.find(asked) == "kept"
        assert world.find("Where is your parcel?") is None


def test_all_pairs_that_say_the_same_are_found_and_no_others() -> None:
    for pair in [each for name in SETS for each in pairs(name)]:
        world = World()
        world.put("kept", pair.one)

        assert world.find(pair.other) == ("kept" if pair.served else None)


def test_the_newest_that_says_the_same_is_found() -> None:
    world = World()
    world.put("old")
    world.put("new", AGAIN)

    assert world.find() == "new"


def test_spaces_do_not_see_each_other() -> None:
    world = World()
    world.put("mine", space="a")

    assert world.find(space="b") is None


def test_what_has_expired_is_not_found() -> None:
    world = World()
    world.put("old", ttl=1)
    world.clock.now += 1

    assert world.find() is None


def test_a_key_is_there_once() -> None:
    world = World()
    world.put("same")
    world.put("same", ttl=1)

    assert world.told[0] == 1
    world.clock.now += 1
    assert world.find() is None


def test_what_is_dropped_is_gone_and_the_others_stay() -> None:
    world = World()
    for key in ("first", "second"):
        world.put(key)

    world.drop("second")
    world.drop("never")
    world.drop("first", space="never")

    assert world.find() == "first"
    world.drop("first")
    assert world.find() is None
    assert world.told == (0, 0)


def test_of_the_same_words_in_many_orders_the_first_goes_first() -> None:
    world = World()
    for number in range(ORDERS + 1):
        world.put(str(number), "one red hat" if number == 0 else "red one hat")

    assert world.find("one red hat") is None
    assert world.told[0] == ORDERS


def test_what_was_used_longest_ago_goes_first() -> None:
    world = World(room=8000)
    for space in "abc":
        world.put(space, space=space)
    world.find(space="a")
    for space in "defghijk":
        world.put(space, space=space)
        world.find(space="a")
        assert world.told[1] <= 8000

    assert world.find(space="a") == "a"
    assert world.find(space="b") is None
    assert world.find(space="k") == "k"


@for_each("room", [0, 1000, 2500, 20_000, 100_000])
def test_any_room_is_enough_or_unused_but_never_exceeded(room: int) -> None:
    world = World(room=room)
    for number in range(500):
        world.put(str(number), f"Is line {number} free?", space="ab"[number % 2])
        assert world.told[1] <= room

    assert (world.told[0] > 0) == (room >= 2500)
