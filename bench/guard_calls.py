"""``python bench/guard_calls.py GUARDS COUNT``: so many clean calls of 1 KB through the guards of
a file, in this process and without a server.

It runs as well in an older checkout (``PYTHONPATH=THERE``), whose names are tried second. Between
two counts nothing but the calls differs, so that what a call takes can be counted: by
``--functions`` here, or as instructions by the program that runs it.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

POLICY = """
upstreams: {one: {dialect: openai, base_url: 'https://one.test'}}
deployments: {chat: {targets: [{upstream: one, model: m}]}}
policies:
  default:
"""
PROSE = (
    "The widget on the front page shows the opening hours of every branch, and support wants it to "
    "tell holidays apart. Please write a short note to the team about what has to change, by when, "
    "and who should read the draft. Mention that last year's table is out of date. "
)
SIZE, WARM = 1024, 100
Inspect = Callable[[dict[str, Any], bool], Coroutine[Any, Any, Any]]


def first_of(*names: str) -> Any:
    """Return the first that is there, of names such as ``module:function``."""
    for name in names:
        module, _, member = name.partition(":")
        try:
            return getattr(importlib.import_module(module), member)
        except (ImportError, AttributeError):
            continue
    raise ImportError(names[0])


def guards(chosen: str) -> Inspect:
    """Return what has these guards look at a question, or at an answer: by a clock that stands
    still, so that none is late."""
    engine = first_of("proxy.guards.engine:Engine")(lambda: 0.0)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "policies.yaml").write_text(POLICY + chosen)
        snapshot = first_of("proxy.policy.store:read_folder")(Path(folder), None)
    rules = snapshot.deployments["chat"].guards
    ask = first_of(
        "proxy.guards.text.documents:plain_request",
        "proxy.guards.text.plain_chat:plain_request",
        "proxy.guards.text.usual:usual_request",
        "proxy.guards.texts:request_texts",
    )
    tell = first_of(
        "proxy.guards.text.documents:plain_answer",
        "proxy.guards.text.plain_chat:plain_answer",
        "proxy.guards.text.usual:usual_answer",
        "proxy.guards.texts:answer_texts",
    )

    def inspect(body: dict[str, Any], asked: bool) -> Coroutine[Any, Any, Any]:
        read = ask(body) if asked else tell(body)
        apart = hasattr(read, "apart")
        chosen_rules = rules.input if asked else rules.output
        work: Coroutine[Any, Any, Any] = engine.inspect(chosen_rules, read if apart else read.texts)
        return work

    return inspect


def call(inspect: Inspect, number: int) -> None:
    text = f"{number} {PROSE * 4}"[:SIZE]
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    run(inspect({"model": "m", "messages": [{"role": "user", "content": text}]}, True))
    run(inspect({"id": "a", "object": "chat.completion", "choices": [choice]}, False))


def run(work: Coroutine[Any, Any, Any]) -> None:
    """Run what waits for nobody. Raise ``AssertionError`` where something was found."""
    try:
        work.send(None)
    except StopIteration as done:
        found = [each for each in done.value.results if each.findings or each.error]
        assert not found, found
        return
    raise AssertionError


def functions(inspect: Inspect, count: int) -> int:
    """Return how many functions so many calls run."""
    seen = 0

    def note(_frame: Any, event: str, _: Any) -> None:
        nonlocal seen
        seen += event in ("call", "c_call")

    sys.setprofile(note)
    for number in range(count):
        call(inspect, number)
    sys.setprofile(None)
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("guards", type=Path, help="a file of them")
    parser.add_argument("count", type=int)
    parser.add_argument("--functions", action="store_true")
    chosen = parser.parse_args()
    inspect = guards(chosen.guards.read_text())
    for number in range(WARM):
        call(inspect, number)
    if chosen.functions:
        print(functions(inspect, chosen.count))
        return
    for number in range(chosen.count):
        call(inspect, number)


if __name__ == "__main__":
    main()
