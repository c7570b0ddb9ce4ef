"""Parses durations, sizes, money, rates and days. Each parser raises ``ValueError``."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from proxy.money.usage import NANO_PER_USD, format_usd

_SECONDS_BY_SUFFIX = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES_BY_SUFFIX = {"B": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3}
_BYTES_BY_SUFFIX |= {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_DURATION_PART = r"(\d+(?:\.\d+)?)(ms|s|m|h|d)"
DURATION_PATTERN = r"(?=.*[1-9])(\d+(\.\d+)?(ms|s|m|h|d))+"
_SIZE_PATTERN = r"(\d+)(B|kB|MB|GB|KiB|MiB|GiB)"
SIZE_PATTERN = f"(?=.*[1-9]){_SIZE_PATTERN}"
DAY_PATTERN = r"[12]\d{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
TIME_PATTERN = r"(?:[01]\d|2[0-3]):[0-5]\d"
MAX_DECIMAL_DIGITS = 18  # before or after the decimal point


def parse_duration(value: object) -> float:
    """Parse ``500ms``, ``5s`` or ``1m30s`` as seconds. A number without a unit is invalid."""
    parts = re.findall(_DURATION_PART, value) if isinstance(value, str) else []
    if not parts or "".join(n + unit for n, unit in parts) != value:
        raise ValueError("must be a duration such as 500ms, 5s or 1m30s")
    seconds = sum(float(n) * _SECONDS_BY_SUFFIX[unit] for n, unit in parts)
    if seconds <= 0:
        raise ValueError("must be greater than 0")
    return seconds


def parse_size(value: object) -> int:
    """Parse ``64MiB`` or ``512kB`` as a number of bytes."""
    match = re.fullmatch(_SIZE_PATTERN, value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("must be a size such as 512kB or 64MiB")
    if not int(match[1]):
        raise ValueError("must be greater than 0")
    return int(match[1]) * _BYTES_BY_SUFFIX[match[2]]


def parse_decimal_usd(value: object) -> Decimal:
    """Parse an amount of USD as a ``Decimal``."""
    if isinstance(value, Decimal):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError("must be a number of USD")  # noqa: TRY004  # pydantic reads ValueError
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        raise ValueError("must be a number of USD") from None
    if not amount.is_finite():
        raise ValueError("must be a number of USD")
    if abs(amount.adjusted()) > MAX_DECIMAL_DIGITS:  # arithmetic with more would exhaust memory
        raise ValueError(f"must be a number of USD with at most {MAX_DECIMAL_DIGITS} places")
    return amount


def parse_day(value: Any) -> date | None:
    """Parse ``2026-01-31`` as a date."""
    if value is None or isinstance(value, date):
        return value
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError("must be a day such as 2026-01-31") from None


def parse_moment(value: Any) -> datetime | None:
    """Parse ``2026-01-31`` as the end of that day in UTC, or ``2026-01-31T18:00Z``."""
    if value is None or isinstance(value, datetime):
        return value
    with suppress(TypeError, ValueError, OverflowError):
        time = datetime.fromisoformat(value)
        if len(value) == len("2026-01-31"):
            return time.replace(tzinfo=UTC) + timedelta(days=1)
        if time.tzinfo is not None:
            return time.astimezone(UTC)
    raise ValueError("must be a day such as 2026-01-31 or a time such as 2026-01-31T18:00Z")


_WHOLE_COUNT = (
    r"(?=[\d.]*[1-9])(?=\d+(?:\.0+)?(?![\d.kM])|\d+(?:\.\d{1,3}0*)?k|\d+(?:\.\d{1,6}0*)?M)"
)
_COUNT_PART = r"(\d+(?:\.\d+)?)(k|M)?"
COUNT_PATTERN = _WHOLE_COUNT + _COUNT_PART
_TIME_UNIT_PART = r"(?:(?!0 )(\d+) )?(second|minute|hour|day)s?"
RATE_PATTERN = rf"{COUNT_PATTERN} per {_TIME_UNIT_PART}"
PERCENT_PATTERN = r"0{0,2}[1-9]|0?[1-9]\d|100"
BUDGET_PATTERN = (
    r"(?=[\d.]*[1-9])(\d+(?:\.\d{1,9})?)(?: usd)? per (second|minute|hour|day|week|month)"
)
MAX_USD = 9_000_000
MAX_USD_CHECK = r"(?=0*(?:9000000(?:\.0+)?|[0-8]\d{6}(?:\.\d+)?|\d{1,6}(?:\.\d+)?)(?![\d.]))"
_COUNT_SUFFIXES = {"": 1, "k": 1000, "M": 1_000_000}
_UNIT_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}


def parse_count(value: object) -> int:
    """Parse ``600``, ``200k`` or ``1.5M`` as a whole number."""
    match = re.fullmatch(_COUNT_PART, str(value)) if type(value) in (int, str) else None
    amount = Decimal(match[1]) * _COUNT_SUFFIXES[match[2] or ""] if match else Decimal(0)
    if amount <= 0 or amount != int(amount):
        raise ValueError("must be a whole number above 0, such as 600, 200k or 1.5M")
    return int(amount)


def parse_rate(value: object) -> tuple[int, int]:
    """Parse ``600 per minute`` or ``200k per 10 minutes`` as an amount and whole seconds."""
    match = re.fullmatch(RATE_PATTERN, value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("must be a rate such as 600 per minute or 200k per 10 minutes")
    return parse_count(f"{match[1]}{match[2] or ''}"), int(match[3] or 1) * _UNIT_SECONDS[match[4]]


def format_rate(value: tuple[int, int]) -> str:
    """Return the text that ``parse_rate`` parses."""
    amount, seconds = value
    unit, length = next(span for span in reversed(_UNIT_SECONDS.items()) if seconds % span[1] == 0)
    times = seconds // length
    return f"{amount} per {unit}" if times == 1 else f"{amount} per {times} {unit}s"


def format_budget(value: tuple[int, str]) -> str:
    """Return the text that ``parse_budget`` parses."""
    return f"{format_usd(value[0])} per {value[1]}"


def parse_budget(value: object) -> tuple[int, str]:
    """Parse ``500 per month`` as nano-USD and a calendar unit."""
    match = re.fullmatch(BUDGET_PATTERN, value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("must be USD per calendar unit, such as 500 per month or 0.50 per day")
    if Decimal(match[1]) > MAX_USD:
        raise ValueError(f"must be at most {MAX_USD:,} USD")
    return int(Decimal(match[1]) * NANO_PER_USD), match[2]


def parse_percent(value: object) -> float:
    """Parse ``80%`` as 0.8."""
    match = re.fullmatch(rf"({PERCENT_PATTERN})%", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("must be a percentage such as 80%")
    return int(match[1]) / 100
