"""Guards as a policy asks for them, and what each says of one call: values, without behaviour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeGuard

from proxy.frozen import frozen
from proxy.types.detections import DetectionFormat
from proxy.types.target import Target

Action = Literal["block", "mask", "flag", "route", "retry"]
Verdict = Literal[
    "passed", "flagged", "masked", "blocked", "routed", "retried", "failed", "not_applicable"
]
Stage = Literal["input", "output"]
MESSAGE = "The text was blocked by a guard."
TOO_EXPENSIVE = "The call was blocked by a guard: it may cost more than is allowed."


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


class Detector(Protocol):
    """One way of looking at a text.

    ``reach`` bounds what a stream must hold back: a finding, together with all that it depends on
    around it (a word's edge is one character), lies within so many characters; None where only the
    whole text can tell. From the beginning of a finding on, or from where none is under way, the
    same is found as from the beginning of the text.
    """

    @property
    def reach(self) -> int | None: ...

    def find(self, text: str) -> Sequence[Finding]:
        """Return all findings, ordered by their start, without overlaps, in time linear in the
        text."""


@frozen
class Question:
    """What a call asked, in plain text, for guards that judge an answer by it; empty where it did
    not say: ``system`` is its system prompt, ``asked`` the last that its user said, ``context``
    what the answer has to rest on."""

    system: str = ""
    asked: str = ""
    context: str = ""


class ContextualDetector(Protocol):
    """A way of looking that depends on the call. ``reach`` is that of the detectors that it
    returns, at the most; None where one of them, or a service, is to see whole texts."""

    @property
    def reach(self) -> int | None: ...

    def about(self, question: Question) -> Detector | Service | None:
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


class GuardEgress(Protocol):
    """The ways out of the process that the guards of one call have."""

    @property
    def request_id(self) -> str:
        """What the call is known by to those who are asked about it."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Return the status and the body of a service's answer. Raise ``OSError``."""

    async def complete(self, guard: str, deployment: str, body: Mapping[str, Any]) -> str:
        """Return the text that a deployment answers to a chat. The call has no guards and no cache,
        and is accounted for by itself, as one of that guard. Raise ``ProxyError``."""


class Service(Protocol):
    """A way of looking that waits for somebody else, who sees whole texts only."""

    async def ask(
        self, texts: Sequence[Piece], question: Question, outside: GuardEgress
    ) -> Sequence[Sequence[Finding]]:
        """Return the findings in each text. Whatever it raises means that it could not look."""


Looking = Detector | ContextualDetector | Service


def is_detector(detector: Looking) -> TypeGuard[Detector]:
    return hasattr(detector, "find")


def is_contextual(detector: Looking) -> TypeGuard[ContextualDetector]:
    return hasattr(detector, "about")


def is_weighted(detector: Looking) -> TypeGuard[Weighty]:
    return hasattr(detector, "weight")


def is_service(detector: Looking) -> TypeGuard[Service]:
    return hasattr(detector, "ask")


@frozen
class GuardRule:
    """A way of looking, and what its findings lead to. ``kind`` is the word that policies have for
    it, ``detections`` are those that Enkrypt's clients have.

    ``shadow`` only counts what it would do. ``on_error`` says what a detector that raises, or takes
    longer than ``deadline_s``, means for a call: ``closed`` blocks it, unless the action is
    ``flag``. ``roles`` and ``fields`` narrow where it looks; None means everywhere. ``cased`` gives
    the detector texts with their capitals. ``message`` is what a client reads of a block;
    ``digest`` stands for all that was said of it. With ``restore`` what it masks in a question is
    put back into the answer, but into addresses of ``restore_hosts`` alone. ``to`` is where it
    routes a call.
    """

    name: str
    detector: Looking
    action: Action = "block"
    shadow: bool = False
    on_error: Literal["closed", "open"] = "closed"
    deadline_s: float = 1.0
    roles: frozenset[str] | None = None
    fields: frozenset[str] | None = None
    cased: bool = False
    message: str = MESSAGE
    digest: str = ""
    kind: str = ""
    restore: bool = False
    restore_hosts: frozenset[str] = frozenset()
    to: tuple[Target, ...] = ()
    detections: tuple[DetectionFormat, ...] = ()

    @property
    def enforces(self) -> bool:
        """True if a finding changes or stops a text, or changes where the call goes."""
        return self.action != "flag" and not self.shadow

    @property
    def masks(self) -> bool:
        return self.action == "mask" and not self.shadow

    @property
    def stops(self) -> bool:
        """True if a text with a finding is not shown: the call ends there, or is asked again."""
        return self.action in ("block", "retry") and not self.shadow

    @property
    def strict(self) -> bool:
        """True if a failure of the detector stops a text."""
        return self.enforces and self.on_error == "closed"

    @property
    def keeps_answers(self) -> bool:
        """True if it needs a streamed answer to its end before it can tell."""
        if self.action == "retry" and self.enforces:
            return True
        detector = self.detector
        if is_detector(detector) or is_contextual(detector):
            return detector.reach is None
        return True

    def applies(self, role: str | None, kind: str) -> bool:
        """True if the rule looks at texts of a kind, and of a role where the text has one."""
        if self.fields is not None and kind not in self.fields:
            return False
        return self.roles is None or role in self.roles


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


Verdicts = Sequence[tuple[Stage, GuardResult]]


@frozen
class CostCap:
    """The most that a call may cost by estimate, in nano-USD: a guard that reads no text.

    ``shadow`` and ``on_error`` are as those of a ``GuardRule``; it fails where the cost is unknown.
    """

    name: str
    most: int
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
    def strict(self) -> bool:
        """True if a call whose cost is unknown is stopped."""
        return self.enforces and self.on_error == "closed"


@frozen
class Capture:
    """Which texts of which calls are shown in traces: a ``share`` of those that are traced, at most
    ``max_chars`` characters of the question and as many of the answer, without what ``redact``
    finds."""

    share: float
    input: bool = True
    output: bool = True
    max_chars: int = 4000
    redact: tuple[GuardRule, ...] = ()


@frozen
class Guarding:
    """The rules of one call for its question and for its answer, in their order. ``opaque`` lets
    pass what no rule can read: tokens, pictures, sounds. ``ceilings`` bound its cost. Without
    ``capture`` no text is shown in traces."""

    input: tuple[GuardRule, ...] = ()
    output: tuple[GuardRule, ...] = ()
    opaque: bool = False
    ceilings: tuple[CostCap, ...] = ()
    capture: Capture | None = None

    @property
    def detours(self) -> tuple[Target, ...]:
        """Where a guard may route the call."""
        return tuple(target for rule in self.input for target in rule.to if rule.enforces)

    @property
    def keeps_answers(self) -> bool:
        """True if a streamed answer, or its texts, is kept until it has ended: a rule may want
        another one in its place, asks somebody about all of it, or judges it as a whole."""
        return any(rule.keeps_answers for rule in self.output)

    @property
    def digest(self) -> str:
        """What is the same for the same rules, so that no answer is shown again under others."""
        return " ".join([*(r.digest for r in self.input), "|", *(r.digest for r in self.output)])

    def __bool__(self) -> bool:
        return bool(self.input or self.output)


UNGUARDED = Guarding()
