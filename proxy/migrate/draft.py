"""What a configuration becomes: the sections of a folder of policies, and what could not come."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import yaml

from proxy.migrate.config_part import ConfigPart
from proxy.words import word

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_VARIABLE = re.compile(r"os\.environ/([A-Za-z_][A-Za-z0-9_]*)|\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?")


class Draft:
    """Filled by one reader of a configuration. ``notes`` are sentences for people, each beginning
    with the place in the configuration that it is about."""

    def __init__(self) -> None:
        self.upstreams: dict[str, dict[str, Any]] = {}
        self.deployments: dict[str, dict[str, Any]] = {}
        self.policy: dict[str, Any] = {}
        self.notes: list[str] = []

    def note(self, place: str, why: str) -> None:
        """Note what of a configuration does not come over as it was, and what to do; on one line,
        as it stands in a comment of a policy too."""
        self.notes.append(f"{word(place, 200)}: {word(why, 500)}")

    def note_left(self, parts: Iterable[ConfigPart], why: str = "is not carried over") -> None:
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
            if each is not deployment and name in (own, *each.get("also_known_as", ())):
                return False
        names = deployment.setdefault("also_known_as", [])
        if name not in names:
            names.append(name)
        return True

    def files(self) -> dict[str, str]:
        """Return the text of each file by its name, with the notes where an operator reads on."""
        head = "".join(f"# - {note}\n" for note in self.notes)
        begun = f"# What the configuration before had, and this has not:\n{head}" if head else ""
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


def secret(value: object, variable: str) -> tuple[str, bool]:
    """Return how a policy names a secret, and whether its own text stood in the configuration,
    which is copied nowhere: then it has to be put into ``variable``."""
    match = _VARIABLE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return f"${{{variable}}}", value is not None
    return f"${{{match[1] or match[2]}}}", False


def address(text: str) -> tuple[str, bool]:
    """Return an address without credentials, query and fragment, which policies refuse, and whether
    it had any."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return "", True
    host = parts.netloc.rpartition("@")[2]
    bare = urlunsplit((parts.scheme, host, parts.path, "", ""))
    return bare, host != parts.netloc or bool(parts.query or parts.fragment)


def duration(seconds: float) -> str:
    """Return a time as policies write it: ``600s``, ``1500ms``."""
    whole = seconds == int(seconds)
    return f"{int(seconds)}s" if whole and seconds >= 1 else f"{max(1, round(seconds * 1000))}ms"
