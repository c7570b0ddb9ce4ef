"""What the compilers of parts need of the one of the whole folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from proxy.policy import schema
from proxy.policy.decide.routes import Routes
from proxy.policy.decide.rules import RuleGuards
from proxy.policy.decide.snapshot import TagRule
from proxy.policy.files.source import Path_
from proxy.policy.schema.plugged import AnyGuard
from proxy.types import ScopedLimit, Secret, Target, Upstream

T = TypeVar("T")


class CompileContext(Protocol):
    """Names, places and complaints; targets and limits by where they are written."""

    @property
    def policies(self) -> schema.PoliciesConfig: ...

    @property
    def upstreams(self) -> Mapping[str, Upstream]: ...

    @property
    def rules(self) -> Mapping[str, TagRule]: ...

    def text(self, name: str) -> str: ...

    def secret(self, path: Path_, ref: str) -> Secret: ...

    def complain(self, path: Path_, message: str) -> None: ...

    def parts(self, section: str, compile_part: Callable[[str, Any], T]) -> dict[str, T]:
        """Return each part of a section, compiled. Raises ``PolicyError``."""

    def located(self, path: Path_) -> AbstractContextManager[None]: ...

    def may_hold(self, name: str) -> bool:
        """True if a name may stand in what is left out or could not be read."""

    def unknown(self, path: Path_, section: str, kind: str, name: str) -> None: ...

    def routes(
        self, path: Path_, configs: list[schema.TargetConfig], balanced: bool = False
    ) -> Routes: ...

    def guards(
        self, path: Path_, inputs: Sequence[AnyGuard] | None, outputs: Sequence[AnyGuard] | None
    ) -> RuleGuards: ...

    def bounds(
        self, path: Path_, configs: list[schema.LimitConfig] | None
    ) -> tuple[ScopedLimit, ...]: ...

    def plain(self, path: Path_, configs: list[schema.TargetConfig]) -> tuple[Target, ...]: ...
