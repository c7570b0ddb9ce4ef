"""Helpers that decide calls as the pipeline does."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxy.policy.compile import rules
from proxy.policy.compile.context import CompileContext
from proxy.policy.decide import ActivePolicy
from proxy.policy.decide.conditions import Condition
from proxy.policy.decide.snapshot import Snapshot, VirtualKey
from proxy.policy.files.cloud_tokens import CloudTokens
from proxy.policy.files.load import LoadedFolder
from proxy.policy.files.source import Document
from proxy.policy.schema import PoliciesConfig, WhenConfig
from proxy.policy.store import read_folder
from proxy.types import Call, Plan


def decide(snapshot: Snapshot, call: Call) -> Plan:
    """Return the plan of a call. Raise ``Unauthorized`` for an unknown key."""
    return ActivePolicy(snapshot).identify(call.head).decide(call)


def snapshot_of(text: str) -> Snapshot:
    """Return the snapshot of a folder with one policy file."""
    with tempfile.TemporaryDirectory() as folder:
        return read_text(Path(folder), text)


def key_in(snapshot: Snapshot, name: str) -> VirtualKey:
    key = snapshot.keys[name]
    return key


def compile_condition(config: dict[str, Any]) -> Condition:
    """Return the condition of a rule. Names are not checked."""
    loaded = LoadedFolder(PoliciesConfig(), Document(), "")
    context = CompileContext(loaded, None, CloudTokens({}))
    return rules.compile_condition(context, (), WhenConfig.model_validate(config))


def read_text(folder: Path, text: str, environ: Mapping[str, str] | None = None) -> Snapshot:
    """Compile a folder of one file. Without ``environ``, secrets are not read."""
    folder.mkdir(exist_ok=True)
    (folder / "p.yaml").write_text(text)
    return read_folder(folder, environ)
