"""``python -m bench.against FOLDER``: what a clean call of 1 KB costs through eight guards, six of
its question and two of its answer, beside what it costs in an older checkout in FOLDER.

Both are measured in the same rounds, beside the bare relay, with the Python and the libraries of
this environment. What guards add is what a call costs more than without any, in the same checkout.

``--count`` counts instead, what no other program on the machine changes: the functions that the
guards alone run for a call, and where valgrind is installed the instructions of the processor.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from bench import policies
from bench.figures import Spread, above, ratios, spread
from bench.rounds import SCENARIOS, Bench, in_turn
from bench.targets import READY_S, TARGETS, Command, Place, Target, serve

HERE = Path(__file__).parents[1]
GUARDS = """
    input:
      - {guard: keywords, name: rivals, words: [hydropolis, aquacorp], action: block}
      - {guard: secrets, action: block}
      - {guard: pii, entities: [email, phone, card, iban], regions: [US, DE], action: mask}
      - {guard: injection, action: flag}
      - {guard: toxicity, action: flag}
      - {guard: urls, deny: [bad.example.com], action: mask}
    output:
      - {guard: pii, name: pii-out, entities: [email, phone, card, iban], action: mask}
      - {guard: secrets, name: secrets-out, action: mask}
    opaque: allow
"""
SCENARIO = "closed"
COUNTS = (100, 500)  # calls; the difference is of so many, without what a start takes
VALGRIND = (
    "valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null",
)  # fmt: skip


def checkout(name: str, folder: Path, guards: str) -> Target:
    """Return Headrace as it is in a folder."""

    def command(place: Place) -> Command:
        (place.folder / "policies").mkdir()
        policies.write(place.folder / "policies", "bare", place.upstream)
        with (place.folder / "policies" / "p.yaml").open("a") as file:
            file.write(guards)
        words = serve(place, "bare").words
        return Command(("env", "-C", str(folder), *words), {"PYTHONPATH": str(folder)})

    return Target(name, command, ready_s=READY_S)


def revision(folder: Path) -> str:
    call = ("git", "-C", str(folder), "rev-parse", "--short", "HEAD")
    return subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip()


async def measured(older: Path, rounds: int, seconds: float) -> Mapping[str, list[float]]:
    """Return the microseconds of a call, round by round, by the target."""
    targets = [TARGETS["relay"]]
    for name, folder in (("old", older), ("now", HERE)):
        targets += [checkout(name, folder, ""), checkout(f"{name}, guards", folder, GUARDS)]
    async with AsyncExitStack() as opened:
        bench = Bench(Path(opened.enter_context(tempfile.TemporaryDirectory())), opened)
        running = [await bench.start(each) for each in targets]
        for each in running:
            await bench.warm(each, SCENARIOS[SCENARIO])
        await in_turn(bench, [(each, [SCENARIO]) for each in running], rounds, seconds)
        return {each.target.name: each.rounds[SCENARIO]["cpu_us"] for each in running}


def report(found: Mapping[str, list[float]], old: str, now: str) -> str:
    """Return the table."""
    rows: list[tuple[str, str, Spread]] = []
    for name, said in (("old", old), ("now", now)):
        whole, bare = found[f"{name}, guards"], found[name]
        rows += [
            (f"`{said}`, a call through eight guards", "us", spread(whole)),
            (f"`{said}`, what the guards add", "relays", above(whole, bare, found["relay"])),
        ]
    both = ratios(found["now, guards"], found["old, guards"])
    rows.append(("a call now", f"those of `{old}`", both))
    lines = (f"| {name} | {unit} | {value} |" for name, unit, value in rows)
    return "\n".join(["| | in | median and range |", "|---|---|--:|", *lines])


def counted(older: Path) -> Iterator[str]:
    """Yield the table of what guards alone run for a call, in the older checkout and now."""
    yield "| guards of a call alone | old | now | now to old |"
    yield "|---|--:|--:|--:|"
    ways = {"functions": _functions}
    if shutil.which("valgrind"):
        ways["instructions"] = _instructions
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as guards:
        guards.write(GUARDS)
        guards.flush()
        for name, count in ways.items():
            few, many = COUNTS
            old, now = (
                (count(at, guards.name, many) - count(at, guards.name, few)) / (many - few)
                for at in (older, HERE)
            )
            yield f"| {name} | {old:,.0f} | {now:,.0f} | {now / old:.2f} |"


def _functions(at: Path, guards: str, count: int) -> int:
    return int(_run(at, (), guards, count, "--functions").stdout)


def _instructions(at: Path, guards: str, count: int) -> int:
    told = _run(at, VALGRIND, guards, count).stderr
    found = re.search(r"I\s+refs:\s+([\d,]+)", told)
    assert found is not None, told
    return int(found[1].replace(",", ""))


def _run(
    at: Path, before: Sequence[str], guards: str, count: int, *more: str
) -> subprocess.CompletedProcess[str]:
    program = (sys.executable, str(HERE / "bench" / "guard_calls.py"), guards, str(count), *more)
    environment = {**os.environ, "PYTHONPATH": str(at), "PYTHONHASHSEED": "0"}
    return subprocess.run(
        (*before, *program), env=environment, capture_output=True, text=True, check=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("older", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--count", action="store_true")
    chosen = parser.parse_args()
    older = chosen.older.resolve()
    if chosen.count:
        for line in counted(older):
            print(line, flush=True)
        return
    found = asyncio.run(measured(older, chosen.rounds, chosen.seconds))
    print(report(found, revision(older), revision(HERE)))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
