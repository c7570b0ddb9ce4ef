"""Values and protocols of guards: detectors, rules, plans and results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, NamedTuple, Protocol, TypeGuard

from proxy.runtime.frozen import frozen
from proxy.types.detections import DetectionFormat
from proxy.types.target import Target

Action = Literal["block", "mask", "flag", "route", "retry"]
Verdict = Literal[
    "passed", "flagged", "masked", "blocked", "routed", "retried", "failed", "not_applicable"
]
Stage = Literal["input", "output"]
BLOCKED_MESSAGE = 'Guard "{}" blocked this call.'
UNCHECKED_MESSAGE = 'Guard "{}" could not inspect this text.'
UNCHECKED_YET = f"{UNCHECKED_MESSAGE} Try again later."
TOO_EXPENSIVE = (
    'Guard "{}" blocked this call, because the call may cost more than the policy allows.'
)
UNPRICED_MESSAGE = 'Guard "{}" blocked this call, because the price of its model is unknown.'


@frozen
class Finding:
    """A span of a text, from character ``start`` up to but excluding ``end``.

    ``kind`` is a metric label, one of a fixed set per detector. ``score`` is from 0 to 1.
    """

    start: int
    end: int
    kind: str
    score: float = 1.0


class NotReady(Exception):
    """A detector is still loading."""


class Busy(Exception):
    """A detector has reached its concurrency limit. A retry may succeed."""


class Detector(Protocol):
    """Finds spans in text.

    ``lookback`` is the number of characters that a stream must hold back: a finding and its context
    (one character at a word boundary) fit in it. None if only the whole text can be inspected.
    Results are the same for a text that is cut at the start of a finding or between findings.
    """

    @property
    def lookback(self) -> int | None: ...

    def find(self, text: str) -> Sequence[Finding]:
        """Return all findings, sorted by start, without overlaps, in linear time."""


PrefilterFunction = Callable[[bytes], bool]
"""Takes texts in UTF-8, one per line. Returns False only if none of them has a finding."""


class Prefiltered(Protocol):
    """A detector with a prefilter for many texts at once. ``prefilter`` is None if it has none."""

    @property
    def prefilter(self) -> PrefilterFunction | None: ...


class Preparable(Protocol):
    """A detector that loads data before its first inspection. Callable from any thread."""

    def prepare(self) -> None:
        """Load the data that the first inspection needs."""

    def iter_loading_steps(self) -> Iterator[None]:
        """Load data that is needed rarely, a few milliseconds per step."""


@frozen
class PromptContext:
    """Texts of a request by which guards judge the response. Empty if the request has none.

    ``user_message`` is the last message of the user, and ``context`` is reference text.
    """

    system: str = ""
    user_message: str = ""
    context: str = ""


class ContextualDetector(Protocol):
    """Builds a detector for each call.

    ``lookback`` is the maximum of the detectors that it returns, None if one of them needs whole
    texts.
    """

    @property
    def lookback(self) -> int | None: ...

    def for_prompt(self, prompt: PromptContext) -> Detector | ServiceDetector | None:
        """Return the detector for one call, or None if the call lacks the context to judge by."""


class HasContextChars(Protocol):
    """A detector that also reads ``context_chars`` characters of the request."""

    @property
    def context_chars(self) -> int: ...


class ServiceText(Protocol):
    """A text of a call with the role of its message and the kind of its field."""

    @property
    def text(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def role(self) -> str | None: ...


class GuardClient(Protocol):
    """HTTP and model client for the guards of one call."""

    @property
    def request_id(self) -> str: ...

    @property
    def caller(self) -> object:
        """Name of the key in whose share of the fair queue the guard runs."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Return the status and the body of a service's response. Raises ``OSError``."""

    async def complete(self, guard: str, deployment: str, body: Mapping[str, Any]) -> str:
        """Return the text of a chat completion without guards and cache, billed to ``guard``."""


class ServiceDetector(Protocol):
    """A guard that calls an external service or a model. It inspects whole texts only."""

    async def find_all(
        self, texts: Sequence[ServiceText], prompt: PromptContext, client: GuardClient
    ) -> Sequence[Sequence[Finding]]:
        """Return the findings of each text. Any exception counts as a failure of the guard."""


AnyDetector = Detector | ContextualDetector | ServiceDetector


def is_detector(detector: AnyDetector) -> TypeGuard[Detector]:
    return hasattr(detector, "find")


def is_contextual(detector: AnyDetector) -> TypeGuard[ContextualDetector]:
    return hasattr(detector, "for_prompt")


def has_context_chars(detector: AnyDetector) -> TypeGuard[HasContextChars]:
    return hasattr(detector, "context_chars")


def is_prefiltered(detector: AnyDetector) -> TypeGuard[Prefiltered]:
    return hasattr(detector, "prefilter")


def is_preparable(detector: object) -> TypeGuard[Preparable]:
    return hasattr(detector, "prepare")


def is_service(detector: AnyDetector) -> TypeGuard[ServiceDetector]:
    return hasattr(detector, "find_all")


@frozen
class GuardRule:
    """A detector and the action for its findings.

    - ``kind`` is the guard kind in policies, ``detections`` its detectors for Enkrypt clients.
    - ``shadow`` only counts what the rule would do.
    - ``on_error`` applies if the detector raises or takes longer than ``deadline_s``: ``closed``
      blocks the call, unless the action is ``flag``.
    - ``roles`` and ``fields`` restrict the inspected texts. None means all, except messages of
      ``excluded_roles``.
    - ``cased`` passes text with its capitals to the detector.
    - ``message`` is the error text for clients. ``digest`` identifies the configuration.
    - ``restore`` puts masked values back into the response, in URLs only for ``restore_hosts``.
    - ``enforces`` is True if a finding changes or stops a text, or reroutes the call.
    - ``can_block`` is True if a text with a finding is never released.
    - ``path`` leads to the part of the policies that declares the rule.
    - ``prefilter`` is the detector's prefilter.
    """

    name: str
    detector: AnyDetector
    action: Action = "block"
    shadow: bool = False
    on_error: Literal["closed", "open"] = "closed"
    deadline_s: float = 1.0
    roles: frozenset[str] | None = None
    excluded_roles: frozenset[str] = frozenset()
    fields: frozenset[str] | None = None
    cased: bool = False
    message: str = ""
    digest: str = ""
    kind: str = ""
    restore: bool = False
    restore_hosts: frozenset[str] = frozenset()
    route_targets: tuple[Target, ...] = ()
    detections: tuple[DetectionFormat, ...] = ()
    path: tuple[str | int, ...] = field(default=(), repr=False, compare=False)
    prefilter: PrefilterFunction | None = field(init=False, repr=False, compare=False, default=None)
    enforces: bool = field(init=False, repr=False, compare=False)
    can_mask: bool = field(init=False, repr=False, compare=False)
    can_block: bool = field(init=False, repr=False, compare=False)
    fails_closed: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        enforces, detector = self.action != "flag" and not self.shadow, self.detector
        object.__setattr__(self, "enforces", enforces)
        object.__setattr__(self, "can_mask", self.action == "mask" and enforces)
        object.__setattr__(self, "can_block", self.action in ("block", "retry") and enforces)
        object.__setattr__(self, "fails_closed", enforces and self.on_error == "closed")
        bounded = is_detector(detector) and detector.lookback is not None
        if bounded and is_prefiltered(detector) and self.roles is None and self.fields is None:
            object.__setattr__(self, "prefilter", detector.prefilter)

    @property
    def needs_whole_response(self) -> bool:
        """True if the rule must see a streamed response to its end."""
        if self.action == "retry" and self.enforces:
            return True
        detector = self.detector
        if is_detector(detector) or is_contextual(detector):
            return detector.lookback is None
        return True

    def applies_to(self, role: str | None, kind: str) -> bool:
        """Return True if the rule inspects fields of this kind in messages of this role."""
        if self.fields is not None and kind not in self.fields:
            return False
        if self.roles is not None:
            return role in self.roles
        return role not in self.excluded_roles


class GuardResult(NamedTuple):
    """Result of one guard for one call.

    ``kind``, ``action`` and ``detections`` are copied from the rule. ``seconds`` is the time in the
    detector. ``bytes`` and ``fields`` count the inspected text.
    """

    guard: str
    verdict: Verdict
    shadow: bool
    findings: dict[str, int]
    score: float
    bytes: int
    fields: int
    seconds: float
    error: str | None = None
    kind: str = ""
    action: Action = "flag"
    detections: tuple[DetectionFormat, ...] = ()


GuardResults = Sequence[tuple[Stage, GuardResult]]


@frozen
class CostCap:
    """Guard that blocks a call whose estimated cost exceeds ``max_nano_usd``, or is unknown."""

    name: str
    max_nano_usd: int
    action: Action = "block"
    shadow: bool = False
    on_error: Literal["closed", "open"] = "closed"
    message: str = TOO_EXPENSIVE
    digest: str = ""
    kind: str = "economics"
    path: tuple[str | int, ...] = field(default=(), repr=False, compare=False)

    @property
    def enforces(self) -> bool:
        return self.action == "block" and not self.shadow

    @property
    def fails_closed(self) -> bool:
        return self.enforces and self.on_error == "closed"


@frozen
class Capture:
    """Captures prompts and responses of a ``share`` of traced calls.

    Each text has at most ``max_chars`` characters and is redacted by the rules of ``redact``.
    """

    share: float
    input: bool = True
    output: bool = True
    max_chars: int = 4000
    redact: tuple[GuardRule, ...] = ()


@frozen
class StageRules:
    """Rules of one stage, with properties that are computed once per revision.

    - ``contextual``: a detector is built for each call.
    - ``in_force``: a rule is not in shadow mode.
    """

    all_rules: tuple[GuardRule, ...]
    detectors: tuple[GuardRule, ...]
    services: tuple[GuardRule, ...]
    contextual: bool
    enforces: bool
    restores: bool
    retries: bool
    in_force: bool

    @classmethod
    def from_rules(cls, rules: tuple[GuardRule, ...]) -> StageRules:
        return cls(
            all_rules=rules,
            detectors=tuple(rule for rule in rules if not is_service(rule.detector)),
            services=tuple(rule for rule in rules if is_service(rule.detector)),
            contextual=any(is_contextual(rule.detector) for rule in rules),
            enforces=any(rule.enforces for rule in rules),
            restores=any(rule.restore for rule in rules),
            retries=any(rule.action == "retry" and rule.enforces for rule in rules),
            in_force=any(not rule.shadow for rule in rules),
        )


@frozen
class GuardPlan:
    """Guards of one call.

    - ``allows_opaque``: allows content that no guard can read: tokens, images, audio.
    - ``capture``: None if no text appears in traces.
    - ``route_targets``: targets of guards with the action ``route``.
    - ``needs_whole_response``: streamed text is held until the response has ended.
    - ``digest``: part of the cache key, so that responses are never served under other rules.
    """

    input: tuple[GuardRule, ...] = ()
    output: tuple[GuardRule, ...] = ()
    allows_opaque: bool = False
    cost_caps: tuple[CostCap, ...] = ()
    capture: Capture | None = None
    input_stage: StageRules = field(init=False, repr=False, compare=False)
    output_stage: StageRules = field(init=False, repr=False, compare=False)
    route_targets: tuple[Target, ...] = field(init=False, repr=False, compare=False)
    needs_whole_response: bool = field(init=False, repr=False, compare=False)
    digest: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        to = tuple(target for rule in self.input for target in rule.route_targets if rule.enforces)
        digest = " ".join([*(r.digest for r in self.input), "|", *(r.digest for r in self.output)])
        object.__setattr__(self, "input_stage", StageRules.from_rules(self.input))
        object.__setattr__(self, "output_stage", StageRules.from_rules(self.output))
        object.__setattr__(self, "route_targets", to)
        object.__setattr__(
            self, "needs_whole_response", any(rule.needs_whole_response for rule in self.output)
        )
        object.__setattr__(self, "digest", digest)

    @property
    def by_stage(self) -> list[tuple[Stage, GuardRule | CostCap]]:
        """All guards, each after its stage."""
        guards: list[tuple[Stage, GuardRule | CostCap]] = [("input", cap) for cap in self.cost_caps]
        guards += [("input", rule) for rule in self.input]
        return [*guards, *(("output", rule) for rule in self.output)]

    def __bool__(self) -> bool:
        return bool(self.input or self.output)


NO_GUARDS = GuardPlan()
