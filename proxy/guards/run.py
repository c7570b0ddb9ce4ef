"""Inspection of texts, in and out: what a policy does not let pass, shows masked, or only notes.

Every text of a question and of an answer is looked at, in every dialect, streamed or whole: see
``texts``. What cannot be read is refused while a guard is in force, unless the policy lets it pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from proxy.call.record import Record
from proxy.errors import GuardBlocked, ProxyError
from proxy.guards.capture import Capturing, redacting
from proxy.guards.context import bind, split_services
from proxy.guards.engine import Engine
from proxy.guards.errors import acting, error_texts, rewrite, withhold
from proxy.guards.findings.mask import Replace, named
from proxy.guards.findings.tally import RuleTally
from proxy.guards.inspector import NOTHING_KNOWN, Known, Walk, WholeAnswer, WholeInspector
from proxy.guards.signed_thoughts import ShownThoughts, ThoughtReader, without_blocks
from proxy.guards.stream.placeholders import Masks, placeholder_key
from proxy.guards.text.plain_chat import plain_request
from proxy.guards.text.signed import without_broken
from proxy.guards.text.walk import (
    Opaque,
    Texts,
    passed_answer_walk,
    passed_request_walk,
    request_walk,
)
from proxy.guards.unguarded import OPEN, OpenGate
from proxy.guards.watch import (
    Look,
    LookAtOnce,
    OutputInspector,
    ValueRestorer,
    later,
    nothing,
)
from proxy.guards.whole.prefilter import prefilter_rules
from proxy.ports import CallGuards, OutputGuards
from proxy.runtime.frozen import frozen
from proxy.runtime.offload import LARGE_BYTES
from proxy.runtime.turn import LoopTurn
from proxy.types import ABOUT_STATE, Call, Endpoint, Plan, ResponseHead, StateRef
from proxy.types.events import Frame
from proxy.types.guard import Capture, GuardRule, StageRules

OPAQUE = (
    'This policy rejects content of the kind "{}", because its guards cannot inspect it. '
    "Send text only, or ask the operator to set `opaque: allow`."
)
OPAQUE_RESPONSE = (
    "This policy rejects the responses of this path, because its guards cannot inspect them. "
    "Ask the operator to set `opaque: allow`."
)
ASKED_ONCE: frozenset[Endpoint] = ABOUT_STATE | {"passthrough"}
"""Endpoints of calls that no model answers anew."""


@frozen
class PolicyGuards:
    """The guards of the policy, run by an engine. ``masks_key`` is the key of placeholders."""

    engine: Engine
    masks_key: bytes = field(default_factory=placeholder_key, repr=False)
    thoughts: ShownThoughts = field(default_factory=ShownThoughts, repr=False)

    def for_call(self, plan: Plan, call: Call, record: Record) -> CallGuards:
        guards = plan.guards
        if not (guards.input or guards.output or guards.capture):
            return OpenGate(plan, call)
        return CallGate(
            engine=self.engine,
            plan=plan,
            call=call,
            record=record,
            masks_key=self.masks_key,
            thoughts=self.thoughts,
        )


@dataclass(slots=True)
class CallGate:
    """The guards of one call: what its question meets on its way in, its answer on its way out."""

    engine: Engine
    plan: Plan
    call: Call
    record: Record
    masks_key: bytes = field(repr=False)
    thoughts: ShownThoughts = field(default_factory=ShownThoughts, repr=False)
    _masks: Masks | None = field(default=None, repr=False)
    _watch: OutputInspector | None = None

    async def inspect(self) -> tuple[Plan, Call]:
        """Return the plan and the call as the guards leave them: with other targets where a guard
        routes the call, and with texts masked. Raises ``GuardBlocked``."""
        call, guards = self.call, self.plan.guards
        rules = guards.input_stage
        if not rules.every:
            return self.plan, call
        if call.head.passthrough is not None:
            return await self._inspect_passed(rules)
        engine, known = self.engine, NOTHING_KNOWN
        read = plain_request(call.body) if rules.alone and call.size <= LARGE_BYTES else None
        if read is not None:
            known = prefilter_rules(rules.every, read, engine.above, engine.clock)
            if None not in known:  # nearly all are clean
                self.record.guards += [("input", each) for each in known if each is not None]
                return self.plan, call
        else:
            read = await engine.read(request_walk, call.body, call.size, self.record.key)
            if not any(rule.action == "route" for rule in rules.every):
                known_thoughts = self.thoughts.known_blocks(call.body, self.plan, self.record.key)
                read = without_blocks(read, known_thoughts)
        return await self._enforce(rules, request_walk, read, known)

    async def _inspect_passed(self, rules: StageRules) -> tuple[Plan, Call]:
        """Inspect a call that is passed on: its body, or that there is one that nobody reads."""
        call, walk = self.call, passed_request_walk
        read = Texts((), (Opaque((), "file"),))
        if call.upload is None:
            read = await self.engine.read(walk, call.body, call.size, self.record.key)
        return await self._enforce(rules, walk, read, NOTHING_KNOWN)

    async def _enforce(
        self, rules: StageRules, walk: Walk, read: Texts, known: Known
    ) -> tuple[Plan, Call]:
        """Return the plan and the call as the rules leave them, whose texts are read. Raise
        ``GuardBlocked``."""
        call, guards, engine = self.call, self.plan.guards, self.engine
        opaque = read.opaque
        if opaque and not guards.opaque and rules.enforces:
            kind = opaque[0].kind
            raise GuardBlocked(OPAQUE.format(kind), guard="opaque", kind=kind)
        replacement: Replace = named
        if rules.restores:
            self._masks = Masks.of(self.masks_key, self.record.key)
            replacement = self._masks.replacement
        inspector = WholeInspector(
            engine=engine,
            record=self.record,
            stage="input",
            walk=walk,
            replacement=replacement,
            size=call.size,
        )
        body = await inspector.inspect(rules, call.body, read=read, known=known)
        safe = call
        if body is not call.body:
            safe = replace(call, body=without_broken(call.body, body), field_quarters={})
        if inspector.routed is not None:
            self.record.original_plan = self.plan
            self.plan = self.record.plan = _elsewhere(self.plan, inspector.routed, call.state_ref)
        return self.plan, safe

    async def redact_error(self, error: ProxyError) -> None:
        """Let the guards of answers look at an upstream's words in an error. What a guard would ask
        somebody else about is not shown at all."""
        texts, rules = error_texts(error), acting(self.plan.guards.output)
        if texts and rules:
            own, services = split_services(bind(rules, self.call.body))
            looked = await self.engine.inspect(own, texts, caller=self.record.key)
            self.record.add_guard_results(
                "output", (*looked.results, *self.engine.unasked(services))
            )
            if services or looked.blocked is not None:
                withhold(error)
            else:
                rewrite(error, looked.changes)
        capture = self.plan.guards.capture
        if capture is not None and error.upstream_message and self.record.is_sampled(capture.share):
            error.system_text = self._capturing(self.call, capture).shown_error(error)

    def guard_output(self, call: Call, head: ResponseHead) -> OutputGuards:
        """Start watching one answer. ``call`` is as its upstream got it. The second time guards
        that want another answer have had it: they block. So they do where a call is passed on, as
        it may be one that must not be made twice, where it writes into a conversation, and where it
        is about an answer that is kept."""
        rules = self.plan.guards.of_output
        if head.passed is not None and head.streamed:
            return self._unread(rules)
        holds = rules.retries
        if (
            self._watch is not None
            or call.head.endpoint in ASKED_ONCE
            or (holds and call.creates_state)
        ):
            rules = StageRules.of(
                tuple(
                    replace(rule, action="block") if rule.action == "retry" else rule
                    for rule in rules.every
                )
            )
        look, at_once = self._look(call, rules)
        capture = self.plan.guards.capture
        if capture is not None and self.record.is_sampled(capture.share):
            look, at_once = self._captured(call, look, capture), later
        self._watch = OutputInspector(
            look,
            ValueRestorer(self._masks, self.engine, self.record.key, call) if self._masks else None,
            at_once=at_once,
            holds=holds,
            guarded=rules.in_force,
            thoughts=ThoughtReader(self.thoughts, self.record)
            if self.plan.guards.input_stage.every
            else None,
        )
        return self._watch

    def _unread(self, rules: StageRules) -> OutputGuards:
        """Return the watch of an answer that nobody reads. Raise ``GuardBlocked`` while a guard
        acts on answers, unless policy lets that pass."""
        if rules.enforces and not self.plan.guards.opaque:
            raise GuardBlocked(OPAQUE_RESPONSE, guard="opaque", kind="file")
        clock = self.engine.clock
        self.record.add_guard_results(
            "output", [RuleTally(rule, clock, opaque=True).result() for rule in rules.every]
        )
        return OPEN

    def _captured(self, call: Call, look: Look, capture: Capture) -> Look:
        """Show the answer in the call's trace: as guards leave it, and before values are put
        back."""
        capturing = self._capturing(call, capture)
        self.record.captured = capturing.shown
        return CapturedAnswer(look, capturing).inspect

    def _capturing(self, call: Call, capture: Capture) -> Capturing:
        rules = redacting(capture, self.plan.guards)
        return Capturing(capture=capture, rules=rules, asked=call.body, clock=self.engine.clock)

    def _look(self, call: Call, rules: StageRules) -> tuple[Look, LookAtOnce]:
        if not rules.every:
            return nothing, later
        if not call.stream:
            answer = WholeAnswer(engine=self.engine, record=self.record, rules=rules, call=call)
            if call.head.passthrough is not None:
                answer.walk = passed_answer_walk
            return answer.inspect, answer.try_inspect
        inquiry = partial(self.engine.inquiry, call.body, self.record)
        bound_rules = bind(rules.every, call.body) if rules.contextual else rules.every
        caller = self.record.key
        watching = self.engine.watch(bound_rules, inquiry, caller=caller)
        self.record.live_guard_results = watching.results
        return watching.inspect, watching.try_inspect


@frozen
class CapturedAnswer:
    """An answer that may be shown in the trace of its call."""

    look: Look
    capturing: Capturing

    async def inspect(self, frame: Frame) -> Sequence[Frame]:
        safe = await self.look(frame)
        turn = LoopTurn(self.capturing.clock)
        turn.begin()
        for each in safe:  # all that was held back may be shown at once
            self.capturing.feed(each)
            if turn.is_over():
                await turn.rest()
        return safe


def _elsewhere(plan: Plan, by: GuardRule, pin: StateRef | None) -> Plan:
    """Return a plan whose legs all go to the targets of a guard. Raises ``GuardBlocked`` if it has
    none that may be asked: of a call that leans on what one target keeps, only that one may be."""
    to = tuple(each for each in by.route_targets if pin is None or pin.matches(each))
    if not to:
        raise GuardBlocked(by.message, guard=by.name, kind="could_not_route")
    return replace(
        plan, model_calls=tuple(replace(leg, targets=to, pool_size=1) for leg in plan.model_calls)
    )
