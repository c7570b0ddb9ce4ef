"""Runs the guards of a policy on calls: on requests, responses, and errors of upstreams.

Guards inspect every text, in every API format. Content that they cannot read is rejected, unless
the policy allows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from proxy.call.record import Record
from proxy.dialects.families import FAMILIES, find_client_family
from proxy.errors import GuardBlocked, ProxyError, UpstreamError
from proxy.guards.capture import CallCapture, build_redaction_rules
from proxy.guards.engine import Engine, bind_to_prompt
from proxy.guards.findings import Replace, RuleTally, replace_by_kind
from proxy.guards.inspector import DocumentInspector, Walk, WholeResponseInspector
from proxy.guards.output import FrameInspector, OutputInspector, StreamInspector, ValueRestorer
from proxy.guards.signed_thoughts import (
    DeliveredThoughts,
    ThoughtRecorder,
    drop_texts_of_blocks,
    remove_changed_thoughts,
)
from proxy.guards.stream.frame_texts import KIND_OF
from proxy.guards.stream.placeholders import Masks, derive_placeholder_key
from proxy.guards.text.walk import (
    Opaque,
    Path,
    Text,
    Texts,
    walk_passthrough_request,
    walk_request,
    walk_response,
)
from proxy.guards.unguarded import NO_OUTPUT_GUARDS
from proxy.ports import CallGuards, OutputGuards
from proxy.runtime.frozen import frozen
from proxy.types import ABOUT_STATE, Call, Endpoint, Plan, ResponseHead
from proxy.types.events import Kind
from proxy.types.guard import GuardPlan, StageRules

OPAQUE_MESSAGE = (
    'This policy rejects content of the kind "{}", because its guards cannot inspect it. '
    "Send text only, or ask the operator to set `opaque: allow`."
)
OPAQUE_RESPONSE_MESSAGE = (
    "This policy rejects the responses of this path, because its guards cannot inspect them. "
    "Ask the operator to set `opaque: allow`."
)
ENDPOINTS_WITHOUT_RETRY: frozenset[Endpoint] = ABOUT_STATE | {"passthrough"}
"""Endpoints whose responses are stored, or must not be requested twice."""


@frozen
class PolicyGuards:
    """Runs the guards of policies. ``placeholder_key`` is the secret key of placeholder digests."""

    engine: Engine
    placeholder_key: bytes = field(default_factory=derive_placeholder_key, repr=False)
    thoughts: DeliveredThoughts = field(default_factory=DeliveredThoughts, repr=False)

    def build_call_guards(self, plan: Plan, call: Call, record: Record) -> CallGuards:
        return GuardedCall(guards=self, plan=plan, call=call, record=record)


@dataclass(slots=True)
class GuardedCall:
    """The guards of one call."""

    guards: PolicyGuards = field(repr=False)
    plan: Plan
    call: Call
    record: Record
    _masks: Masks | None = field(default=None, repr=False)
    _has_response: bool = False

    async def inspect(self) -> tuple[Plan, Call]:
        """Return the plan and the call with masked texts.

        A guard may change the targets of the plan. Raises ``GuardBlocked``.
        """
        call, rules, engine = self.call, self.plan.guards.input_stage, self.guards.engine
        if not rules.all_rules:
            return self.plan, call
        if call.upload is not None:
            walked_texts = Texts((), (Opaque((), "file"),))
            return await self._inspect_request(rules, walk_passthrough_request, walked_texts)
        walk: Walk = walk_request if call.head.passthrough is None else walk_passthrough_request
        walked_texts = await engine.read_texts(walk, call.body, call.size, self.record.key)
        blocks = self.guards.thoughts.find_delivered_blocks(call.body, self.plan, self.record.key)
        if blocks and not any(rule.action == "route" for rule in rules.all_rules):
            walked_texts = drop_texts_of_blocks(walked_texts, blocks)
        return await self._inspect_request(rules, walk, walked_texts)

    async def _inspect_request(
        self, rules: StageRules, walk: Walk, walked_texts: Texts
    ) -> tuple[Plan, Call]:
        """Apply the rules to a request whose texts are read. Raises ``GuardBlocked``."""
        call, guards = self.call, self.guards
        if refusal := find_opaque_refusal(walked_texts, self.plan.guards):
            raise refusal
        replacement: Replace = replace_by_kind
        if rules.restores:
            self._masks = Masks.for_virtual_key(guards.placeholder_key, self.record.key)
            replacement = self._masks.make_replacement
        inspector = DocumentInspector(
            engine=guards.engine,
            record=self.record,
            stage="input",
            walk=walk,
            replacement=replacement,
            size=call.size,
        )
        body = await inspector.inspect(rules, call.body, walked_texts=walked_texts)
        safe = call
        if body is not call.body:
            safe = replace(call, body=remove_changed_thoughts(call.body, body), field_quarters={})
        rule, state = inspector.routing_rule, call.state_ref
        if rule is not None:
            # A call that refers to stored state may only go to the target that has it.
            targets = tuple(t for t in rule.route_targets if state is None or state.matches(t))
            if not targets:
                raise GuardBlocked(rule.message, guard=rule.name, kind="could_not_route")
            self.record.original_plan = self.plan
            model_calls = tuple(
                replace(model_call, targets=targets, pool_size=1)
                for model_call in self.plan.model_calls
            )
            self.plan = self.record.plan = replace(self.plan, model_calls=model_calls)
        return self.plan, safe

    async def redact_error(self, error: ProxyError) -> None:
        """Apply the output guards to the texts of an upstream in an error.

        If a service would have to inspect these texts, they are removed.
        """
        guards, engine = self.plan.guards, self.guards.engine
        texts = list_upstream_texts(error)
        # Enforcing rules apply to errors, regardless of their fields and roles.
        rules = [replace(rule, fields=None, roles=None) for rule in guards.output if rule.enforces]
        if texts and rules:
            bound = bind_to_prompt(StageRules.from_rules(tuple(rules)), self.call.body)
            inspection = await engine.inspect(bound.detectors, texts, caller=self.record.key)
            results = (*inspection.results, *engine.build_uncalled_results(bound.services))
            self.record.add_guard_results("output", results)
            if bound.services or inspection.blocked is not None:
                remove_upstream_texts(error)
            else:
                redact_upstream_texts(error, inspection.changes)
        if error.upstream_message:
            call_capture = self._start_capture(self.call)
            if call_capture is not None:
                error.system_text = call_capture.redact_error_message(error.message)

    def build_output_guards(self, call: Call, head: ResponseHead) -> OutputGuards:
        """Return the guards of one response. ``call`` is the call as sent to the upstream.

        Guards with the action ``retry`` block in a second response, and if the request must not be
        sent twice: passthrough requests, and those that create or read stored state. Raises
        ``GuardBlocked`` for a response that guards cannot read, unless the policy allows it.
        """
        rules, engine = self.plan.guards.output_stage, self.guards.engine
        if head.passthrough is not None and head.streamed:
            if rules.enforces and not self.plan.guards.allows_opaque:
                raise GuardBlocked(OPAQUE_RESPONSE_MESSAGE, guard="opaque", kind="file")
            tallies = [RuleTally(rule, engine.clock, opaque=True) for rule in rules.all_rules]
            self.record.add_guard_results("output", [tally.to_result() for tally in tallies])
            return NO_OUTPUT_GUARDS
        holds_response = rules.retries
        if (
            self._has_response
            or call.head.endpoint in ENDPOINTS_WITHOUT_RETRY
            or (holds_response and call.creates_state)
        ):
            blocking = (
                replace(rule, action="block") if rule.action == "retry" else rule
                for rule in rules.all_rules
            )
            rules = StageRules.from_rules(tuple(blocking))
        rules = _extend_rule_fields(rules, FAMILIES[find_client_family(call)].shown_as)
        self._has_response = True
        inspector = self._build_inspector(call, rules)
        call_capture = self._start_capture(call)
        if call_capture is not None:
            self.record.captured = call_capture.build_captured_texts
        has_input = bool(self.plan.guards.input_stage.all_rules)
        key = self.record.key
        return OutputInspector(
            inspector,
            restorer=ValueRestorer(self._masks, engine, key, call) if self._masks else None,
            call_capture=call_capture,
            thoughts=ThoughtRecorder(self.guards.thoughts, self.record) if has_input else None,
            holds_response=holds_response,
            drops_raw_bytes=rules.in_force,
        )

    def _build_inspector(self, call: Call, rules: StageRules) -> FrameInspector:
        engine = self.guards.engine
        if not rules.all_rules:
            return NO_OUTPUT_GUARDS
        if call.stream:
            inspector = StreamInspector(engine, rules, call.body, self.record)
            self.record.live_guard_results = inspector.get_results
            return inspector
        is_unknown = call.head.passthrough is not None
        walk = partial(walk_response, unknown_kind="content") if is_unknown else walk_response
        return WholeResponseInspector(engine, self.record, rules, call=call, walk=walk)

    def _start_capture(self, call: Call) -> CallCapture | None:
        """Return the capture of a call, or None unless the policy captures it."""
        guards = self.plan.guards
        if guards.capture is None or not self.record.is_sampled(guards.capture.share):
            return None
        rules = build_redaction_rules(guards.capture, guards)
        clock = self.guards.engine.clock
        return CallCapture(guards.capture, rules, call.body, clock=clock)


def _extend_rule_fields(rules: StageRules, shown_as: Mapping[Kind, Kind]) -> StageRules:
    """Return rules that inspect both of two kinds of text if clients see them as one kind."""
    if any([rule.fields is not None for rule in rules.all_rules]):
        for kinds in shown_as.items():
            names = {KIND_OF[kind] for kind in kinds}
            joined = (
                replace(rule, fields=rule.fields | names)
                if rule.fields is not None and not names.isdisjoint(rule.fields)
                else rule
                for rule in rules.all_rules
            )
            rules = StageRules.from_rules(tuple(joined))
    return rules


def find_opaque_refusal(texts: Texts, guards: GuardPlan) -> GuardBlocked | None:
    """Return the error for a request with content that its enforcing guards cannot inspect."""
    if not texts.opaque or guards.allows_opaque or not guards.input_stage.enforces:
        return None
    kind = texts.opaque[0].kind
    return GuardBlocked(OPAQUE_MESSAGE.format(kind), guard="opaque", kind=kind)


def list_upstream_texts(error: ProxyError) -> list[Text]:
    """Return the texts of an error that an upstream wrote: they may quote the request.

    The path of each text ends with the name of its attribute.
    """
    names = ["message"] if error.upstream_message is not None else []
    if isinstance(error, UpstreamError):
        names += ["param", "upstream_code", "upstream_type"]
    return [
        Text(("error", name), text, "content", role="assistant")
        for name in names
        if (text := getattr(error, name))
    ]


def redact_upstream_texts(error: ProxyError, changes: Mapping[Path, str]) -> None:
    """Replace the message of an upstream, and remove its other texts that guards changed."""
    for path, text in changes.items():
        if path[-1] == "message":
            error.set_message(text)
        else:
            setattr(error, str(path[-1]), None)


def remove_upstream_texts(error: ProxyError) -> None:
    """Remove the texts that an upstream wrote, and keep the error's own message."""
    paths = [text.path for text in list_upstream_texts(error)]
    redact_upstream_texts(error, dict.fromkeys(paths, error.own_message))
