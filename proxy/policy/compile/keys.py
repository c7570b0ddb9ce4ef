"""Compiles virtual keys: their deployments, credentials and lists of models."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from types import MappingProxyType

from proxy.errors.words import quoted
from proxy.policy import schema
from proxy.policy.compile.context import CompileContext
from proxy.policy.decide.snapshot import Credential, Deployment, KeyDeployment, VirtualKey
from proxy.types import Target
from proxy.types.target import ListedModel

SEVERAL_OWNERS = "headrace"
"""Owner of a name that leads to models of several owners."""
_DATE = re.compile(r"(?<!\d)(20\d\d)-?([01]\d)-?([0-3]\d)(?!\d)")
ReachByModel = Mapping[str, tuple[KeyDeployment, ...]]


class KeyCompiler:
    """Compiles keys. Keys that differ only in their names share everything else."""

    def __init__(
        self, context: CompileContext, deployments: Mapping[str, Deployment], models_date: date
    ) -> None:
        self._context = context
        self._deployments = deployments
        self._models_date = models_date
        self._equal_keys: dict[Hashable, VirtualKey] = {}
        tags = context.policies.tags.items()
        self._client_tags = frozenset(name for name, tag in tags if tag.caller)

    def key(self, name: str, config: schema.KeyConfig) -> VirtualKey:
        for tag, value in config.tags.items():
            self._context.check_tag(("keys", name, "tags", tag), tag, value)
        for index, wanted in enumerate(config.deployments):
            if wanted not in self._deployments:
                path = ("keys", name, "deployments", index)
                self._context.unknown(path, "deployments", "deployment", wanted)
        allowed = tuple(each for each in config.deployments if each in self._deployments)
        properties = (allowed, frozenset(config.tags.items()), frozenset(config.may))
        equal_key = self._equal_keys.get(properties)
        if equal_key is not None:
            return replace(equal_key, name=name)
        reaches = {}
        for each in allowed:
            deployment = self._deployments[each]
            tags = (
                sorted_tags({**deployment.tags, **config.tags}) if config.tags else deployment.tags
            )
            reaches[each] = deployment.for_key(name, tags, self._client_tags)
        chat = {n: reach for n, reach in reaches.items() if not reach.deployment.only_passthrough}
        by_model = reach_by_model(chat)
        key = VirtualKey(
            name=name,
            deployments=MappingProxyType(reaches),
            named=MappingProxyType(by_model),
            listing=listed_models(chat, by_model, self._models_date),
            tags=sorted_tags(config.tags),
            may_refresh="refresh" in config.may,
            controls_sampling="trace" in config.may,
        )
        if not any(reach.deployment.tells_keys_apart for reach in reaches.values()):
            self._equal_keys[properties] = key
        return key

    def credentials(self, keys: Mapping[str, VirtualKey]) -> Iterator[Credential]:
        """Yield the credentials of all keys, each with its own end or that of its key."""
        owners: dict[str, str] = {}
        for name, config in self._context.policies.keys.items():
            for index, secret in enumerate(config.sha256):
                if secret.digest in owners:
                    path = self._context.document.written(("keys", name, "sha256", index))
                    message = f"is already the digest of key {quoted(owners[secret.digest])}"
                    self._context.complain(path, message)
                owners.setdefault(secret.digest, name)
                ends = [end for end in (secret.until, config.expires) if end is not None]
                until = min(ends, default=None)
                yield Credential(bytes.fromhex(secret.digest), keys[name], until)


def sorted_tags(tags: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(sorted(tags.items())))


def reach_by_model(reaches: Mapping[str, KeyDeployment]) -> dict[str, tuple[KeyDeployment, ...]]:
    """Return the deployments that serve each name.

    The name of a deployment leads to it alone, the name of a model to all deployments that have it.
    """
    by_model: dict[str, list[KeyDeployment]] = {}
    for reach in reaches.values():
        for model in reach.deployment.routes.serves:
            by_model.setdefault(model, []).append(reach)
    by_name = {name: (each,) for each in reaches.values() for name in each.deployment.names}
    return {model: tuple(each) for model, each in by_model.items()} | by_name


def listed_models(
    reaches: Mapping[str, KeyDeployment], by_model: ReachByModel, default_date: date
) -> Mapping[str, ListedModel]:
    """Return all names that a key may call: deployments, then models, each in alphabetical order.

    ``default_date`` is the date of a model whose name contains none.
    """
    main_names = {name for reach in reaches.values() for name in _main_names(reach, by_model)}
    models = {}
    for name in sorted(by_model, key=lambda name: (name not in reaches, name)):
        targets = by_model[name][0].deployment.candidates(name).active
        if targets:
            owners = {target.upstream.provider or target.upstream.name for target in targets}
            models[name] = ListedModel(
                id=name,
                owner=owners.pop() if len(owners) == 1 else SEVERAL_OWNERS,
                created=_date_in(targets[0].model) or default_date,
                is_main=name in main_names,
            )
    return MappingProxyType(models)


def _main_names(reach: KeyDeployment, by_model: ReachByModel) -> Iterator[str]:
    """Yield the name of a deployment, and one name for each of its models that leads only to it."""
    yield reach.deployment.name
    targets = {target.model: target for target in reach.deployment.routes.candidates.active}
    for model, target in targets.items():
        prefixes = filter(None, (target.upstream.provider, target.upstream.name))
        names = (model, *(f"{prefix}/{model}" for prefix in prefixes))
        yield from [name for name in names if _leads_to(target, name, reach, by_model)][:1]


def _leads_to(target: Target, name: str, reach: KeyDeployment, by_model: ReachByModel) -> bool:
    models = {each.model for each in reach.deployment.candidates(name).active}
    return VirtualKey.default_of(by_model[name]) is reach and models == {target.model}


def _date_in(model: str) -> date | None:
    """Return the date in a model's name, as in ``gpt-4o-mini-2024-07-18``."""
    match = _DATE.search(model)
    try:
        return None if match is None else date(*map(int, match.groups()))
    except ValueError:
        return None
