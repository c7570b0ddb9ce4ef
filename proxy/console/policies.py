"""The policy page: the active revision with the use of its parts, and the candidate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import yaml

from proxy.console import Data
from proxy.console.limits import LimitRows
from proxy.console.overview import make_rejection_data, make_revision_data
from proxy.console.series import HOUR_S, Period, Sources, to_epoch_ms
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.load import load_policies_with_problems
from proxy.policy.files.source import PolicyError
from proxy.policy.schema import PoliciesConfig, WhenConfig


@dataclass(slots=True)
class PolicyPage:
    """Builds the page, in one thread.

    Conditions, descriptions and warnings are read from the files, once for each revision. They are
    unknown if the files have already changed.
    """

    sources: Sources
    _revision: str = ""
    _config: PoliciesConfig = field(default_factory=PoliciesConfig)
    _warnings: list[str] | None = None

    def build_page(self, limits: LimitRows) -> Data:
        """Return the page. It blocks while files are read. Times are milliseconds since 1970."""
        sources, snapshot = self.sources, self.sources.policies.current
        self._read_files(snapshot)
        period = sources.series.get_last(HOUR_S)
        return {
            "now": to_epoch_ms(sources.now()),
            **make_revision_data(sources.policies),
            "folder": str(sources.folder),
            "deployments": list(_make_deployment_rows(snapshot, period, self._config)),
            "rules": list(_make_rule_rows(snapshot, period, self._config)),
            "guards": list(_make_guard_rows(snapshot, period)),
            "limits": limits,
            "keys": list(_make_key_rows(sources, snapshot)),
            "tags": [
                {
                    "name": name,
                    "values": sorted(tag.allowed.values or ()),
                    "by_clients": tag.set_by_clients,
                    "source": snapshot.find_location("tags", name),
                }
                for name, tag in snapshot.tags.items()
            ],
            "warnings": self._warnings,
            "candidate": _make_candidate_data(sources),
        }

    def _read_files(self, snapshot: Snapshot) -> None:
        if self._revision == snapshot.revision:
            return
        from proxy.policy.review.check import list_warnings  # noqa: PLC0415  # its lints load guards

        self._revision, self._config, self._warnings = "", PoliciesConfig(), None
        with suppress(PolicyError, OSError):
            loaded = load_policies_with_problems(self.sources.folder)
            if loaded.revision == snapshot.revision:
                self._warnings = list(map(str, list_warnings(loaded, snapshot, datetime.now(UTC))))
                self._config, self._revision = loaded.policies, loaded.revision


def _make_key_rows(sources: Sources, snapshot: Snapshot) -> Iterator[Data]:
    last_used, ends = dict[str, float](), dict[str, float]()
    series = sources.metrics.copy_series("headrace_key_last_used_timestamp_seconds")
    for (name, *_), gauge in series.items():
        last_used[name] = max(last_used.get(name, 0.0), gauge.value)
    for credential in snapshot.credentials.values():
        name, end = credential.key.name, credential.expires_at
        ends[name] = max(ends.get(name, 0.0), end.timestamp() if end else math.inf)
    now = datetime.fromtimestamp(sources.now(), UTC)
    for name, key in snapshot.keys.items():
        end_at = ends.get(name, math.inf)
        yield {
            "name": name,
            "deployments": list(key.deployments),
            "tags": dict(key.tags),
            "last_used": to_epoch_ms(last_used[name]) if name in last_used else None,
            "expires": None if end_at == math.inf else to_epoch_ms(end_at),
            "rejected": snapshot.find_rejection_reason(name, now),
            "source": snapshot.find_location("keys", name),
        }


def _make_candidate_data(sources: Sources) -> Data | None:
    if sources.candidate is None:
        return None
    results = sources.metrics.copy_series("headrace_candidate_decisions_total").items()
    explanation = sources.candidate.explain_latest_changes()
    return {
        "revision": explanation.revision,
        "folder": str(sources.candidate_folder),
        "rejected": make_rejection_data(sources.candidate.get_rejection()),
        "same": round(sum(counter.value for (kind, _), counter in results if kind == "same")),
        "changes": [decision.to_json() for decision in explanation.decisions],
    }


def _make_deployment_rows(
    snapshot: Snapshot, period: Period, config: PoliciesConfig
) -> Iterator[Data]:
    calls = period.count("headrace_requests_total", 0)
    for name, deployment in snapshot.deployments.items():
        section = config.deployments.get(name)
        candidates = deployment.routes.candidates
        weights = dict(zip(candidates.targets, candidates.weights, strict=False))
        yield {
            "name": name,
            "description": section and section.description,
            "policy": section and section.policy,
            "tags": dict(deployment.tags),
            "keys": [key.name for key in snapshot.keys.values() if name in key.deployments],
            "calls": calls.get((name,), 0),
            "targets": [
                {
                    "role": str(path[-2]).removesuffix("s"),
                    "upstream": target.upstream.name,
                    "model": target.model,
                    "weight": weights.get(target) if path[-2] == "targets" else None,
                    "source": snapshot.find_location(*path),
                }
                for path, target in deployment.targets
                if path[0] == "deployments"
            ],
            "source": snapshot.find_location("deployments", name),
        }


def _make_rule_rows(snapshot: Snapshot, period: Period, config: PoliciesConfig) -> Iterator[Data]:
    applied = period.count("headrace_policy_rules_total", 1)
    shadowed = period.count("headrace_policy_shadow_rules_total", 1)
    conditions = {
        f"{policy_name}/{rule.name}": _format_condition(rule.when)
        for policy_name, policy in config.policies.items()
        for rule in policy.rules
    }
    rules = {rule.name: rule for d in snapshot.deployments.values() for rule in d.rules}
    for name, rule in rules.items():
        yield {
            "name": name,
            "when": conditions.get(name),
            "effect": "; ".join(text for _, text in rule.iter_effects()),
            "mode": "shadow" if rule.shadow else "enforce",
            "applied": (shadowed if rule.shadow else applied).get((name,), 0),
            "source": snapshot.find_location(*rule.path),
        }


def _format_condition(when: WhenConfig | None) -> str:
    """Return a condition as in the file."""
    if when is None:
        return "always"
    condition = when.model_dump(mode="json", exclude_unset=True, by_alias=True)
    return yaml.safe_dump(condition, default_flow_style=True, width=1000).strip()


def _make_guard_rows(snapshot: Snapshot, period: Period) -> Iterator[Data]:
    """Yield the guards of policies and rules, with their verdicts in the last hour."""
    verdicts = period.count("headrace_guard_decisions_total", 0, 1, 2)
    rules = {rule.path: rule.name for d in snapshot.deployments.values() for rule in d.rules}
    plans = (plan for d in snapshot.deployments.values() for plan in d.guard_plans)
    guards = {guard.path: (stage, guard) for plan in plans for stage, guard in plan.by_stage}
    for path, (stage, guard) in guards.items():
        key = guard.name, stage
        counts = {labels[2]: n for labels, n in verdicts.items() if labels[:2] == key}
        yield {
            "policy": rules.get(path[:4], path[1]),
            "stage": stage,
            "name": guard.name,
            "action": guard.action,
            "mode": "shadow" if guard.shadow else "enforce",
            "inspected": sum(counts.values()),
            "found": sum(counts.get(v, 0) for v in ("flagged", "masked", "blocked")),
            "source": snapshot.find_location(*path),
        }
