"""Guards that ask somebody else, and what was hardly meant by them."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.policy.review.check import check_folder
from tests.for_each import for_each

POLICIES = """\
upstreams:
  openai: {dialect: openai, base_url: 'https://api.example.test'}
  spare: {dialect: openai, base_url: 'https://spare.example.test'}
keys: {widget: {sha256: AAAA, deployments: [support-chat]}}
deployments:
  support-chat: {targets: [{upstream: openai, model: m, price: PRICE}], policy: public}
  judge-smol: {targets: [{upstream: openai, model: s, price: PRICE}], policy: judging}
policies:
  judging: {input: [{guard: secrets}]}
  public:
    input:
      - {guard: judge, deployment: judge-smol, criteria: No hippos.}
      - {guard: moderation, upstream: spare}
    output:
      - {guard: judge, deployment: judge-smol, check: grounded}
      - {guard: webhook, url: 'https://guard.example.test', secret: '${S}'}
      - {guard: presidio, url: 'http://localhost:3000'}
""".replace("AAAA", "0" * 64).replace("PRICE", "{input: 1, output: 2}")
CALLS_ITSELF = "has guards that call the same deployment. Calls made by guards are not inspected."


def warnings_of(folder: Path, *changes: tuple[str, str]) -> list[str]:
    text = POLICIES
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "p.yaml").write_text(text)
    verdict = check_folder(folder, {"S": "s"})
    assert verdict.errors == ()
    return [str(warning) for warning in verdict.warnings]


def test_whom_guards_ask_is_used_and_reached(tmp_path: Path) -> None:
    assert warnings_of(tmp_path) == []


@for_each(
    ("change", "count", "finding"),
    [
        (
            ("policy: judging", "policy: public"),
            2,
            f'.public.output[0].deployment: deployment "judge-smol" {CALLS_ITSELF}',
        ),
        (
            ("[{guard: secrets}]", "[{guard: secrets}, {guard: bias, deployment: support-chat}]"),
            3,
            f'.judging.input[1].deployment: deployment "support-chat" {CALLS_ITSELF}',
        ),
        (
            (
                "{input: [{guard: secrets}]}",
                "{match: all, rules: [{name: r, input: [{guard: bias, deployment: judge-smol}]}]}",
            ),
            None,
            f'.judging.rules[0].input[0].deployment: deployment "judge-smol" {CALLS_ITSELF}',
        ),
    ],
)
def test_warns_of_guards_that_call_themselves(
    change: tuple[str, str], count: int | None, finding: str, tmp_path: Path
) -> None:
    text = [item.partition(": policies")[2] for item in warnings_of(tmp_path, change)]
    text = [item for item in text if "judging" not in item or ".judging." in finding]

    assert finding in text
    assert count in (None, len(text))


@pytest.mark.parametrize("kind", ["webhook", "presidio"])
def test_texts_that_would_go_in_the_clear_are_told(kind: str, tmp_path: Path) -> None:
    nearby = "https://guard" if kind == "webhook" else "http://localhost:3000"
    [text] = warnings_of(
        tmp_path, (nearby, "http://guard" if kind == "webhook" else "http://p.test")
    )

    assert text.endswith(".url: does not use https: all texts are sent unencrypted")
