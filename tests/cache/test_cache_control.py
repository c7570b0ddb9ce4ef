"""What clients say of the cache, and what becomes of words that make no sense."""

from __future__ import annotations

import pytest

from proxy.cache.cache_control import DEFAULT, CacheControl, read_cache_control
from proxy.errors import BadRequest
from tests.for_each import for_each


@for_each(
    ("headers", "control"),
    [
        ({}, DEFAULT),
        ({"cache-control": "no-cache"}, CacheControl(no_cache=True)),
        ({"cache-control": "No-Store"}, CacheControl(keep=False)),
        ({"cache-control": "no-store, no-cache"}, CacheControl(no_cache=True, keep=False)),
        ({"cache-control": "max-age=60"}, CacheControl(max_age=60)),
        ({"cache-control": 'max-age = "5", max-age=60'}, CacheControl(max_age=5)),
        ({"cache-control": "max-age=99999999999999999999"}, CacheControl(max_age=10**9)),
        ({"cache-control": "max-age=soon, only-if-cached, ="}, DEFAULT),
        ({"cache-control": "max-age=-1, max-age=²"}, DEFAULT),
        ({"x-portkey-cache-force-refresh": "true"}, CacheControl(no_cache=True)),
        ({"x-portkey-cache-force-refresh": "false"}, DEFAULT),
        ({"cf-aig-skip-cache": "true"}, CacheControl(no_cache=True, keep=False)),
        ({"cf-aig-skip-cache": "false"}, DEFAULT),
        ({"helicone-cache-enabled": "false"}, CacheControl(no_cache=True, keep=False)),
        ({"helicone-cache-enabled": "true"}, DEFAULT),
        ({"helicone-cache-enabled": ""}, DEFAULT),
        ({"x-portkey-cache-namespace": " trial "}, CacheControl(namespace="trial")),
    ],
)
def test_reads_cache_headers(headers: dict[str, str], control: CacheControl) -> None:
    assert read_cache_control(headers) == control


def test_invalid_refresh_flag_is_rejected() -> None:
    with pytest.raises(BadRequest, match="force-refresh: must be true or false"):
        read_cache_control({"x-portkey-cache-force-refresh": "perhaps"})


def test_denied_refresh_keeps_other_directives() -> None:
    wish = CacheControl(no_cache=True, max_age=1, keep=False, namespace="trial")

    assert wish.bypasses_cache
    assert wish.without_refresh() == CacheControl(keep=False, namespace="trial")
    assert not wish.without_refresh().bypasses_cache
