"""Pictures of dashboards, and the lock file and policies of the tool that draws them."""

from __future__ import annotations

import json
from pathlib import Path

from dashboards.preview import drive
from proxy.policy.store import read_folder
from tests.dashboards.expressions import BOARDS, TOP

PREVIEW = TOP / "dashboards" / "preview"


def test_boards_have_small_pictures() -> None:
    pictures = (TOP / "docs" / "pictures").glob("*.png")
    sizes = {path.stem: path.stat().st_size for path in pictures if "console" not in path.stem}

    assert set(sizes) == {path.stem for path in BOARDS}
    assert max(sizes.values()) < 300_000


def test_lock_file_has_hashes_only() -> None:
    locked = json.loads((PREVIEW / "package-lock.json").read_text())["packages"]
    dependencies = json.loads((PREVIEW / "package.json").read_text())["dependencies"]

    assert all("integrity" in item for name, item in locked.items() if name)
    assert not any("resolved" in item for item in locked.values())
    assert all(
        locked[f"node_modules/{name}"]["version"] == version
        for name, version in dependencies.items()
    )


def test_preview_policies_are_valid(tmp_path: Path) -> None:
    (tmp_path / "policies.yaml").write_text(drive.policies("http://127.0.0.1:1"))

    assert "support-chat" in read_folder(tmp_path, {}).deployments
