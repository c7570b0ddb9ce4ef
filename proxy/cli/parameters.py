"""Parameters of several commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from proxy import settings
from proxy.config.scalars import NAME_PATTERN
from proxy.config.units import parse_duration
from proxy.errors.words import quote
from proxy.settings import Address, BadSetting

DATETIME_FORMATS = ("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class AddressParam(click.ParamType[Address]):
    """``HOST:PORT``."""

    name = "HOST:PORT"

    def convert(self, value: Any, param: Any, ctx: Any) -> Address:
        try:
            return value if isinstance(value, Address) else settings.parse_address(value)
        except BadSetting as error:
            self.fail(str(error), param, ctx)


class PolicyNameParam(click.ParamType[str]):
    """A name that a key or a deployment may have."""

    name = "NAME"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        if not re.fullmatch(NAME_PATTERN, value):
            rule = "Use at most 64 of a-z, 0-9, '.', '_' and '-', starting with a letter or digit."
            self.fail(f"{quote(value)} is not a valid name. {rule}", param, ctx)
        return str(value)


class FolderParam(click.Path):
    """An existing folder of policies. If it is missing, the error contains advice."""

    def __init__(self, advice: str = "Create it with `headrace init {}`.") -> None:
        super().__init__(exists=True, file_okay=False, path_type=Path)
        self.advice = advice

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not Path(value).exists():
            advice = self.advice.format(shlex.quote(str(value)))
            self.fail(f"Directory '{value}' does not exist. {advice}", param, ctx)
        return super().convert(value, param, ctx)


class DatetimeParam(click.ParamType[datetime]):
    """An age such as ``30d``, or a UTC time."""

    name = "AGE|TIME"

    def convert(self, value: Any, param: Any, ctx: Any) -> datetime:
        try:
            return datetime.now(UTC) - timedelta(seconds=parse_duration(value))
        except (ValueError, OverflowError):
            pass
        try:
            return click.DateTime(DATETIME_FORMATS).convert(value, param, ctx).replace(tzinfo=UTC)
        except click.BadParameter:
            forms = "an age such as 12h or 30d, or a UTC time such as 2026-01-31T22:00"
            self.fail(f"{quote(value)} must be {forms}", param, ctx)


FOLDER_PARAM = FolderParam()
policies_option = click.option(
    "--policies",
    type=FOLDER_PARAM,
    default="policies",
    show_default=True,
    help="Folder of policy files.",
)
listen_option = click.option(
    "--listen",
    type=AddressParam(),
    default="127.0.0.1:8080",
    show_default=True,
    help="Address for client calls.",
)
admin_option = click.option(
    "--admin-listen",
    type=AddressParam(),
    default="127.0.0.1:8081",
    show_default=True,
    help="Address for metrics, health and the admin API.",
)


def format_option(forms: Iterable[str], default: str = "text") -> Decorator:
    """Return the option ``--format``, which chooses one of the formats of an output."""
    choice = click.Choice(sorted(forms))
    return click.option("--format", "form", type=choice, default=default, show_default=True)
