"""What guards that ask somebody else refer to: deployments, upstreams and secrets of the folder."""

from __future__ import annotations

from typing import Any

from proxy.policy.compile.context import CompileContext
from proxy.policy.files.source import Path_
from proxy.policy.schema.guards_asking import (
    AnyGuard,
    ByModelConfig,
    JudgeConfig,
    ModerationConfig,
    WebhookConfig,
)

Found = dict[str, Any]


def resolved(around: CompileContext, path: Path_, said: AnyGuard) -> Found | None:
    """Give what stands for a guard's references, with its name and stage where it tells them.

    None where one leads nowhere, which is then told.
    """
    name, stage = said.name or said.guard, path[-2]
    if isinstance(said, JudgeConfig) and said.check != "criteria" and stage == "input":
        around.complain((*path, "check"), f"{said.check} judges answers: it belongs under output")
        return None
    if isinstance(said, ByModelConfig):
        around.unknown((*path, "deployment"), "deployments", "deployment", said.deployment)
        return {"name": name, "stage": stage}
    if isinstance(said, WebhookConfig):
        secret = around.secret((*path, "secret"), said.secret)
        return {"name": name, "stage": stage, "secret": secret}
    if isinstance(said, ModerationConfig):
        return _endpoint(around, (*path, "upstream"), said.upstream)
    return {}


def _endpoint(around: CompileContext, path: Path_, name: str) -> Found | None:
    upstream = around.upstreams.get(name)
    if upstream is None:
        around.unknown(path, "upstreams", "upstream", name)
        return None
    if upstream.dialect != "openai":
        around.complain(path, f"{name} speaks {upstream.dialect}, which has no moderations")
        return None
    return {"upstream": upstream}
