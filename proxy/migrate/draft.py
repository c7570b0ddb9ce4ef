"""Reads parts of a configuration, and collects the policies and notes that result from it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from datetime import date
from itertools import chain, count
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import yaml

from proxy.config.scalars import check_url
from proxy.dialects import DIALECTS
from proxy.errors.words import shorten
from proxy.money import usage
from proxy.types.providers import BY_LITELLM_NAME

NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
MAX_WEIGHT = 1_000_000  # maximum weight of a target in a policy
LEFT_OUT = "has no equivalent and is left out"
_VARIABLE_REFERENCE = re.compile(
    r"os\.environ/([A-Za-z_][A-Za-z0-9_]*)|\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?"
)


class Draft:
    """The policies that a configuration is converted to.

    ``notes`` are sentences that start with a path in the configuration. ``exports`` are the
    variables to set for the proxy, each with a description. ``skipped_count`` is the number of
    targets that were not converted.
    ``used_variables`` are those that the configuration reads: no other secret is assigned to them.
    """

    def __init__(self, used_variables: Iterable[str] = ()) -> None:
        self.exports: dict[str, str] = {}
        self.skipped_count = 0
        self._used_variables = frozenset(used_variables)
        self._variables: dict[str, str] = {}  # variable name by secret
        self.upstreams: dict[str, dict[str, Any]] = {}
        self.deployments: dict[str, dict[str, Any]] = {}
        self.policy: dict[str, Any] = {}
        self.notes: list[str] = []

    def add_note(self, path: str, reason: str) -> None:
        """Add a note on one line: it is also a comment in a policy file."""
        self.notes.append(f"{shorten(path, 200)}: {shorten(reason, 500)}")

    def reference_secret(self, value: object, default_variable: str, path: str) -> str:
        """Return a reference to the variable of a secret.

        A secret in the configuration is not copied: it gets a new variable.
        """
        variable = _parse_variable(value)
        if variable is None and value is not None:
            variable = self._assign_variable(str(value), default_variable)
            self.add_note(path, f"the secret is not copied. Set {variable} to it.")
            self.exports.setdefault(variable, f"the value of {shorten(path, 200)}")
        variable = variable or default_variable
        self.exports.setdefault(variable, "the secret that the previous gateway uses")
        return f"${{{variable}}}"

    def _assign_variable(self, secret: str, default_variable: str) -> str:
        if secret not in self._variables:
            stem, suffix, _ = default_variable.partition("_API_KEY")
            names = (f"{stem}_{number}{suffix}" for number in count(2))
            used = {*self._used_variables, *self._variables.values()}
            free = (name for name in chain([default_variable], names) if name not in used)
            self._variables[secret] = next(free)
        return self._variables[secret]

    def add_upstream(self, name: str, config: dict[str, Any]) -> str:
        """Add an upstream unless an equal one exists. Return its unique name."""
        names = (f"{to_slug(name)[:60]}-{number}" for number in count(2))
        return next(
            unique
            for unique in chain([to_slug(name)], names)
            if self.upstreams.setdefault(unique, config) == config
        )

    def add_alias(self, deployment: dict[str, Any], name: str) -> bool:
        """Add a name of a deployment. Return False if another deployment has it."""
        for other_name, other_deployment in self.deployments.items():
            if name in (other_name, *other_deployment.get("also_known_as", ())):
                return other_deployment is deployment
        deployment.setdefault("also_known_as", []).append(name)
        return True

    def replace_weights_if_all_zero(self) -> None:
        """Set all weights of a deployment to 1 if all of them are 0."""
        for name, deployment in self.deployments.items():
            if all(target.get("weight") == 0 for target in deployment["targets"]):
                self.add_note(name, "all weights are 0. All targets get the weight 1.")
                for target in deployment["targets"]:
                    target["weight"] = 1

    def render_files(self) -> dict[str, str]:
        """Return the text of each file by its name, with the notes as comments."""
        head = "".join(f"# - {note}\n" for note in self.notes)
        comment = f"# Not converted from the previous configuration:\n{head}" if head else ""
        files = {
            "upstreams.yaml": _dump_yaml({"upstreams": self.upstreams}),
            "deployments.yaml": comment + _dump_yaml({"deployments": self.deployments}),
        }
        if self.policy:
            files["policies.yaml"] = _dump_yaml({"policies": {"default": self.policy}})
        return files


class ConfigPart:
    """A mapping in a configuration, which records the members that were read.

    ``path`` is its path, such as ``model_list[0].litellm_params``. ``draft`` gets the notes.
    """

    def __init__(self, draft: Draft, values: Any, path: str = "") -> None:
        self.draft = draft
        self.path = path
        self.values: dict[str, Any] = (
            {str(name): value for name, value in values.items()} if isinstance(values, dict) else {}
        )
        self._read: set[str] = set()

    def get_member_path(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def add_note(self, name: str, reason: str) -> None:
        """Add a note on a member."""
        self.draft.add_note(self.get_member_path(name), reason)

    def skip_target(self, reason: str, name: str | None = None) -> None:
        """Count a target that is not converted, and add a note on it or its member ``name``."""
        self.draft.skipped_count += 1
        path = self.path or "config" if name is None else self.get_member_path(name)
        self.draft.add_note(path, f"{reason}. This target was not converted.")

    def add_unread_notes(
        self, reason: str = LEFT_OUT, notes: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Add a note for each member that was not read and is not empty."""
        for name, value in self.values.items():
            if name not in self._read and value not in (None, "", [], {}):
                self.add_note(name, notes.get(self.get_member_path(name), reason))

    def read_value(self, name: str) -> Any:
        """Return a member of any type, or None."""
        self._read.add(name)
        return self.values.get(name)

    def read_as_text(self, name: str) -> str | None:
        """Return a member that is text or a number as text, otherwise None."""
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, (str, int, float)) or value == "":
            return None
        return str(self.read_value(name))

    def read_number(self, name: str, *, allow_zero: bool = False) -> float | None:
        """Return a member that is a number above 0, or 0 if allowed, otherwise None."""
        try:
            value = float(self.values[name])
        except (KeyError, OverflowError, TypeError, ValueError):
            return None
        is_valid = 0 < value < 1e12 or (value == 0 and allow_zero)
        if isinstance(self.values[name], bool) or not is_valid:
            return None
        self._read.add(name)
        return value

    def read_mapping(self, name: str) -> ConfigPart:
        """Return a mapping, which is empty if there is none."""
        value = self.values.get(name)
        if isinstance(value, dict):
            self._read.add(name)
        return ConfigPart(self.draft, value, self.get_member_path(name))

    def read_mappings(self, name: str) -> list[ConfigPart]:
        """Return the mappings of a list."""
        value, path = self.values.get(name), self.get_member_path(name)
        if not isinstance(value, list):
            return []
        self._read.add(name)
        return [ConfigPart(self.draft, item, f"{path}[{n}]") for n, item in enumerate(value)]

    def redact_url(self, name: str, text: str, variable: str | None = None) -> str | None:
        """Return a URL without secrets. If it is invalid, skip the target and return None."""
        url, is_cut = redact_url(text)
        if url is None:
            problem = "is not an http or https URL"
            self.skip_target(f"{variable} {problem}" if variable else problem, name)
        elif is_cut:
            self.add_note(name, "contains credentials, a query or a fragment, which are not copied")
        return url


def _dump_yaml(section: Mapping[str, Any]) -> str:
    return yaml.dump(section, Dumper=_NoAliasDumper, sort_keys=False, allow_unicode=True, width=120)


class _NoAliasDumper(yaml.SafeDumper):
    """Writes equal values twice, because policies allow no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def to_slug(text: str) -> str:
    """Return a valid name for a text, or ``unnamed``."""
    plain = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:64].rstrip("-._")
    return plain if NAME_PATTERN.fullmatch(plain) else "unnamed"


def _parse_variable(value: object) -> str | None:
    match = _VARIABLE_REFERENCE.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if match is None else match[1] or match[2]


def iter_variable_names(config: Any) -> Iterator[str]:
    """Yield the environment variables to which texts of a configuration refer."""
    parts, visited = [config], set()
    while parts:
        part = parts.pop()
        if isinstance(part, (dict, list)):
            if id(part) not in visited:  # aliases in YAML may form a cycle
                visited.add(id(part))
                parts += part.values() if isinstance(part, dict) else part
        elif (variable := _parse_variable(part)) is not None:
            yield variable


def resolve_url(text: str, environ: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the URL in a text, or in the variable to which it refers, and the variable.

    The URL is None if the variable is not set.
    """
    variable = _parse_variable(text)
    return (environ.get(variable) or None, variable) if variable else (text, None)


def redact_url(text: str) -> tuple[str | None, bool]:
    """Return a URL without credentials, query and fragment, and whether it had any.

    Return None for other text, which may be a secret.
    """
    try:
        parts = urlsplit(text)
        host = parts.netloc.rpartition("@")[2]
        bare = check_url(urlunsplit((parts.scheme, host, parts.path, "", "")))
    except ValueError:
        return None, False
    return bare, host != parts.netloc or bool(parts.query or parts.fragment)


def to_integer_weight(weight: float) -> int:
    """Return a weight as a whole number. Only 0 becomes 0, because such a target gets no calls."""
    return min(MAX_WEIGHT, max(1, round(weight))) if weight else 0


def format_duration(seconds: float) -> str:
    """Return a duration as in policies, such as ``600s`` or ``1500ms``."""
    is_whole = seconds == int(seconds)
    return f"{int(seconds)}s" if is_whole and seconds >= 1 else f"{max(1, round(seconds * 1000))}ms"


def find_listed_price(upstream: Mapping[str, Any], model: str) -> tuple[Any, date | None] | None:
    """Return the ``price`` of a model and the date of the price table, None if it has no price.

    The name may start with a provider. Otherwise the model is one of the upstream's provider.
    """
    from proxy.policy.files.load import read_packaged_prices  # noqa: PLC0415  # few configurations need it

    provider: str | None
    litellm_name, slash, name = model.partition("/")
    if slash and litellm_name in BY_LITELLM_NAME:
        provider = BY_LITELLM_NAME[litellm_name].name
    else:
        provider, name = upstream.get("provider") or get_price_provider(upstream["dialect"]), model
    table = read_packaged_prices()
    rows = table.prices.get(provider or "", {})
    row = usage.find_exact_or_wildcard_name(rows, name)
    return None if row is None else (deepcopy(rows[row]), table.price_table.as_of)


def get_price_provider(dialect: str) -> str | None:
    """Return the provider of the prices of an upstream without ``provider``."""
    vendor = DIALECTS.get(dialect)
    return dialect if vendor is None else vendor.provider
