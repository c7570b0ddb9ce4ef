"""Values of guards: rules, plans and results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeGuard, TypeVar

from proxy.runtime.frozen import frozen
from proxy.types.detections import DetectionFormat
from proxy.types.target import Target

Hits = TypeVar("Hits")
Action = Literal["block", "mask", "flag", "route", "retry"]
Verdict = Literal[
    "passed", "flagged", "masked", "blocked", "routed", "retried", "failed", "not_applicable"
]
Stage = Literal["input", "output"]
BLOCKED = 'Guard "{}" blocked this call.'
UNCHECKED = 'Guard "{}" could not inspect this text.'
UNCHECKED_YET = f"{UNCHECKED} Try again later."
TOO_EXPENSIVE = 'Guard "{}" blocked this call, because it may cost more than the policy allows.'
UNPRICED = 'Guard "{}" blocked this call, because the price of its model is unknown.'


@frozen
class Finding:
    """A place in a text: characters from ``start`` up to ``end``, which is not part of it.

    ``kind`` is of a set that is closed per detector, as it becomes a metric's label; ``score`` is
    from 0 to 1.
    """

    start: int
    end: int
    kind: str
    score: float = 1.0


class NotReady(Exception):
    """A detector cannot look yet: what it needs is still being loaded."""


class Busy(Exception):
    """A detector has as many calls as it may have: another try may come at a better time."""


class Detector(Protocol):
    """One way of looking at a text.

    ``lookback`` bounds what a stream must hold back: a finding, together with all that it depends
    on around it (a word's edge is one character), lies within so many characters; None where only
    the whole text can tell. From the beginning of a finding on, or from where none is under way,
    the same is found as from the beginning of the text.
    """

    @property
    def lookback(self) -> int | None: ...

    def find(self, text: str) -> Sequence[Finding]:
        """Return all findings by their start, without overlaps, in time linear in the text."""


MayFind = Callable[[bytes], bool]
"""Takes texts in UTF-8, each on lines of its own; False only if none of them has a finding."""


class SharedPrefilter(NamedTuple, Generic[Hits]):
    """A set of patterns: what ``match`` returns of lines is ``nothing`` only if none of them has a
    line that one of the patterns hits."""

    match: Callable[[bytes], Hits]
    nothing: Hits


class Prefiltered(Protocol):
    """A detector that can tell of many texts at once that there is nothing to find in them.
    ``may_find`` is None where one as it is made can not."""

    @property
    def may_find(self) -> MayFind | None: ...


class Preparable(Protocol):
    """A detector that has more to load than its first look at a plain text, from any thread."""

    def prepare(self) -> None:
        """Load what would hold up a call."""

    def load_rest(self) -> Iterator[None]:
        """Load the rest, a few milliseconds a step, of which a text loads what it asks for."""


@frozen
class PromptContext:
    """What a call asked, in plain text, for guards that judge an answer by it; empty where it did
    not say: its system prompt, the last that its user said, and what the answer has to rest on."""

    system: str = ""
    asked: str = ""
    context: str = ""


class ContextualDetector(Protocol):
    """A way of looking that depends on the call. ``lookback`` is that of the detectors that it
    returns, at the most; None where one of them, or a service, is to see whole texts."""

    @property
    def lookback(self) -> int | None: ...

    def about(self, question: PromptContext) -> Detector | Service | None:
        """Return the detector for one call; None where the call has nothing to judge by."""


class Weighty(Protocol):
    """A detector that reads more than a text: ``weight`` is how many characters beside it."""

    @property
    def weight(self) -> int: ...


class Piece(Protocol):
    """A text of a call; ``role`` is that of its message, ``kind`` that of its field."""

    @property
    def text(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def role(self) -> str | None: ...


class GuardClient(Protocol):
    """The ways out of the process that the guards of one call have."""

    @property
    def request_id(self) -> str:
        """What the call is known by to those who are asked about it."""

    @property
    def caller(self) -> object:
        """In whose turns work for the call is done: the name of its key."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Return the status and the body of a service's answer. Raise ``OSError``."""

    async def complete(self, guard: str, deployment: str, body: Mapping[str, Any]) -> str:
        """Return the text that a deployment answers to a chat. The call has no guards and no cache,
        and is accounted for by itself, as one of that guard. Raise ``ProxyError``."""


class Service(Protocol):
    """A way of looking that waits for somebody else, who sees whole texts only."""

    async def ask(
        self, texts: Sequence[Piece], question: PromptContext, outside: GuardClient
    ) -> Sequence[Sequence[Finding]]:
        """Return the findings in each text. Whatever it raises means that it could not look."""


AnyDetector = Detector | ContextualDetector | Service


def is_detector(detector: AnyDetector) -> TypeGuard[Detector]:
    return hasattr(detector, "find")


def is_contextual(detector: AnyDetector) -> TypeGuard[ContextualDetector]:
    return hasattr(detector, "about")


def is_weighted(detector: AnyDetector) -> TypeGuard[Weighty]:
    return hasattr(detector, "weight")


def is_prefiltered(detector: AnyDetector) -> TypeGuard[Prefiltered]:
    return hasattr(detector, "may_find")


def is_preparable(detector: object) -> TypeGuard[Preparable]:
    return hasattr(detector, "prepare")


def is_service(detector: AnyDetector) -> TypeGuard[Service]:
    return hasattr(detector, "ask")


@frozen
class GuardRule:
    """A way of looking, and what its findings lead to. ``kind`` is the word that policies have for
    it, ``detections`` are those that Enkrypt's clients have.

    ``shadow`` only counts what it would do. ``on_error`` says what a detector that raises, or takes
    longer than ``deadline_s``, means for a call: ``closed`` blocks it, unless the action is
    ``flag``. ``roles`` and ``fields`` narrow where it looks; None means everywhere, but for the
    messages of ``roles_left_out``. ``cased`` gives the detector texts with their capitals.
    ``message`` is what a client reads of a block; ``digest`` stands for all that was said of it.
    With ``restore`` what it masks in a question is put back into the answer, but into addresses of
    ``restore_hosts`` alone. ``route_targets`` is where it routes a call.

    It ``enforces`` if a finding changes or stops a text, or changes where the call goes; it
    ``can_block`` if a text with a finding is not shown: the call ends there, or is asked again. It
    is ``fails_closed`` if a failure of the detector stops a text. ``may_find`` is its detector's
    where it looks for places in texts of any kind; ``sieves`` are what that one asks first of lines
    of ASCII, and nothing else where none of them hits; none where it asks something else.
    """

    name: str
    detector: AnyDetector
    action: Action = "block"
    shadow: bool = False
    on_error: Literal["closed", "open"] = "closed"
    deadline_s: float = 1.0
    roles: frozenset[str] | None = None
    roles_left_out: frozenset[str] = frozenset()
    fields: frozenset[str] | None = None
    cased: bool = False
    message: str = ""
    digest: str = ""
    kind: str = ""
    restore: bool = False
    restore_hosts: frozenset[str] = frozenset()
    route_targets: tuple[Target, ...] = ()
    detections: tuple[DetectionFormat, ...] = ()
    may_find: MayFind | None = field(init=False, repr=False, compare=False, default=None)
    sieves: tuple[SharedPrefilter[Any], ...] = field(
        init=False, repr=False, compare=False, default=()
    )
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
            may_find = detector.may_find
            object.__setattr__(self, "may_find", may_find)
            object.__setattr__(self, "sieves", getattr(may_find, "sieves", ()))

    @property
    def keeps_answers(self) -> bool:
        """True if it needs a streamed answer to its end before it can tell."""
        if self.action == "retry" and self.enforces:
            return True
        detector = self.detector
        if is_detector(detector) or is_contextual(detector):
            return detector.lookback is None
        return True

    def applies(self, role: str | None, kind: str) -> bool:
        """True if the rule looks at texts of a kind, and of a role where the text has one."""
        if self.fields is not None and kind not in self.fields:
            return False
        if self.roles is not None:
            return role in self.roles
        return role not in self.roles_left_out


class GuardResult(NamedTuple):
    """What one guard says of one call. ``kind``, ``action`` and ``detections`` are its rule's;
    ``seconds`` is the time spent inside of its detector."""

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
    """The most that a call may cost by estimate, in nano-USD: a guard that reads no text.

    ``shadow`` and ``on_error`` are as those of a ``GuardRule``; it fails where the cost is unknown.
    """

    name: str
    max_nano_usd: int
    action: Action = "block"
    shadow: bool = False
    on_error: Literal["closed", "open"] = "closed"
    message: str = TOO_EXPENSIVE
    digest: str = ""
    kind: str = "economics"

    @property
    def enforces(self) -> bool:
        """True if a call that costs more is stopped."""
        return self.action == "block" and not self.shadow

    @property
    def fails_closed(self) -> bool:
        """True if a call whose cost is unknown is stopped."""
        return self.enforces and self.on_error == "closed"


@frozen
class Capture:
    """Captures prompts and responses of a ``share`` of traced calls: at most ``max_chars``
    characters of each, redacted by the rules of ``redact``."""

    share: float
    input: bool = True
    output: bool = True
    max_chars: int = 4000
    redact: tuple[GuardRule, ...] = ()


@frozen
class StageRules:
    """The rules of one stage, and what follows from all of them: worked out once, not by each call.

    ``detectors`` look by themselves, ``services`` are asked; where one is ``contextual``, which is
    which depends on the call. They are ``alone`` if texts are all that any of them asks for, and
    ``in_force`` unless all are in shadow.
    """

    every: tuple[GuardRule, ...]
    detectors: tuple[GuardRule, ...]
    services: tuple[GuardRule, ...]
    contextual: bool
    alone: bool
    enforces: bool
    restores: bool
    retries: bool
    in_force: bool

    @classmethod
    def of(cls, rules: tuple[GuardRule, ...]) -> StageRules:
        contextual = any(is_contextual(rule.detector) for rule in rules)
        services = tuple(rule for rule in rules if is_service(rule.detector))
        return cls(
            every=rules,
            detectors=tuple(rule for rule in rules if not is_service(rule.detector)),
            services=services,
            contextual=contextual,
            alone=not (contextual or services),
            enforces=any(rule.enforces for rule in rules),
            restores=any(rule.restore for rule in rules),
            retries=any(rule.action == "retry" and rule.enforces for rule in rules),
            in_force=any(not rule.shadow for rule in rules),
        )


@frozen
class GuardPlan:
    """The rules of one call for its question and for its answer, in their order. ``opaque`` lets
    pass what no rule can read: tokens, pictures, sounds. ``cost_caps`` bound its cost. Without
    ``capture`` no text is shown in traces.

    What follows from these is worked out once. ``route_targets`` is where a guard may route the
    call. With ``keeps_answers`` a streamed answer, or its texts, is kept until it has ended: a rule
    may want another one in its place, asks somebody about all of it, or judges it as a whole.
    ``digest`` is the same for the same rules, so that no answer is shown again under others.
    """

    input: tuple[GuardRule, ...] = ()
    output: tuple[GuardRule, ...] = ()
    opaque: bool = False
    cost_caps: tuple[CostCap, ...] = ()
    capture: Capture | None = None
    input_stage: StageRules = field(init=False, repr=False, compare=False)
    of_output: StageRules = field(init=False, repr=False, compare=False)
    route_targets: tuple[Target, ...] = field(init=False, repr=False, compare=False)
    keeps_answers: bool = field(init=False, repr=False, compare=False)
    digest: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        to = tuple(target for rule in self.input for target in rule.route_targets if rule.enforces)
        digest = " ".join([*(r.digest for r in self.input), "|", *(r.digest for r in self.output)])
        object.__setattr__(self, "input_stage", StageRules.of(self.input))
        object.__setattr__(self, "of_output", StageRules.of(self.output))
        object.__setattr__(self, "route_targets", to)
        object.__setattr__(self, "keeps_answers", any(rule.keeps_answers for rule in self.output))
        object.__setattr__(self, "digest", digest)

    def __bool__(self) -> bool:
        return bool(self.input or self.output)


NO_GUARDS = GuardPlan()
