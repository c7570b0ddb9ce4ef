"""Writing an answer: untouched bytes pass, the rest is put in the client's own form."""

from __future__ import annotations

import json
from dataclasses import replace

from proxy.dialects import DIALECTS
from proxy.dialects.writing import EventWriter, WholeWriter, answer_status, refusal
from proxy.errors import GuardBlocked
from proxy.types import Call, Chunk, RequestHead
from proxy.types.guard import GuardResult, Verdicts
from tests.doubles import legacy, legacy_events

CALL = Call(RequestHead("openai", "completions", "/v1/completions", "req_1"), {}, models=("m",))


FOUND: Verdicts = [
    ("input", GuardResult("mails", "flagged", False, {"email": 1}, 1.0, 9, 1, 0.0, kind="pii")),
    ("output", GuardResult("quiet", "blocked", True, {"word": 1}, 1.0, 9, 1, 0.0, kind="keywords")),
]


def told() -> Verdicts:
    return FOUND


def events(dialect: str, *, wants_usage: bool = False) -> EventWriter:
    return EventWriter(DIALECTS[dialect].client, wants_usage=wants_usage)


def test_bytes_that_nothing_has_changed_pass_as_they_came() -> None:
    raw = b'{"choices" : [ {"text":"x"} ]}'

    assert events("openai").feed(Chunk({"choices": [{}]}, raw)) == b"data: " + raw + b"\n\n"


def test_raw_bytes_of_several_lines_are_written_anew() -> None:
    assert events("openai").feed(Chunk({"a": 1}, b'{\n"a":1}')) == b'data: {"a":1}\n\n'


def test_bare_usage_goes_only_to_whom_it_was_promised() -> None:
    usage = Chunk(legacy_events("x")[-1])

    assert events("openai").feed(usage) == b""
    assert b'"usage"' in events("openai", wants_usage=True).feed(usage)


def test_only_scale_streams_end_without_done() -> None:
    last = Chunk(None, last=True)

    ends = {name: events(name).feed(last) for name in DIALECTS if name != "anthropic"}

    assert ends.pop("scale") == b""
    assert set(ends.values()) == {b"data: [DONE]\n\n"}


def test_enkrypt_adds_its_detections_to_whole_answers_and_to_the_finish_of_streams() -> None:
    whole = WholeWriter(DIALECTS["enkrypt"].client, CALL).feed(Chunk(legacy(), last=True))
    first, *_, finish = [Chunk(e, b"{}") for e in legacy_events("x", with_usage=False)]

    assert json.loads(whole)["enkrypt_policy_detections"]["input_guardrails"]["summary"] == {}
    assert json.loads(whole)["prompt"] == []
    assert events("enkrypt").feed(first) == b"data: {}\n\n"
    assert b"enkrypt_policy_detections" in events("enkrypt").feed(finish)


def test_what_guards_said_is_told_to_enkrypts_clients_at_the_finish() -> None:
    client = DIALECTS["enkrypt"].client
    [first, finish] = [Chunk(e, b"{}") for e in legacy_events("x", with_usage=False)]
    writer = EventWriter(client, wants_usage=False, verdicts=told)

    whole = json.loads(WholeWriter(client, CALL, told).feed(Chunk(legacy(), last=True)))
    said = [writer.feed(first), writer.feed(finish)]

    streamed = json.loads(said[1].removeprefix(b"data: "))
    assert said[0] == b"data: {}\n\n"
    for answer in (whole, streamed):
        detections = answer["enkrypt_policy_detections"]
        assert detections["input_guardrails"]["summary"] == {"pii": 1}
        assert detections["output_guardrails"]["summary"] == {}  # it is in shadow


def test_what_guards_said_is_told_to_portkeys_clients_beside_the_answer() -> None:
    client = DIALECTS["portkey"].client
    raw = json.dumps(legacy()).encode()

    whole = json.loads(WholeWriter(client, CALL, told).feed(Chunk(legacy(), raw, last=True)))
    unguarded = WholeWriter(client, CALL).feed(Chunk(legacy(), raw, last=True))

    [hook] = whole["hook_results"]["before_request_hooks"]
    assert (hook["id"], hook["verdict"]) == ("mails", False)
    assert whole["hook_results"]["after_request_hooks"] == []
    assert unguarded == raw


def test_only_portkeys_clients_get_statuses_of_their_own() -> None:
    blocked = GuardBlocked("No.", guard="mails", kind="email")
    answers = {
        name: answer_status(each.client, FOUND, flagged=False) for name, each in DIALECTS.items()
    }
    refusals = {
        name: refusal(each.client, blocked, "req_1", FOUND) for name, each in DIALECTS.items()
    }

    assert (answers.pop("portkey"), set(answers.values())) == (246, {200})
    assert refusals["portkey"].body["error"]["type"] == "hooks_failed"
    assert refusals["portkey"].body["hook_results"]["before_request_hooks"]
    assert "message" not in refusals["enkrypt"].body
    detections = refusals["enkrypt"].body["enkrypt_policy_detections"]
    assert detections["input_guardrails"]["summary"] == {"pii": 1}
    assert (refusals.pop("portkey").status, {r.status for r in refusals.values()}) == (446, {400})
    assert refusals.pop("anthropic").body["error"] == {
        "type": "invalid_request_error",
        "message": "No.",
    }
    assert all(r.body["error"]["code"] == "guardrail_blocked" for r in refusals.values())


def test_what_is_only_in_shadow_changes_no_status() -> None:
    assert answer_status(DIALECTS["portkey"].client, FOUND[1:], flagged=False) == 200


def test_what_is_large_is_written_as_what_is_small() -> None:
    data = legacy("\n" * 200_000)
    large = Chunk(data, last=True, size=200_000)

    for dialect in ("openai", "enkrypt"):
        client = DIALECTS[dialect].client
        small = WholeWriter(client, CALL).feed(Chunk(data, last=True))
        assert WholeWriter(client, CALL).feed(large) == small
        assert events(dialect).feed(large) == events(dialect).feed(Chunk(data, last=True))


def test_the_weight_of_a_whole_answer_is_that_of_all_its_legs() -> None:
    writer = WholeWriter(DIALECTS["multimodel"].client, replace(CALL, models=("a", "b")))

    assert writer.weight(Chunk(legacy(), size=70)) == 0
    writer.feed(Chunk(legacy(), size=70))
    assert writer.weight(Chunk(legacy(), leg=1, last=True, size=30)) == 100
    assert events("openai").weight(Chunk(legacy(), size=30)) == 30
