"""Targets: references to state, providers, passthrough paths and label values."""

from __future__ import annotations

import posixpath
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from proxy.config.scalars import Name
from proxy.dialects import DIALECTS
from proxy.policy.schema.upstreams import AZURE
from proxy.types import StateRef, Target, Upstream
from proxy.types.label_catalog import DeploymentLabels, LabelCatalog
from proxy.types.passthrough import (
    PassthroughPath,
    PassthroughPaths,
    fill_route,
    make_sample_request,
)
from proxy.types.providers import BY_LITELLM_NAME, get_key_variable, is_reasoning_call
from tests.for_each import for_each


def of_target(target: str, deployment: str = "support-chat") -> StateRef:
    """Return a reference to the state of one target."""
    return StateRef("sealed", deployment, target, "resp_1")


def of_upstream(upstream: str, deployment: str = "support-chat") -> StateRef:
    """Return a reference to the state of an upstream."""
    return StateRef("sealed", deployment, upstream, "conv_1", is_conversation=True)


@for_each(
    ("ref", "other_ref", "is_same"),
    [
        (of_target("openai/gpt"), of_target("openai/gpt"), True),
        (of_target("openai/gpt"), of_target("openai/gpt-4o"), False),
        (of_target("openai/gpt"), of_target("openai/gpt/4"), False),
        (of_upstream("openai"), of_upstream("openai"), True),
        (of_upstream("openai"), of_upstream("openai-eu"), False),
        (of_upstream("openai"), of_target("openai/eu/gpt"), True),
        (of_upstream("openai"), of_target("openai-eu/gpt"), False),
        (of_upstream("eu"), of_target("openai/eu/gpt"), False),
        (of_upstream("openai"), of_target("openai/gpt", "search"), False),
    ],
)
def test_states_of_one_target_are_compatible(
    ref: StateRef, other_ref: StateRef, is_same: bool
) -> None:
    assert ref.can_share_target(other_ref) is other_ref.can_share_target(ref) is is_same


def test_state_matches_target_or_upstream() -> None:
    openai, eu = (
        Upstream(name, "openai", "http://127.0.0.1:9") for name in ("openai", "openai-eu")
    )
    targets = [Target(openai, "gpt"), Target(openai, "gpt-4o"), Target(eu, "gpt")]

    assert [of_target("openai/gpt").matches(target) for target in targets] == [True, False, False]
    assert [of_upstream("openai").matches(target) for target in targets] == [True, True, False]


@for_each("word", BY_LITELLM_NAME)
def test_providers_are_policy_values(word: str) -> None:
    provider = BY_LITELLM_NAME[word]

    assert TypeAdapter(Name).validate_python(provider.name) == provider.name
    assert provider.dialect in {AZURE, *DIALECTS}
    if provider.base_url is not None:
        local = provider.base_url.startswith("http://127.0.0.1:")
        assert local or provider.base_url.startswith("https://")
    needs_none = {"ollama", "ollama_chat", "hosted_vllm", "lm_studio"}
    assert bool(provider.key_variable) == (word not in needs_none)


@pytest.mark.parametrize(
    ("word", "variable"),
    [("hosted_vllm", "HOSTED_VLLM_API_KEY"), ("openai-eu.1", "OPENAI_EU_1_API_KEY")],
)
def test_account_has_its_variable(word: str, variable: str) -> None:
    assert get_key_variable(word) == variable


REASONING = (
    "o1", "o3-mini", "o4-mini-2025-04-16", "openai/o1-preview", "gpt-5", "gpt-5.1-mini",
    "gpt-oss-120b", "deepseek-reasoner", "deepseek-ai/DeepSeek-R1", "qwq-32b", "grok-4",
    "gemini-2.5-flash", "Qwen3-4B-Thinking-2507", "accounts/fireworks/models/deepseek-r1",
    "phi-4-reasoning", "magistral-small",
)  # fmt: skip
OTHER_MODELS = (
    "gpt-4o-mini", "gpt-5-chat-latest", "smol", "llama-3.1-8b", "deepseek-chat", "claude-sonnet-4",
    "gpt-4.1", "foo1", "gemini-2.0-flash", "mistral-small", "qwen3-non-thinking",
    "grok-4-fast-non-reasoning", "x-ai/Grok-4-1-Fast-Non-Reasoning", "qwen3-nonthinking",
    "some_non_reasoning_model",
)  # fmt: skip


@for_each("model", [*REASONING, *OTHER_MODELS])
def test_reasoning_models_are_recognized(model: str) -> None:
    assert is_reasoning_call(model, {}) is (model in REASONING)


@for_each(
    ("body", "is_requested"),
    [
        ({"reasoning_effort": "low"}, True),
        ({"reasoning_effort": "none"}, False),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, True),
        ({"thinking": {"type": "disabled"}}, False),
        ({"reasoning": {"effort": "high"}}, True),
        ({"messages": []}, False),
    ],
)
def test_requested_reasoning_counts(body: dict[str, Any], is_requested: bool) -> None:
    assert is_reasoning_call("smol", body) is is_requested


FILES = PassthroughPath("/v1/files/{id}", frozenset({"GET", "DELETE"}))


@for_each("path", ["/v1/files/ft:gpt-4o:org::a1", "/v1/files/a.b~c_d=e@f+g"])
def test_ids_of_providers_match(path: str) -> None:
    assert FILES.match_path(path) is not None


@for_each(
    "value",
    ["", ".", "..", "../x", "a/b", "a%2Fb", "%61", "a b", "a?b", "a#b", "a\\b", "-a", "a\n", "é"],
)
def test_unsafe_segments_do_not_match(value: str) -> None:
    assert FILES.match_path(f"/v1/files/{value}") is None


@given(
    st.text(max_size=12)
    | st.lists(st.sampled_from([*"/.%\\;?#a0-", "..", "%2e", "%2f", "\r\n"])).map("".join)
)
def test_matching_path_stays_below_its_pattern(value: str) -> None:
    path = f"/v1/files/{value}/content"

    if PassthroughPath("/v1/files/{id}/content").match_path(path) is not None:
        url = urlsplit(urljoin("https://h.test/v1/", f"https://h.test{path}"))
        assert (url.netloc, url.path, url.query, url.fragment) == ("h.test", path, "", "")
        assert posixpath.normpath(url.path) == unquote(url.path) == path
        assert path.count("/") == 4


def test_literal_precedes_parameter() -> None:
    path = PassthroughPath("/v1/files/{id}", frozenset({"GET"}))
    word = PassthroughPath("/v1/files/list", frozenset({"GET"}))

    paths = PassthroughPaths.from_paths([path, word])

    assert paths.find("GET", "/v1/files/list") == word
    assert paths.find("GET", "/v1/files/other") == path
    assert paths.find("POST", "/v1/files/other") is None
    assert paths.find_methods("/v1/files/other") == ["GET"]
    assert PassthroughPaths.merge([PassthroughPaths.from_paths([path]), paths]).paths == paths.paths


def test_values_replace_parameters() -> None:
    match = FILES.match_path("/v1/files/a")

    assert match is not None
    assert fill_route("/v2/{id}/content", match.groupdict()) == "/v2/a/content"
    assert make_sample_request("/v1/files/{id}").path == FILES.sample_path == "/v1/files/x"


def test_only_safe_methods_are_repeatable() -> None:
    methods = ("GET", "DELETE", "PUT", "POST", "PATCH")
    assert [method for method in methods if FILES.may_repeat(method)] == ["GET", "DELETE", "PUT"]
    assert PassthroughPath("/v1/rerank", repeatable=True).may_repeat("POST")


ROSTER = LabelCatalog(
    keys=("batch",),
    deployments={"chat": DeploymentLabels(tags=frozenset({("team", "search")}))},
    tags={"team": frozenset(), "env": frozenset({"prod"})},
)


@for_each(
    ("scope", "owners"),
    [
        ("", {}),
        ("key:batch", {"key": "batch"}),
        ("key:batch|deployment:chat", {"key": "batch", "deployment": "chat"}),
        ("tag.team:search|tag.env:prod", {"tag.team": "search", "tag.env": "prod"}),
        ("tag.team:anything", {}),
        ("tag.env:", {}),
        ("key:batch|user:alice", {"key": "batch"}),
        ("user:alice|key:batch", {}),  # a user name may contain a separator
        ("key:nobody", {}),
        ("model:never-heard-of", {}),
    ],
)
def test_only_names_of_policies_are_labels(scope: str, owners: dict[str, str]) -> None:
    assert ROSTER.get_scope_labels(scope) == owners
