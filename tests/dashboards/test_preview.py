"""The tool that draws pictures: its lock says nothing of where packages came from, and its policies
are good. What it draws is looked at by people."""

from __future__ import annotations

import json
from pathlib import Path

from dashboards.preview import drive
from proxy.policy.store import read_folder
from tests.dashboards.expressions import BOARDS, TOP

PREVIEW = TOP / "dashboards" / "preview"


def test_every_board_has_its_picture_of_a_modest_size() -> None:
    sizes = {path.stem: path.stat().st_size for path in (TOP / "docs" / "pictures").glob("*.png")}

    assert set(sizes) == {path.stem for path in BOARDS}
    assert max(sizes.values()) < 300_000


def test_its_lock_holds_hashes_and_no_address() -> None:
    locked = json.loads((PREVIEW / "package-lock.json").read_text())["packages"]
    expected = json.loads((PREVIEW / "package.json").read_text())["dependencies"]

    assert all("integrity" in item for name, item in locked.items() if name)
    assert not any("resolved" in item for item in locked.values())
    assert all(
        locked[f"node_modules/{name}"]["version"] == fields for name, fields in expected.items()
    )


def test_the_policies_of_its_traffic_are_good(tmp_path: Path) -> None:
    (tmp_path / "policies.yaml").write_text(drive.policies("http://127.0.0.1:1"))

    assert "support-chat" in read_folder(tmp_path, {}).deployments
