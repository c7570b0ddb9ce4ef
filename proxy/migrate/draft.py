"""What a configuration becomes: the sections of a folder of policies, and what could not come."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from datetime import date
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import yaml

from proxy import usage
from proxy.config.scalars import check_url
from proxy.dialects import DIALECTS
from proxy.migrate.config_part import ConfigPart
from proxy.types.providers import BY_WORD
from proxy.words import word

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
MAX_WEIGHT = 1_000_000  # of a target in a policy
NO_ADDRESS = "is not an http or https URL"
_VARIABLE = re.compile(r"os\.environ/([A-Za-z_][A-Za-z0-9_]*)|\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?")


class Draft:
    """Filled by one reader of a configuration. ``notes`` are sentences for people, each beginning
    with the place in the configuration that it is about. ``exports`` are the variables that have to
    be set where the policies are served, with what each is; ``left_out`` counts targets that did
    not come over. ``taken`` are variables that the configuration itself reads: no secret that stood
    in its text is put into one of them."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.exports: dict[str, str] = {}
        self.left_out = 0
        self._taken = frozenset(taken)
        self._variables: dict[str, str] = {}  # of secrets in the text, by those
        self.upstreams: dict[str, dict[str, Any]] = {}
        self.deployments: dict[str, dict[str, Any]] = {}
        self.policy: dict[str, Any] = {}
        self.notes: list[str] = []

    def note(self, place: str, why: str) -> None:
        """Note what of a configuration does not come over as it was, and what to do; on one line,
        as it stands in a comment of a policy too."""
        self.notes.append(f"{word(place, 200)}: {word(why, 500)}")

    def leave_out(self, place: str, why: str) -> None:
        """Note that a target does not come over, and why."""
        self.left_out += 1
        self.note(place, f"{why}. This target is skipped.")

    def secret(self, value: object, wanted: str, place: str) -> str:
        """Return how a policy names the secret of a place. One that stood in the text itself is
        copied nowhere: it has to be put into a variable of its own, called like ``wanted``."""
        own = _referred(value)
        if own is None and value is not None:
            own = self._own_variable(str(value), wanted)
            self.note(place, f"the secret is not copied. Set {own} to it.")
            self.exports.setdefault(own, f"the value of {word(place, 200)}")
        own = own or wanted
        self.exports.setdefault(own, "as used by the previous gateway")
        return f"${{{own}}}"

    def _own_variable(self, value: str, wanted: str) -> str:
        """Return the variable of one secret: none has that of another."""
        if value not in self._variables:
            number, own, others = 1, wanted, {*self._taken, *self._variables.values()}
            while own in others:
                number += 1
                own = _numbered(wanted, number)
            self._variables[value] = own
        return self._variables[value]

    def note_left(
        self, parts: Iterable[ConfigPart], why: str = "has no equivalent and is left out"
    ) -> None:
        """Note what nobody took of parts of the configuration."""
        for part in parts:
            for place in part.left():
                self.note(place, why)

    def upstream(self, name: str, wanted: Mapping[str, Any]) -> str:
        """Return the name of the upstream that is as wanted, which is made where there is none."""
        number, own = 1, slug(name)
        while own in self.upstreams and self.upstreams[own] != wanted:
            number += 1
            own = f"{slug(name)[:60]}-{number}"
        self.upstreams.setdefault(own, dict(wanted))
        return own

    def also_called(self, deployment: dict[str, Any], name: str) -> bool:
        """Let calls say a deployment by another name. False where another one is called so."""
        for own, each in self.deployments.items():
            if name in (own, *each.get("also_known_as", ())):
                return each is deployment
        deployment.setdefault("also_known_as", []).append(name)
        return True

    def require_calls(self) -> None:
        """Let all targets of a deployment take calls if all their weights are 0."""
        for name, deployment in self.deployments.items():
            if all(target.get("weight") == 0 for target in deployment["targets"]):
                self.note(name, "all weights are 0. All targets get the weight 1.")
                for target in deployment["targets"]:
                    target["weight"] = 1

    def plain_address(self, place: str, text: str, variable: str | None = None) -> str | None:
        """Return an address as a policy may have it; None, with a note, for what is none."""
        found, is_cut = address(text)
        if found is None:
            self.leave_out(place, NO_ADDRESS if variable is None else f"{variable} {NO_ADDRESS}")
        elif is_cut:
            self.note(place, "contains credentials, a query or a fragment, which are not copied")
        return found

    def files(self) -> dict[str, str]:
        """Return the text of each file by its name, with the notes where an operator reads on."""
        head = "".join(f"# - {note}\n" for note in self.notes)
        begun = f"# Not converted from the previous configuration:\n{head}" if head else ""
        found = {
            "upstreams.yaml": _yaml({"upstreams": self.upstreams}),
            "deployments.yaml": begun + _yaml({"deployments": self.deployments}),
        }
        if self.policy:
            found["policies.yaml"] = _yaml({"policies": {"default": self.policy}})
        return found


def _yaml(section: Mapping[str, Any]) -> str:
    return yaml.dump(section, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=120)


class _Plain(yaml.SafeDumper):
    """Writes what stands in two places twice: policies refuse aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def slug(text: str) -> str:
    """Return a name that a policy may have, made of a text; of an odd one ``unnamed``."""
    plain = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:64].rstrip("-._")
    return plain if NAME.fullmatch(plain) else "unnamed"


def _referred(value: object) -> str | None:
    """Return the variable that a text stands for; None for one that stands for itself."""
    match = _VARIABLE.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if match is None else match[1] or match[2]


def _numbered(variable: str, number: int) -> str:
    """Return the name of a variable like another: ``OPENAI_2_API_KEY``."""
    stem, suffix, _ = variable.partition("_API_KEY")
    return f"{stem}_{number}{suffix}"


def referred_variables(config: Any) -> Iterator[str]:
    """Yield the variables that a configuration reads, wherever it says them."""
    parts, seen = [config], set()
    while parts:
        part = parts.pop()
        if isinstance(part, (dict, list)):
            if id(part) not in seen:  # YAML's aliases may lead back
                seen.add(id(part))
                parts += part.values() if isinstance(part, dict) else part
        elif (variable := _referred(part)) is not None:
            yield variable


def address_at(text: str, environ: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the address that a text is, or that the variable holds for which it stands: policies
    hold addresses themselves. And the variable; the address is None where that is not set."""
    variable = _referred(text)
    if variable is None:
        return text, None
    return environ.get(variable) or None, variable


def address(text: str) -> tuple[str | None, bool]:
    """Return an address without credentials, query and fragment, which policies refuse, and whether
    it had any; None for what is no address: it may be a secret."""
    try:
        parts = urlsplit(text)
        host = parts.netloc.rpartition("@")[2]
        bare = check_url(urlunsplit((parts.scheme, host, parts.path, "", "")))
    except ValueError:
        return None, False
    return bare, host != parts.netloc or bool(parts.query or parts.fragment)


def whole_weight(weight: float) -> int:
    """Return a weight as a whole number. 0 stays 0: such a target gets no calls."""
    return min(MAX_WEIGHT, max(1, round(weight))) if weight else 0


def duration(seconds: float) -> str:
    """Return a time as policies write it: ``600s``, ``1500ms``."""
    whole = seconds == int(seconds)
    return f"{int(seconds)}s" if whole and seconds >= 1 else f"{max(1, round(seconds * 1000))}ms"


class ListedPrice(NamedTuple):
    """What a policy says as ``price``, in the table of a day."""

    price: Any
    as_of: date | None


def listed_price(upstream: Mapping[str, Any], model: str) -> ListedPrice | None:
    """Return the price of a model, which may begin with the word of its provider, else is one of
    the upstream's; None where the table has none."""
    from proxy.policy.files.price_table import packaged  # noqa: PLC0415  # few name such a model

    word, slash, name = model.partition("/")
    if slash and word in BY_WORD:
        provider: str | None = BY_WORD[word].name
    else:
        provider, name = upstream.get("provider") or price_provider(upstream["dialect"]), model
    table = packaged().sections
    rows = table.prices.get(provider or "", {})
    row = usage.listed(rows, name)
    return None if row is None else ListedPrice(deepcopy(rows[row]), table.price_table.as_of)


def price_provider(dialect: str) -> str | None:
    """Return whose prices count at an upstream that says no provider."""
    found = DIALECTS.get(dialect)
    return dialect if found is None else found.provider
