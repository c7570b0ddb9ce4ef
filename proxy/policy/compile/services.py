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


def resolved(context: CompileContext, path: Path_, config: AnyGuard) -> Found | None:
    """Return the values that a guard's references stand for, with its name and stage where its kind
    needs them.

    Return None for a reference that leads nowhere, after a complaint about it.
    """
    name, stage = config.name or config.guard, path[-2]
    if isinstance(config, JudgeConfig) and config.check != "criteria" and stage == "input":
        context.complain(
            (*path, "check"), f"{config.check} judges answers: it belongs under output"
        )
        return None
    if isinstance(config, ByModelConfig):
        context.unknown((*path, "deployment"), "deployments", "deployment", config.deployment)
        return {"name": name, "stage": stage}
    if isinstance(config, WebhookConfig):
        secret = context.secret((*path, "secret"), config.secret)
        return {"name": name, "stage": stage, "secret": secret}
    if isinstance(config, ModerationConfig):
        return _endpoint(context, (*path, "upstream"), config.upstream)
    return {}


def _endpoint(context: CompileContext, path: Path_, name: str) -> Found | None:
    upstream = context.upstreams.get(name)
    if upstream is None:
        context.unknown(path, "upstreams", "upstream", name)
        return None
    if upstream.dialect != "openai":
        context.complain(path, f"{name} speaks {upstream.dialect}, which has no moderations")
        return None
    return {"upstream": upstream}
