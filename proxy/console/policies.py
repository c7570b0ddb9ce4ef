"""The policy page: the active revision with the use of its parts, and the candidate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from proxy.console import Data
from proxy.console.overview import active_revision, in_ms, rejection_data
from proxy.console.series import TimeSeries
from proxy.policy import schema
from proxy.policy.decide.rules import Rule
from proxy.policy.decide.snapshot import Deployment, Snapshot
from proxy.policy.files.load import read
from proxy.policy.files.source import KeyPath, PolicyError
from proxy.policy.review.compare import Candidate
from proxy.policy.store import PolicyStore
from proxy.telemetry.metrics import Metrics

HOUR_S = 3600.0
Increase = Callable[..., Mapping[tuple[str, ...], float]]
"""Returns the increase of a counter in the last hour, by the labels at positions."""


@dataclass(slots=True)
class PolicyPage:
    """Builds the data of the page. ``folder`` and ``candidate_folder`` are the policy folders.

    Guards, conditions, descriptions and warnings are in the files only. The first request of a
    revision reads them. They are unknown if the files have already changed and were rejected.
    """

    policies: PolicyStore
    folder: Path
    metrics: Metrics
    series: TimeSeries
    now: Callable[[], float]
    candidate: Candidate | None = None
    candidate_folder: Path | None = None
    _texts: Data = field(default_factory=dict)

    def data(self) -> Data:
        """Return the page. It blocks while files are read. Times are milliseconds since 1970."""
        snapshot = self.policies.current
        texts = self._file_texts(snapshot)
        earlier, totals = self.series.totals_before(HOUR_S), self.series.totals()
        increase = partial(totals.increase, earlier)
        return {
            "now": in_ms(self.now()),
            **active_revision(self.policies),
            "folder": str(self.folder),
            "deployments": [
                _deployment(deployment, snapshot, increase, texts)
                for deployment in snapshot.deployments.values()
            ],
            "rules": list(_rules(snapshot, increase, texts)),
            "guards": list(_guards(snapshot, increase, texts)) if texts else None,
            "keys": list(self._keys(snapshot)),
            "tags": [
                {
                    "name": name,
                    "values": sorted(tag.values or ()),
                    "by_clients": tag.set_by_clients,
                    "source": snapshot.source_of("tags", name),
                }
                for name, tag in snapshot.tags.items()
            ],
            "warnings": texts.get("warnings"),
            "candidate": self._candidate(),
        }

    def _file_texts(self, snapshot: Snapshot) -> Data:
        """Return what only the files of the active revision say, empty if they have changed."""
        if self._texts.get("revision") == snapshot.revision:
            return self._texts
        from proxy.policy.review.check import warnings  # noqa: PLC0415  # its lints load guards

        try:
            loaded = read(self.folder)
            if loaded.revision == snapshot.revision:
                problems = warnings(loaded, snapshot, datetime.now(UTC))
                self._texts = {
                    "revision": snapshot.revision,
                    "config": loaded.policies,
                    "warnings": [str(problem) for problem in problems],
                }
                return self._texts
        except (PolicyError, OSError):
            pass
        return {}

    def _keys(self, snapshot: Snapshot) -> Iterator[Data]:
        last_used: dict[str, float] = {}
        series = self.metrics.series("headrace_key_last_used_timestamp_seconds")
        for labels, gauge in series.items():
            last_used[labels[0]] = max(last_used.get(labels[0], 0.0), gauge.value)
        now = datetime.fromtimestamp(self.now(), UTC)
        expiries: dict[str, list[datetime | None]] = {}
        for credential in snapshot.credentials.values():
            expiries.setdefault(credential.key.name, []).append(credential.expires_at)
        for key in snapshot.keys.values():
            times = expiries.get(key.name, [])
            ends = [time for time in times if time is not None]
            yield {
                "name": key.name,
                "deployments": list(key.deployments),
                "tags": dict(key.tags),
                "last_used": in_ms(last_used[key.name]) if key.name in last_used else None,
                "expires": in_ms(max(ends).timestamp())
                if ends and len(ends) == len(times)
                else None,
                "rejected": snapshot.rejection_reason(key.name, now),
                "source": snapshot.source_of("keys", key.name),
            }

    def _candidate(self) -> Data | None:
        if self.candidate is None:
            return None
        decided = {
            labels: counter.value
            for labels, counter in self.metrics.series("headrace_candidate_decisions_total").items()
        }
        explanation = self.candidate.explain()
        return {
            "revision": explanation.revision,
            "folder": str(self.candidate_folder),
            "rejected": rejection_data(self.candidate.rejection()),
            "same": round(sum(n for (kind, _), n in decided.items() if kind == "same")),
            "changes": [decision.data() for decision in explanation.decisions],
        }


def _deployment(
    deployment: Deployment, snapshot: Snapshot, increase: Increase, texts: Mapping[str, Any]
) -> Data:
    config: schema.PoliciesConfig | None = texts.get("config")
    section = config.deployments.get(deployment.name) if config is not None else None
    weights = dict(
        zip(
            deployment.routes.candidates.targets, deployment.routes.candidates.weights, strict=False
        )
    )
    path = ("deployments", deployment.name)
    lists: tuple[tuple[str, Sequence[Any]], ...] = (
        ("target", deployment.routes.targets),
        ("fallback", deployment.fallback),
    )
    return {
        "name": deployment.name,
        "description": section.description if section is not None else "",
        "policy": section.policy if section is not None else None,
        "tags": dict(deployment.tags),
        "keys": [key.name for key in snapshot.keys.values() if deployment.name in key.deployments],
        "calls": round(increase("headrace_requests_total", 0).get((deployment.name,), 0.0)),
        "targets": [
            {
                "role": role,
                "upstream": target.upstream.name,
                "model": target.model,
                "weight": weights.get(target) if role == "target" else None,
                "source": snapshot.source_of(
                    *path, "targets" if role == "target" else "fallback", index
                ),
            }
            for role, targets in lists
            for index, target in enumerate(targets)
        ],
        "source": snapshot.source_of(*path),
    }


def _rules(snapshot: Snapshot, increase: Increase, texts: Mapping[str, Any]) -> Iterator[Data]:
    applied = increase("headrace_policy_rules_total", 1)
    shadowed = increase("headrace_policy_shadow_rules_total", 1)
    conditions = dict(_conditions(texts.get("config")))
    rules: dict[str, Rule] = {}
    for deployment in snapshot.deployments.values():
        for rule in deployment.rules:
            rules.setdefault(rule.name, rule)
    for rule in rules.values():
        yield {
            "name": rule.name,
            "when": conditions.get(rule.name),
            "effect": "; ".join(text for _, text in rule.effects()),
            "mode": "shadow" if rule.shadow else "enforce",
            "applied": round((shadowed if rule.shadow else applied).get((rule.name,), 0.0)),
            "source": snapshot.source_of(*rule.path),
        }


def _conditions(config: schema.PoliciesConfig | None) -> Iterator[tuple[str, str]]:
    """Yield the name of each rule, with its condition as in the file."""
    for name, policy in (config.policies if config is not None else {}).items():
        for rule in policy.rules:
            text = "always"
            if rule.when is not None:
                condition = rule.when.model_dump(mode="json", exclude_unset=True, by_alias=True)
                text = yaml.safe_dump(condition, default_flow_style=True, width=1000).strip()
            yield f"{name}/{rule.name}", text


def _guards(snapshot: Snapshot, increase: Increase, texts: Mapping[str, Any]) -> Iterator[Data]:
    """Yield the guards of the policies, with their verdicts in the last hour."""
    verdicts = increase("headrace_guard_decisions_total", 0, 1, 2)
    for owner, path, is_shadow, stage, guards in _guard_lists(texts.get("config")):
        for index, guard in enumerate(guards):
            name = guard.name or guard.guard
            counts = {
                labels[2]: round(count)
                for labels, count in verdicts.items()
                if labels[:2] == (name, stage)
            }
            yield {
                "policy": owner,
                "stage": stage,
                "name": name,
                "action": guard.action,
                "mode": "shadow" if is_shadow or guard.mode == "shadow" else "enforce",
                "inspected": sum(counts.values()),
                "found": sum(counts.get(v, 0) for v in ("flagged", "masked", "blocked")),
                "source": snapshot.source_of(*path, stage, index),
            }


def _guard_lists(
    config: schema.PoliciesConfig | None,
) -> Iterator[tuple[str, KeyPath, bool, str, Sequence[Any]]]:
    """Yield the guards of each policy and rule: owner, path, shadow mode, stage and guards."""
    for name, policy in (config.policies if config is not None else {}).items():
        owners: list[tuple[str, KeyPath, Any]] = [(name, ("policies", name), policy)]
        owners += [
            (f"{name}/{rule.name}", ("policies", name, "rules", index), rule)
            for index, rule in enumerate(policy.rules)
        ]
        for owner, path, part in owners:
            is_shadow = "shadow" in (policy.mode, part.mode)
            yield owner, path, is_shadow, "input", part.input or ()
            yield owner, path, is_shadow, "output", part.output or ()
