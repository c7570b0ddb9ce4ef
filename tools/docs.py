"""Writes the generated parts of the documentation, between their markers.

python -m tools.docs           # write them
python -m tools.docs --check   # say which are not what they should be
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import yaml

from bench import delays, pictures, results, table
from proxy.dialects import DIALECTS, DIALECTS_BY_HEADER, DIALECTS_OF_PATH, ROUTES
from proxy.dialects.base import AUTHORIZATION, Dialect
from proxy.dialects.request_headers import BEARER_HEADER, list_key_headers
from proxy.dialects.vendors.openai import FIELDS, PATHS
from proxy.errors import LimitExceeded, ProxyError
from proxy.errors.table import ERRORS, STATUSES, TYPES, list_codes
from proxy.fields.field_table import ROWS
from proxy.guards.text.walk import IGNORED_FIELDS
from proxy.limits.kinds import KINDS
from proxy.telemetry.catalog.table import METRICS
from proxy.types.providers import ENDPOINTS, PROVIDERS, Provider
from tools import (
    boundary_quality,
    content_losses,
    disguises,
    generated_texts,
    guard_quality,
    guards,
    losses,
    messages,
    package_graph,
    policy_keys,
    settings_table,
)

DOCS = Path(__file__).parents[1] / "docs"


def metrics() -> Iterator[str]:
    """Yield a list item per metric. A counter is recognized by its suffix."""
    for metric in METRICS:
        counter = metric.kind == "counter" and metric.name.endswith("_total")
        traits = [*([] if counter else [metric.kind]), *(f"`{label}`" for label in metric.labels)]
        suffix = f" ({', '.join(traits)})" if traits else ""
        yield f"- `{metric.name}`{suffix}: {metric.help}"


def codes() -> Iterator[str]:
    yield "| code | status | type | when |"
    yield "|---|---|---|---|"
    for error in ERRORS:
        listed = ", ".join(f"`{code}`" for code in list_codes(error))
        when = (error.__doc__ or "").splitlines()[0].replace("``", "`")
        types = TYPES.get(error) or ", ".join(_types(error))
        yield f"| {listed} | {STATUSES.get(error, error.status)} | {types} | {when} |"


def _types(error: type[ProxyError]) -> list[str]:
    kinds = [kind.name for kind in KINDS.values() if kind.counter_type != "budget"]
    return [f"`{name}`" for name in (kinds if error is LimitExceeded else [error.type])]


def routes() -> Iterator[str]:
    """Yield a row per dialect, endpoint and set of prefixes, with all of its paths."""
    paths: dict[tuple[str, str, str], tuple[list[str], list[str]]] = {}
    for (method, path), (dialect, endpoint) in ROUTES.items():
        sharing = [
            *(item.name for item in DIALECTS_BY_HEADER[dialect].values()),
            *DIALECTS_OF_PATH[path][1:],
        ]
        dialects = f"{dialect} (or {', '.join(sharing)})" if sharing else dialect
        start = next((prefix for prefix in PREFIXES if path.startswith(f"{prefix}/")), "")
        start = "" if "/deployments/" in path else start
        methods, prefixes = paths.setdefault((path[len(start) :], dialects, endpoint), ([], []))
        methods += [method] if method not in methods else []
        prefixes += [start] if start not in prefixes else []
    rows: dict[tuple[str, str, str], list[str]] = {}
    for (path, dialects, kind), (methods, prefixes) in paths.items():
        shared = ", ".join(f"`{prefix}`" if prefix else "none" for prefix in prefixes)
        full = path if len(prefixes) > 1 else prefixes[0] + path
        row = rows.setdefault((dialects, kind, shared if len(prefixes) > 1 else ""), [])
        row.append(f"{', '.join(methods)} `{full}`")
    yield _row("dialect", "endpoint", "paths", "prefixes")
    yield "|---|---|---|---|"
    for (dialects, kind, shared), items in rows.items():
        yield _row(dialects, kind, "; ".join(items), shared)


PREFIXES = ("/openai/v1", "/openai", "/v1")


def dialects() -> Iterator[str]:
    vendors = ", ".join(f"`{name}`" for name, item in DIALECTS.items() if item.provider == name)
    yield f"`dialect` is one of {', '.join(f'`{name}`' for name in DIALECTS)}:"
    yield f"see [dialects.md](dialects.md). {vendors} also set the `provider`,"
    yield "which is otherwise unknown."


DEPLOYMENTS = {
    "openai": "`/openai/deployments/NAME/...`",
    "portkey": "`x-portkey-config` (a saved id), `x-portkey-virtual-key`",
    "scale": "the third part of `vendor/model/deployment`",
    "enkrypt": "`x-enkrypt-deployment`",
}
TAGS = {"portkey": "`x-portkey-metadata`", "enkrypt": "`x-enkrypt-tags`"}
UPSTREAM_NOTES = {
    "portkey": "set `x-portkey-virtual-key` or `-config` in `headers`",
    "scale": "say `x-selected-account-id` under `headers:`",
}


def clients() -> Iterator[str]:
    yield "| dialect | credential | deployment | tags |"
    yield "|---|---|---|---|"
    yield "| all | | `x-headrace-deployment`, or `model` | `x-headrace-tags: k=v,label` |"
    for name, dialect in DIALECTS.items():
        headers = ", or ".join(f"`{header}`" for header in list_key_headers(dialect.client))
        yield _row(name, headers, DEPLOYMENTS.get(name, ""), TAGS.get(name, ""))


def servers() -> Iterator[str]:
    yield "| dialect | prefix | credential sent |"
    yield "|---|---|---|"
    for name, dialect in DIALECTS.items():
        server = dialect.server
        vendor_paths = set(server.paths.values()) - set(PATHS.values())
        paths = ", ".join(f"`{path}`" for path in sorted(vendor_paths))
        prefix = f"`{server.prefix}`" + (f" ({paths})" if paths else "")
        yield _row(name, prefix, "; ".join(_credential(dialect)))


def _credential(dialect: Dialect) -> Iterator[str]:
    """Yield the header of a dialect's credential as an upstream gets it, and what else it needs."""
    header = dialect.server.key_header
    yield f"`{BEARER_HEADER if header == AUTHORIZATION else header}`"
    yield from (f"set `{header}` in `headers`" for header in dialect.server.required_headers)
    if dialect.name in UPSTREAM_NOTES:
        yield UPSTREAM_NOTES[dialect.name]
    if not dialect.server.can_stream:
        yield "does not stream: the response is sent as one chunk"


def _row(*cells: str) -> str:
    return "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"


def providers() -> Iterator[str]:
    yield _row("`provider`", "endpoints", "not sent", "differences")
    yield "|---|---|---|---|"
    for row in PROVIDERS.values():
        if row.dialect == "openai" and (row.endpoints < ENDPOINTS or not row.is_openai_compatible):
            yield _row(f"`{row.name}`", *_traits(row))


def _traits(provider: Provider) -> Iterator[str]:
    yield ", ".join(sorted(provider.endpoints))
    renamed = dict(provider.renamed)
    yield _words(
        name for name in FIELDS["chat"] if not provider.accepts_field(name) and name not in renamed
    )
    differences = [f"`{name}` is sent as `{new_name}`" for name, new_name in renamed.items()]
    if provider.thoughts == "required":
        differences.append("thoughts go back as `reasoning_content` of messages with tool calls")
    if provider.thoughts == "refused":
        differences.append("`reasoning_content` of messages is left out")
    if provider.signs_calls:
        differences.append("the thought signature of a call goes back with it")
    if not provider.is_openai_compatible:
        differences.append("`developer` messages become `system`")
    if provider.has_short_ids:
        differences.append("ids of tool calls become nine letters and digits")
    yield "; ".join(differences)


def _words(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def fields() -> Iterator[str]:
    """Yield a row per group of fields with the same properties."""
    yield _row("fields", "kind of text", "cache key", "unsupported")
    yield "|---|---|---|---|"
    cached = {"answer": "yes", "caller": "with `by_user`", "transport": "no"}
    groups: dict[tuple[str, ...], list[str]] = {}
    for row in sorted(ROWS, key=lambda row: row.name):
        has_text = row.name not in IGNORED_FIELDS and any(
            field_type is not None and field_type.check(text) is None
            for field_type in row.types.values()
            for text in ("x", {"x": "x"}, ["x"], [{"role": "x"}])
        )
        kind = (row.text or "other") if has_text else "none"
        group = (str(kind), cached[row.cache], UNKNOWN[row.unknown])
        groups.setdefault(group, []).append(row.name)
    for cells, names in sorted(groups.items()):
        yield _row(_words(names), *cells)


UNKNOWN = {"drop": "dropped", "refuse": "refused", "fulfill": "by the proxy"}


def limits() -> Iterator[str]:
    yield "| key | counts | type | refusal |"
    yield "|---|---|---|---|"
    for name, kind in KINDS.items():
        code = "budget_exceeded" if kind.counter_type == "budget" else "rate_limit_exceeded"
        yield f"| `{name}` | {kind.__doc__} | a {kind.counter_type} | 429 `{code}` |"


def delay_table() -> Iterator[str]:
    """Yield the delays of streams. Sets of guards with the same delays are one row."""
    head, rule, *rows = results.render(results.DELAYS, delays.table)
    yield from (head, rule)
    names: dict[str, list[str]] = {}
    for row in rows:
        _, name, cells = row.split("|", 2)
        names.setdefault(cells, []).append(name.strip())
    for cells, sets in names.items():
        yield f"| {'; '.join(sets)} |{cells}"


def alerts() -> Iterator[str]:
    yield "| alert | urgency | page |"
    yield "|---|---|---|"
    rules = yaml.safe_load((DOCS.parent / "dashboards" / "rules" / "alerts.yaml").read_text())
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        page = Path(rule["annotations"]["runbook_url"])
        title = (DOCS.parent / page).read_text().splitlines()[0].removeprefix("# ")
        yield f"| `{rule['alert']}` | {rule['labels']['severity']} | [{title}]({page.name}) |"


BLOCKS: dict[str, dict[str, Callable[[], Iterator[str]]]] = {
    "cookbook.md": {"providers": providers},
    "dialects.md": {
        "routes": routes,
        "clients": clients,
        "servers": servers,
        "blocks": content_losses.blocks,
    },
    "errors.md": {"codes": codes},
    "fields.md": {"fields": fields, "losses": losses.tables},
    "runbooks/README.md": {"alerts": alerts},
    "guard-quality.md": {
        **generated_texts.BLOCKS,
        **boundary_quality.BLOCKS,
        "hidden": disguises.table,
        "triples": guard_quality.triples,
    },
    "guards.md": {
        "common": guards.common,
        "kinds": guards.kinds,
        "detectors": guards.detectors,
        "silent": guards.silent,
    },
    "messages.md": {"messages": messages.page},
    "metrics.md": {"metrics": metrics},
    "performance.md": {
        "machine": partial(results.render, results.CALLS, table.machine),
        "calls": partial(results.render, results.CALLS, table.calls),
        "streams": partial(results.render, results.CALLS, table.streams),
        "latency": partial(results.render, results.CALLS, table.latency),
        "delays": delay_table,
        "sizing": partial(results.render, results.CALLS, table.sizing),
        "growth": partial(results.render, results.GROWTH, pictures.table),
        "pictures": partial(results.render, results.GROWTH, pictures.picture_links),
    },
    "policies.md": {"dialects": dialects, "limits": limits},
    "policy-reference.md": {"policy keys": policy_keys.sections},
    "request.md": {"packages": package_graph.diagram},
    "settings.md": {"settings": settings_table.settings, "commands": settings_table.commands},
}


def written(text: str, blocks: dict[str, Callable[[], Iterator[str]]]) -> str:
    """Return a page with its blocks generated. Raises ``ValueError`` when a marker is missing."""
    for name, make in blocks.items():
        start, end = f"<!-- generated: {name} -->", f"<!-- end: {name} -->"
        if start not in text or end not in text:
            raise ValueError(f"the markers of {name} are missing")
        head, _, tail = text.partition(start)
        tail = tail.partition(end)[2]
        body = "\n".join(make()).rstrip()
        text = f"{head}{start}\n{body}\n{end}{tail}"
    return text


def main() -> int:
    stale = []
    for page, blocks in BLOCKS.items():
        file = DOCS / page
        text = file.read_text()
        fresh = written(text, blocks)
        if fresh != text:
            stale.append(page)
        if "--check" not in sys.argv:
            file.write_text(fresh)
    if "--check" in sys.argv and stale:
        print(f"not up to date: {', '.join(stale)}; run make docs")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
