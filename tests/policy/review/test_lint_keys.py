"""Warnings about keys that no call can use, and about names in `revoked:` that revoke nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from proxy.policy.review.check import check_folder
from tests.for_each import for_each

NOW = datetime(2026, 7, 1, tzinfo=UTC)
REMAINDER = """\
upstreams: {up: {dialect: openai, base_url: 'https://api.example.test'}}
deployments: {chat: {targets: [{upstream: up, model: m, price: {input: 1, output: 2}}]}}
"""
ONE, TWO = "1" * 64, "2" * 64
OLD = f"sha256: [{{digest: {ONE}, until: 2026-06-29}}"
REJECTED = "so every call with it is rejected"
EXPIRED = f"keys.old.expires: the key expired at 2026-07-01 00:00 UTC, {REJECTED}"
REVOKED = f"keys.old: the key is revoked, {REJECTED}"
PAIR = f"keys.old: the key is revoked and expired, {REJECTED}"


def warned(folder: Path, old: str, revoked: str = "") -> list[str]:
    """Return what is doubtful of a key `old` beside one that is good, at NOW."""
    good = f"fine: {{sha256: {'f' * 64}, deployments: [chat]}}"
    keys = f"keys:\n  {good}\n  old: {{{old}, deployments: [chat]}}\n"
    (folder / "p.yaml").write_text(f"{REMAINDER}{keys}{revoked}")
    report = check_folder(folder, {}, NOW)
    assert not report.errors
    return [f"{problem.path}: {problem.message}" for problem in report.warnings]


@for_each(
    ("old", "revoked", "text"),
    [
        (f"sha256: {ONE}", "", []),
        (f"sha256: {ONE}, expires: 2026-07-01", "", []),
        (f"sha256: {ONE}, expires: 2026-06-30", "", [EXPIRED]),
        (f"{OLD}]", "", [f"keys.old.sha256: the key expired at 2026-06-30 00:00 UTC, {REJECTED}"]),
        (f"{OLD}, {TWO}]", "", []),
        (f"sha256: {ONE}", "revoked: [old]", [REVOKED]),
        (f"sha256: {ONE}", f"revoked: [{ONE}]", [REVOKED]),
        (f"sha256: [{ONE}, {TWO}]", f"revoked: [{ONE}]", []),
        (f"{OLD}]", f"revoked: [{ONE}]", [PAIR]),
        (f"sha256: {ONE}, expires: 2026-06-30", "revoked: [old]", [PAIR]),
        (
            f"{OLD}, {TWO}]",
            f"revoked: [{TWO}]",
            [f"keys.old.sha256: all secrets of the key are revoked or expired, {REJECTED}"],
        ),
        (f"sha256: [{ONE}, {TWO}], expires: 2026-06-30", f"revoked: [{ONE}]", [EXPIRED]),
        (
            f"sha256: {ONE}",
            "revoked: [ol]",
            ['revoked[0]: key "ol" does not exist. This entry has no effect. Did you mean "old"?'],
        ),
        (f"sha256: {ONE}", "revoked: [of-another-time]", []),
        (f"sha256: {ONE}", f"revoked: [{'1' * 63}e]", []),
    ],
)
def test_warns_of_unusable_key(old: str, revoked: str, text: list[str], tmp_path: Path) -> None:
    assert warned(tmp_path, old, revoked) == text


NO_KEYS = "there are no keys, so every call is rejected"
IGNORED = 'If this is intended, write "keys: {}"; otherwise a running proxy ignores this change.'


@pytest.mark.parametrize(
    ("keys", "text"),
    [("keys: {}\n", NO_KEYS), ("keys:\n", f"{NO_KEYS}. {IGNORED}"), ("", f"{NO_KEYS}. {IGNORED}")],
    ids=["none at all", "half written", "not there"],
)
def test_a_folder_without_keys_is_doubtful(keys: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(f"{REMAINDER}{keys}")

    report = check_folder(tmp_path, {}, NOW)

    assert not report.errors
    assert f"keys: {text}" in [f"{warning.path}: {warning.message}" for warning in report.warnings]
    assert {warning.file for warning in report.warnings} <= {"p.yaml", tmp_path.name}
