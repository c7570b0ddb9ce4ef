"""Keys over time: rotation, expiry, and revocation."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest
from aiohttp import ClientSession
from click.testing import CliRunner

from proxy.cli import main
from proxy.errors import Unauthorized
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.load import load_policies
from proxy.policy.review.check import check_folder
from proxy.policy.review.diff import list_changes, replay_calls
from proxy.policy.store import read_folder
from proxy.types import RequestHead, Secret
from tests.cli.test_init import serving
from tests.conftest import DIGEST, KEY, policies_for, running_proxy
from tests.doubles import ScriptedUpstream
from tests.for_each import for_each
from tests.policy.test_store import StoreOverFolder

OLD, NEW, OTHER_DIGEST = (
    hashlib.sha256(text.encode()).hexdigest() for text in ("old", "new", "other")
)
REMAINDER = """\
upstreams: {up: {dialect: openai, base_url: 'https://api.example.test'}}
deployments: {chat: {targets: [{upstream: up, model: m}]}}
"""
TWO = f"""\
keys:
  widget: {{sha256: [{{digest: {OLD}, until: 2026-06-30}}, {NEW}], deployments: [chat]}}
  box: {{sha256: {OTHER_DIGEST}, deployments: [chat]}}
"""
BEFORE_END, AFTER_END = (datetime(2026, month, 1, tzinfo=UTC) for month in (6, 7))


def write_folder(folder: Path, keys: str = TWO, **fields: str) -> Path:
    for name, text in {"rest": REMAINDER, "keys": keys, **fields}.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


def key_name(snapshot: Snapshot, text: str, position: datetime = BEFORE_END) -> str | None:
    """Return the name of the key with this text at a moment, or None if it is not valid."""
    head = RequestHead("openai", "chat", "/v1/chat/completions", "r", digest=Secret(text).digest)
    try:
        return snapshot.identify(replace(head, received_at=position)).key.name
    except Unauthorized:
        return None


def test_rotated_key_has_several_texts_until_each_expires(tmp_path: Path) -> None:
    snapshot = read_folder(write_folder(tmp_path), {})

    names = [key_name(snapshot, text) for text in ("old", "new", "other", "none")]
    assert names == ["widget", "widget", "box", None]
    assert [key_name(snapshot, text, AFTER_END) for text in ("old", "new")] == [None, "widget"]
    assert sorted(snapshot.keys) == ["box", "widget"]
    assert check_folder(tmp_path, {}).summary.endswith("1 deployment, 2 keys)")


@pytest.mark.parametrize(
    ("until_time", "last_item", "first_not"),
    [
        ("2026-06-30", "2026-06-30T23:59:59+00:00", "2026-07-01T00:00:00+00:00"),
        ("2026-06-30T18:00Z", "2026-06-30T17:59:59+00:00", "2026-06-30T18:00:00+00:00"),
        ("2026-06-30T18:00+02:00", "2026-06-30T15:59:59+00:00", "2026-06-30T16:00:00+00:00"),
    ],
)
def test_expiry_is_a_day_or_a_moment(
    until_time: str, last_item: str, first_not: str, tmp_path: Path
) -> None:
    keys = (
        f"keys: {{box: {{sha256: {OTHER_DIGEST}, expires: '{until_time}', deployments: [chat]}}}}"
    )
    snapshot = read_folder(write_folder(tmp_path, keys), {})

    moments = (datetime.fromisoformat(last_item), datetime.fromisoformat(first_not))
    assert [key_name(snapshot, "other", moment) for moment in moments] == ["box", None]


def test_key_expires_at_its_earliest_expiry(tmp_path: Path) -> None:
    keys = TWO.replace("{sha256: [", "{expires: 2026-06-15, sha256: [")
    snapshot = read_folder(write_folder(tmp_path, keys), {})

    assert [key_name(snapshot, text, AFTER_END) for text in ("old", "new")] == [None, None]


@for_each(
    ("revoked", "remaining"),
    [
        ("[widget]", [None, None, "box"]),
        (f"[{OLD}]", [None, "widget", "box"]),
        (f"[{NEW}, box, gone-long-ago, {'f' * 64}]", ["widget", None, None]),
        ("[widget, box]", [None, None, None]),
        ("[]", ["widget", "widget", "box"]),
        ("", ["widget", "widget", "box"]),
    ],
)
def test_key_or_digest_is_revoked(
    revoked: str, remaining: list[str | None], tmp_path: Path
) -> None:
    snapshot = read_folder(write_folder(tmp_path, revoked=f"revoked: {revoked}"), {})

    assert [key_name(snapshot, text) for text in ("old", "new", "other")] == remaining


async def names_after(stored: StoreOverFolder, **files: str) -> list[str | None]:
    """Return the key names of three texts after a change of files."""
    write_folder(stored.folder, **files)
    await stored.store.refresh()
    return [key_name(stored.store.current, text) for text in ("old", "new", "other")]


async def test_revocation_lasts_until_a_valid_folder_removes_it(tmp_path: Path) -> None:
    stored = StoreOverFolder(write_folder(tmp_path), "tags: {}\n")

    names = await names_after(stored, wrong="x: {}\n", zz="revoked: [widget]\n")
    assert names == [None, None, "box"]
    assert await names_after(stored, wrong="x: {}\n", zz="tags: {}\n") == [None, None, "box"]
    (tmp_path / "wrong.yaml").unlink()
    assert await names_after(stored, zz="tags: {}\n") == ["widget", "widget", "box"]


async def test_last_key_can_be_revoked_and_removed(tmp_path: Path) -> None:
    stored = StoreOverFolder(write_folder(tmp_path), "tags: {}\n")

    assert await names_after(stored, keys="tags: {}\n") == ["widget", "widget", "box"]
    assert await names_after(stored, keys="revoked: [widget]\n") == [None, None, "box"]
    revoked = f"revoked: [widget, {OTHER_DIGEST}]\n"
    assert await names_after(stored, keys=revoked) == [None, None, None]
    assert stored.store.current.keys == {}
    assert stored.events()[-2:] == ["policy.in_force", "policy.no_keys"]


def test_diff_reports_new_texts_and_revocations(tmp_path: Path) -> None:
    folders = [tmp_path / "old", tmp_path / "new"]
    for folder in folders:
        folder.mkdir()
    old = load_policies(write_folder(folders[0], TWO.replace(f", {NEW}]", "]"))).policies
    final = load_policies(write_folder(folders[1], revoked="revoked: [box]")).policies

    text = list(list_changes(old, final))

    assert "revoked.box: box (added)" in text
    assert any(f"sha256.{NEW}" in line and line.endswith("(added)") for line in text)


async def test_revoked_key_fails_at_once(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    label = DIGEST[:8]
    used = "headrace_key_last_used_timestamp_seconds"
    config = {"model": "support-chat", "prompt": "Hi"}
    bearer = {"authorization": f"Bearer {KEY}"}
    started = datetime.now(UTC).timestamp()
    async with running_proxy(tmp_path / "policies", policies_for(upstream.url)) as proxy:

        async def ask(**headers: str) -> int:
            reply = await proxy.send("/v1/completions", config, {**bearer, **headers})
            return reply.status

        async def last_used() -> dict[str, float]:
            lines = (await proxy.metrics()).splitlines()
            result = [line.split() for line in lines if line.startswith(used + "{")]
            return {series.removeprefix(used): float(value) for series, value in result}

        assert await last_used() == {}
        assert await ask() == 200
        await proxy.sink.wait(1)
        metrics = await last_used()
        (proxy.policies / "wrong.yaml").write_text("deployments: {support-chat: []}\n")
        (proxy.policies / "revoked.yaml").write_text("revoked: [support-widget]\n")
        statuses = [await ask(**{"x-headrace-refresh-cache": "true"}), await ask()]

    assert list(metrics) == [f'{{digest="{label}",key="support-widget"}}']
    assert all(value >= started for value in metrics.values())
    assert statuses == [401, 401]
    assert len(upstream.requests) == 1


ENDED = f"""\
keys:
  old: {{sha256: {OLD}, expires: 2026-06-30, deployments: [chat]}}
  new: {{sha256: {NEW}, deployments: [chat]}}
  box: {{sha256: [{{digest: {OTHER_DIGEST}, until: 2026-06-30}}], deployments: [chat]}}
revoked: [new]
"""
ALL_REVOKED = f"{TWO}revoked: [{OTHER_DIGEST}]"
EXPIRED = "expired at 2026-07-01 00:00 UTC"


@for_each(
    ("keys", "name", "moment", "label", "why"),
    [
        (ENDED, "old", BEFORE_END, None, None),
        (ENDED, "old", AFTER_END, None, EXPIRED),
        (ENDED, "box", AFTER_END, None, EXPIRED),
        (ENDED, "new", BEFORE_END, None, "revoked"),
        (ENDED, "nobody", BEFORE_END, None, "unknown"),
        (ALL_REVOKED, "box", BEFORE_END, None, "revoked"),
        (ALL_REVOKED, "box", BEFORE_END, OTHER_DIGEST[:8], "revoked"),
        (ALL_REVOKED, "widget", AFTER_END, None, None),
        (ALL_REVOKED, "widget", AFTER_END, OLD[:8], EXPIRED),
        (ALL_REVOKED, "widget", BEFORE_END, "f" * 8, "unknown"),
    ],
)
def test_invalid_key_has_a_reason(
    keys: str, name: str, moment: datetime, label: str | None, why: str | None, tmp_path: Path
) -> None:
    snapshot = read_folder(write_folder(tmp_path, keys), {})

    assert snapshot.find_rejection_reason(name, moment, label) == why


@for_each(
    ("name", "day", "result"),
    [
        ("old", "2026-07-05", f"rejected with 401 invalid_api_key (key old {EXPIRED}"),
        ("new", "2026-06-01", "rejected with 401 invalid_api_key (key new is revoked)"),
        ("old", "2026-06-01", "route to up/m"),
    ],
)
def test_explain_refuses_invalid_key_like_the_server(
    name: str, day: str, result: str, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path, ENDED)
    text = ["explain", "--policies", str(folder), "--key", name, "--deployment", "chat"]

    explained = CliRunner().invoke(main, [*text, "--at", day])

    assert explained.exit_code == 0
    assert f"result: {result}" in explained.output.splitlines()[-1]


def test_replay_sees_revoked_and_ended_keys(tmp_path: Path) -> None:
    call = {"event": "call", "models": ["m"], "endpoint": "chat", "key": "widget"}
    lines = [
        orjson.dumps({**call, "time": item.isoformat(), "request_id": item.isoformat()})
        for item in (BEFORE_END, AFTER_END)
    ]
    single = f"keys: {{widget: {{sha256: {OLD}, deployments: [chat]}}}}\n"
    folders = []
    for name, keys in (
        ("old", single),
        ("revoking", f"{single}revoked: [widget]\n"),
        ("ending", single.replace(OLD, f"{OLD}, expires: 2026-06-30")),
    ):
        (tmp_path / name).mkdir()
        folders.append(write_folder(tmp_path / name, keys))
    snapshot, revoking, ending = (read_folder(folder, None) for folder in folders)

    for old, new, changed, text in (
        (snapshot, revoking, 2, "key widget -> revoked"),
        (snapshot, ending, 1, "key widget -> expired at"),
        (ending, snapshot, 1, f"{EXPIRED} -> key widget"),
    ):
        report = replay_calls(old, new, lines)
        expected = (2, changed, [("key", "")])
        assert (report.calls, report.changed, list(report.tally.by_change)) == expected
        assert text in "".join(report.format_lines())
    report = replay_calls(revoking, revoking, lines)
    assert (report.calls, report.skipped.total()) == (0, 2)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


KEYS = f"""\
keys:
  old: {{sha256: {digest("text-of-old")}, expires: 2026-01-01, deployments: [support-chat]}}
  gone: {{sha256: {digest("text-of-gone")}, deployments: [support-chat]}}
  half: {{sha256: [{digest("text-of-half")}, {digest("other")}], deployments: [support-chat]}}
"""
REVOKED = f"revoked: [gone, {digest('text-of-half')}, {digest('text-of-nobody')}]\n"
LAPSES = [
    ("text-of-old", "expired", "old"),
    ("text-of-gone", "revoked", "gone"),
    ("text-of-half", "revoked", "half"),
    ("text-of-nobody", "revoked", None),
    ("text-of-no-key", "unknown", None),
    (None, "missing", None),
]


async def refuse(text: str | None, url: str) -> tuple[int, str]:
    """Make a call with a key text. Return the response without its id."""
    headers = {"x-request-id": "r"} | ({"authorization": f"Bearer {text}"} if text else {})
    body = {"model": "support-chat", "prompt": "Hi"}
    async with (
        ClientSession() as client,
        client.post(f"{url}/v1/completions", headers=headers, json=body) as response,
    ):
        return response.status, await response.text()


async def test_logs_name_of_refused_key(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    policies = policies_for(upstream.url).replace("\nkeys:\n", f"\n{KEYS}") + REVOKED
    async with serving(tmp_path / "p", policies) as (served, url):
        answers = [await refuse(text, url) for text, _, _ in LAPSES]
        admin = next(line["admin"] for line in served.lines if line["event"] == "listening")
        lines = [await served.line("call") for _ in LAPSES]
        async with ClientSession() as client, client.get(f"http://{admin}/metrics") as response:
            metrics = await response.text()

    *refused, without_key = answers
    assert len(set(refused)) == 1
    assert refused[0][0] == without_key[0] == 401
    assert [line["unauthorized"] for line in lines] == [
        {"reason": reason, "key": key} for _, reason, key in LAPSES
    ]
    assert not any("text-of" in str(line) for line in lines)
    for _, reason, key in LAPSES:
        series = f'{{key="{key or "none"}",reason="{reason}"}} 1.0'
        assert f"headrace_unauthenticated_requests_total{series}" in metrics
