"""State that compiling shares: the policies, their problems, secrets, and compiled parts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from proxy.policy.decide.snapshot import TagRule
from proxy.policy.files.cloud_tokens import CloudTokens, is_token_reference
from proxy.policy.files.load import LoadedFolder, read_secret
from proxy.policy.files.source import KeyPath
from proxy.policy.files.validation import describe_forbidden_tag_value, describe_unknown_name
from proxy.types import ScopedLimit, Secret, Target, Upstream
from proxy.types.guard import Preparable

T = TypeVar("T")


class CompileContext:
    """Shared state of compiling. Problems are collected, so that one run reports all of them.

    Without an ``environ`` secrets are empty. Compiled parts are set before the sections that refer
    to them. ``limits`` are by path, ``limit_paths`` by name. ``secret_files`` are paths of secrets,
    and references of tokens. ``headers`` are the request headers that rules read.
    ``unprepared_parts`` load data before the first call. ``referenced_names`` are the names to
    which other parts refer, by section.
    """

    def __init__(
        self, loaded: LoadedFolder, environ: Mapping[str, str] | None, tokens: CloudTokens
    ) -> None:
        self.loaded = loaded
        self.policies = loaded.policies
        self.document = loaded.document
        self.report = loaded.document.report
        self.wrap_errors_in_policy_error = loaded.document.wrap_errors_in_policy_error
        self.uses_price_table = loaded.has_own_price_table
        self.tag_rules: dict[str, TagRule] = {}
        self.upstreams: dict[str, Upstream] = {}
        self.targets: dict[KeyPath, Target] = {}
        self.limits: dict[KeyPath, ScopedLimit] = {}
        self.limit_paths: dict[str, KeyPath] = {}
        self.headers: set[str] = set()
        self.unprepared_parts: list[Preparable] = []
        self.secret_files: set[str] = set()
        self.referenced_names: dict[str, set[str]] = defaultdict(set)
        self._environ = environ
        self._tokens = tokens

    def compile_section(self, section: str, compile_part: Callable[[str, Any], T]) -> dict[str, T]:
        """Return the compiled parts of a section by name. Raise ``PolicyError`` if one fails."""
        compiled: dict[str, T] = {}
        for name, config in getattr(self.policies, section).items():
            with self.wrap_errors_in_policy_error((section, name)):
                compiled[name] = compile_part(name, config)
        return compiled

    def is_shadow(self, path: KeyPath, mode: str) -> bool:
        """Return True if the mode of a part or the mode of its policy is ``shadow``."""
        policy = self.policies.policies[str(path[1])] if path[0] == "policies" else None
        return "shadow" in (mode, policy and policy.mode)

    def check_reference(self, path: KeyPath, section: str, kind: str, name: str) -> None:
        """Record that ``path`` refers to a name, and report a name that its section lacks."""
        self.referenced_names[section].add(name)
        names = self.document.data.get(section, {})
        if name not in names:
            hint = "" if names else f'. Add it under "{section}:".'
            self.report(path, describe_unknown_name(kind, name, names) + hint)

    def check_tag(self, path: KeyPath, tag: str, *values: str) -> None:
        """Report a tag that is not declared, or the values that its declaration forbids."""
        rule = self.tag_rules.get(tag)
        if rule is None:
            self.check_reference(path, "tags", "tag", tag)
            return
        for value in values:
            if not rule.allowed.matches(value):
                self.report(path, describe_forbidden_tag_value(value, rule.allowed.values))

    def read_secret(self, path: KeyPath, ref: str) -> Secret:
        """Return the secret of a reference. Report one that cannot be read."""
        if self._environ is None:
            return Secret("")
        is_token = is_token_reference(ref)
        if ref.startswith("file:") or is_token:
            self.secret_files.add(ref.removeprefix("file:"))
        try:
            value = self._tokens.get_token(ref) if is_token else read_secret(ref, self._environ)
        except ValueError as error:
            self.report(path, str(error))
            return Secret("")
        if not value.isprintable() or not value.isascii():
            self.report(path, "must contain only printable ASCII characters")
        return Secret(value)
