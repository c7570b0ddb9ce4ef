"""The policy page: the active revision with the use of its parts, and the candidate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import yaml

from proxy.console import Data
from proxy.console.overview import make_rejected_reload_data, make_revision_data, to_epoch_ms
from proxy.console.series import HOUR_S, Sources
from proxy.policy import schema
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.load import load_policies_with_problems
from proxy.policy.files.source import KeyPath, PolicyError

CountUses = Callable[..., Mapping[tuple[str, ...], int]]
"""Returns the increase of a counter in the last hour, by the labels at positions."""


class FileTexts(NamedTuple):
    """Parts of a revision that only its files contain. ``warnings`` is None if they are unknown."""

    revision: str
    config: schema.PoliciesConfig
    warnings: list[str] | None


@dataclass(slots=True)
class PolicyPage:
    """Builds the data of the page.

    Guards, conditions, descriptions and warnings are in the files only. The first request of a
    revision reads them. They are unknown if the files have already changed and were rejected.
    """

    sources: Sources
    _texts: FileTexts | None = None

    def build_page(self) -> Data:
        """Return the page. It blocks while files are read. Times are milliseconds since 1970."""
        sources, snapshot = self.sources, self.sources.snapshot
        _, config, warnings = self._read_texts(snapshot)
        count_uses = sources.series.get_last(HOUR_S).count
        guards = list(_make_guard_rows(snapshot, count_uses, config))
        return {
            "now": to_epoch_ms(sources.now()),
            **make_revision_data(sources.policies),
            "folder": str(sources.folder),
            "deployments": list(_make_deployment_rows(snapshot, count_uses, config)),
            "rules": list(_make_rule_rows(snapshot, count_uses, config)),
            "guards": None if warnings is None else guards,
            "keys": list(_make_key_rows(sources, snapshot)),
            "tags": [
                {
                    "name": name,
                    "values": sorted(tag.values or ()),
                    "by_clients": tag.set_by_clients,
                    "source": snapshot.find_location("tags", name),
                }
                for name, tag in snapshot.tags.items()
            ],
            "warnings": warnings,
            "candidate": _make_candidate_data(sources),
        }

    def _read_texts(self, snapshot: Snapshot) -> FileTexts:
        if self._texts is not None and self._texts.revision == snapshot.revision:
            return self._texts
        from proxy.policy.review.check import list_warnings  # noqa: PLC0415  # its lints load guards

        try:
            loaded = load_policies_with_problems(self.sources.folder)
            if loaded.revision == snapshot.revision:
                problems = list_warnings(loaded, snapshot, datetime.now(UTC))
                self._texts = FileTexts(loaded.revision, loaded.policies, list(map(str, problems)))
                return self._texts
        except (PolicyError, OSError):
            pass
        return FileTexts(snapshot.revision, schema.PoliciesConfig(), None)


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
        "rejected": make_rejected_reload_data(sources.candidate.get_rejection()),
        "same": round(sum(counter.value for (kind, _), counter in results if kind == "same")),
        "changes": [decision.to_json() for decision in explanation.decisions],
    }


def _make_deployment_rows(
    snapshot: Snapshot, count_uses: CountUses, config: schema.PoliciesConfig
) -> Iterator[Data]:
    calls = count_uses("headrace_requests_total", 0)
    for name, deployment in snapshot.deployments.items():
        section = config.deployments.get(name)
        path, candidates = ("deployments", name), deployment.routes.candidates
        weights = dict(zip(candidates.targets, candidates.weights, strict=False))
        targets = [
            {
                "role": role,
                "upstream": target.upstream.name,
                "model": target.model,
                "weight": weights.get(target) if role == "target" else None,
                "source": snapshot.find_location(*path, section_name, index),
            }
            for role, section_name, targets in (
                ("target", "targets", deployment.routes.targets),
                ("fallback", "fallback", deployment.fallback),
            )
            for index, target in enumerate(targets)
        ]
        yield {
            "name": name,
            "description": section.description if section is not None else "",
            "policy": section.policy if section is not None else None,
            "tags": dict(deployment.tags),
            "keys": [key.name for key in snapshot.keys.values() if name in key.deployments],
            "calls": calls.get((name,), 0),
            "targets": targets,
            "source": snapshot.find_location(*path),
        }


def _make_rule_rows(
    snapshot: Snapshot, count_uses: CountUses, config: schema.PoliciesConfig
) -> Iterator[Data]:
    applied = count_uses("headrace_policy_rules_total", 1)
    shadowed = count_uses("headrace_policy_shadow_rules_total", 1)
    conditions = {
        name: getattr(part, "when", None) for name, _, _, part in _iter_policies_and_rules(config)
    }
    rules = {rule.name: rule for d in snapshot.deployments.values() for rule in d.rules}
    for name, rule in rules.items():
        yield {
            "name": name,
            "when": _format_condition(conditions[name]) if name in conditions else None,
            "effect": "; ".join(text for _, text in rule.iter_effects()),
            "mode": "shadow" if rule.shadow else "enforce",
            "applied": (shadowed if rule.shadow else applied).get((name,), 0),
            "source": snapshot.find_location(*rule.path),
        }


def _iter_policies_and_rules(
    config: schema.PoliciesConfig,
) -> Iterator[tuple[str, KeyPath, bool, Any]]:
    """Yield each policy and each of its rules: full name, path, shadow mode and configuration."""
    for name, policy in config.policies.items():
        yield name, ("policies", name), policy.mode == "shadow", policy
        for index, rule in enumerate(policy.rules):
            is_shadow, path = (
                "shadow" in (policy.mode, rule.mode),
                ("policies", name, "rules", index),
            )
            yield f"{name}/{rule.name}", path, is_shadow, rule


def _format_condition(when: schema.WhenConfig | None) -> str:
    """Return a condition as in the file."""
    if when is None:
        return "always"
    condition = when.model_dump(mode="json", exclude_unset=True, by_alias=True)
    return yaml.safe_dump(condition, default_flow_style=True, width=1000).strip()


def _make_guard_rows(
    snapshot: Snapshot, count_uses: CountUses, config: schema.PoliciesConfig
) -> Iterator[Data]:
    """Yield the guards of policies and rules, with their verdicts in the last hour."""
    verdicts = count_uses("headrace_guard_decisions_total", 0, 1, 2)
    for owner, path, is_shadow, part in _iter_policies_and_rules(config):
        for stage in ("input", "output"):
            for index, guard in enumerate(getattr(part, stage) or ()):
                key = guard.name or guard.guard, stage
                counts = {labels[2]: n for labels, n in verdicts.items() if labels[:2] == key}
                yield {
                    "policy": owner,
                    "stage": stage,
                    "name": key[0],
                    "action": guard.action,
                    "mode": "shadow" if is_shadow or guard.mode == "shadow" else "enforce",
                    "inspected": sum(counts.values()),
                    "found": sum(counts.get(v, 0) for v in ("flagged", "masked", "blocked")),
                    "source": snapshot.find_location(*path, stage, index),
                }
