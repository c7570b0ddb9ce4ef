"""Compiles virtual keys: their deployments, credentials and lists of models."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from types import MappingProxyType

from proxy.errors.words import quote
from proxy.policy import schema
from proxy.policy.compile.context import CompileContext
from proxy.policy.decide.snapshot import Credential, Deployment, KeyDeployment, VirtualKey
from proxy.types.target import ListedModel

SHARED_OWNER = "headrace"
"""Owner of a name that selects models of several owners."""
_DATE = re.compile(r"(?<!\d)(20\d\d)-?([01]\d)-?([0-3]\d)(?!\d)")
DeploymentsByModel = Mapping[str, tuple[KeyDeployment, ...]]


class KeyCompiler:
    """Compiles keys. Keys with equal deployments, tags and permissions share compiled parts."""

    def __init__(
        self, context: CompileContext, deployments: Mapping[str, Deployment], models_date: date
    ) -> None:
        self._context = context
        self._deployments = deployments
        self._models_date = models_date
        self._equal_keys: dict[Hashable, VirtualKey] = {}
        tags = context.policies.tags.items()
        self._client_tags = frozenset(name for name, tag in tags if tag.caller)

    def compile(self, name: str, config: schema.KeyConfig) -> VirtualKey:
        for tag, value in config.tags.items():
            self._context.check_tag(("keys", name, "tags", tag), tag, value)
        self._context.referenced_names["deployments"].update(config.deployments)
        for index, deployment_name in enumerate(config.deployments):
            if deployment_name not in self._deployments:
                path = ("keys", name, "deployments", index)
                self._context.check_reference(path, "deployments", "deployment", deployment_name)
        allowed = tuple(d for d in config.deployments if d in self._deployments)
        properties = (allowed, frozenset(config.tags.items()), frozenset(config.may))
        equal_key = self._equal_keys.get(properties)
        if equal_key is not None:
            return replace(equal_key, name=name)
        key_deployments = {}
        for deployment_name in allowed:
            deployment = self._deployments[deployment_name]
            tags = deployment.tags
            if config.tags:
                tags = MappingProxyType(dict(sorted({**tags, **config.tags}.items())))
            key_deployments[deployment_name] = deployment.bind_to_key(name, tags, self._client_tags)
        chat = {n: d for n, d in key_deployments.items() if not d.deployment.only_passthrough}
        by_model = group_by_model(chat)
        key = VirtualKey(
            name=name,
            deployments=MappingProxyType(key_deployments),
            by_model=MappingProxyType(by_model),
            models=list_models(chat, by_model, self._models_date),
            tags=MappingProxyType(dict(sorted(config.tags.items()))),
            may_refresh="refresh" in config.may,
            controls_sampling="trace" in config.may,
        )
        if not any(d.deployment.has_key_rules for d in key_deployments.values()):
            self._equal_keys[properties] = key
        return key

    def list_credentials(self, keys: Mapping[str, VirtualKey]) -> Iterator[Credential]:
        """Yield the credentials of all keys, and report digests that two keys have."""
        owners: dict[str, str] = {}
        for name, config in self._context.policies.keys.items():
            for index, secret in enumerate(config.sha256):
                if secret.digest in owners:
                    path = self._context.document.get_written_path(("keys", name, "sha256", index))
                    message = f"is already the digest of key {quote(owners[secret.digest])}"
                    self._context.report(path, message)
                owners.setdefault(secret.digest, name)
                times = [time for time in (secret.until, config.expires) if time is not None]
                expires_at = min(times, default=None)
                yield Credential(bytes.fromhex(secret.digest), keys[name], expires_at)


def group_by_model(
    deployments: Mapping[str, KeyDeployment],
) -> dict[str, tuple[KeyDeployment, ...]]:
    """Return the deployments that serve each name.

    The name of a deployment selects only that deployment. The name of a model selects all
    deployments with that model.
    """
    by_model: dict[str, list[KeyDeployment]] = {}
    for deployment in deployments.values():
        for model in deployment.deployment.routes.by_model:
            by_model.setdefault(model, []).append(deployment)
    by_name = {name: (d,) for d in deployments.values() for name in d.deployment.names}
    return {model: tuple(group) for model, group in by_model.items()} | by_name


def list_models(
    deployments: Mapping[str, KeyDeployment], by_model: DeploymentsByModel, default_date: date
) -> Mapping[str, ListedModel]:
    """Return all names that a key may call: deployments, then models, each in alphabetical order.

    ``default_date`` is the date of a model whose name contains none.
    """
    main_names = {
        name for d in deployments.values() for name in _list_unambiguous_names(d, by_model)
    }
    models = {}
    for name in sorted(by_model, key=lambda name: (name not in deployments, name)):
        targets = by_model[name][0].deployment.get_candidates(name).active_targets
        if targets:
            owners = {target.upstream.provider or target.upstream.name for target in targets}
            models[name] = ListedModel(
                id=name,
                owner=owners.pop() if len(owners) == 1 else SHARED_OWNER,
                created=_parse_model_date(targets[0].model) or default_date,
                is_main=name in main_names,
            )
    return MappingProxyType(models)


def _list_unambiguous_names(
    key_deployment: KeyDeployment, by_model: DeploymentsByModel
) -> Iterator[str]:
    """Yield the name of a deployment, and one unambiguous name for each of its models."""
    deployment = key_deployment.deployment
    yield deployment.name
    targets = {target.model: target for target in deployment.routes.candidates.active_targets}
    for model, target in targets.items():
        prefixes = filter(None, (target.upstream.provider, target.upstream.name))
        for name in (model, *(f"{prefix}/{model}" for prefix in prefixes)):
            models = {
                candidate.model for candidate in deployment.get_candidates(name).active_targets
            }
            if VirtualKey.find_sole_or_default(by_model[name]) is key_deployment and models == {
                model
            }:
                yield name
                break


def _parse_model_date(model: str) -> date | None:
    """Return the date in a model's name, as in ``gpt-4o-mini-2024-07-18``."""
    match = _DATE.search(model)
    try:
        return None if match is None else date(*map(int, match.groups()))
    except ValueError:
        return None
