from __future__ import annotations

import pytest

from proxy.guards.kinds.urls import LOOKBACK, Urls
from proxy.guards.text.hosts import list_hosts, normalize_host
from tests.for_each import for_each


def kinds(urls: Urls, text: str) -> list[tuple[str, str]]:
    return [(text[finding.start : finding.end], finding.kind) for finding in urls.find(text)]


@for_each(
    "url",
    [
        "https://evil.example", "HTTP://EVIL.EXAMPLE./order", "http://evil.example:8080/a?b#c",
        "https://openai.example@evil.example/", r"https://openai.example\@evil.example/",
        r"https://evil.example\.openai.example/", "https://openai.example:x@evil.example",
        "https://evil%2eexample", "https://\uff45\uff56\uff49\uff4c.example",
        "https://evil。example", "https://ev\u200bil.example", "http:/evil.example",
        r"https:\\evil.example", "//evil.example/order.js", "ftp://evil.example/orders",
        "wss://evil.example", "https://www.evil.example/a", "https://a.b.evil.example",
        "www.evil.example",
    ],
)  # fmt: skip
def test_denied_host_is_found_in_any_spelling(url: str) -> None:
    for lead, tail in (("", ""), ("Grüße, see ", " please"), ("[order](", ")"), ("<", ">.")):
        assert kinds(Urls(deny=["evil.example"]), lead + url + tail) == [(url, "denied")]


@for_each(
    "text",
    [
        "https://notevil.example", "https://evil.example.openai.example", "https://a-evil.example",
        "https://www.notevil.example", "http://evil.example:80@openai.example",
        "https://openai.example/evil.example?to=evil.example#evil.example",
        "evil.example and docs/evil.example are no addresses", "either // or \\ divides", "",
    ],
)  # fmt: skip
def test_similar_host_passes(text: str) -> None:
    assert kinds(Urls(deny=["evil.example"]), text) == []


def test_wildcard_matches_all_subdomains() -> None:
    urls = Urls(deny=["*.evil.example"])

    assert kinds(urls, "https://a.b.evil.example www.evil.example") == [
        ("https://a.b.evil.example", "denied"),
        ("www.evil.example", "denied"),
    ]
    assert kinds(urls, "https://evil.example https://a-evil.example") == []


def test_hosts_not_allowed_are_found_as_unlisted() -> None:
    urls = Urls(allow=["*.openai.example", "openai.example"], deny=["old.openai.example"])

    assert kinds(urls, "https://openai.example, https://api.openai.example/v1!") == []
    assert kinds(urls, "https://old.openai.example https://local.example https://[::zz]") == [
        ("https://old.openai.example", "denied"),
        ("https://local.example", "unlisted"),
        ("https://[::zz]", "unlisted"),
    ]
    ambiguous = r"https://openai.example\@local.example"
    assert list_hosts(ambiguous) == {"openai.example", "local.example"}
    assert [kind for _, kind in kinds(urls, ambiguous)] == ["unlisted"]
    assert kinds(Urls(), "https://evil.example") == []


@for_each(
    "written",
    ["127.0.0.1", "127.1", "0x7f.0.0.1", "2130706433", "017700000001", "[::ffff:127.0.0.1]:80"],
)
def test_url_is_found_in_any_spelling(written: str) -> None:
    assert normalize_host(written) == "127.0.0.1"
    url = f"http://{written}/"
    assert kinds(Urls(deny=["127.0.0.1"]), url) == [(url, "denied")]


@for_each(
    ("authority", "name"),
    [
        ("bücher.example", "xn--bcher-kva.example"),
        ("XN--BCHER-KVA.example.", "xn--bcher-kva.example"), ("a:b@c@d.example:1", "d.example"),
        ("[::1]:443", "::1"), ("[0:0:0:0:0:0:0:1%25eth0]", "::1"), ("1.2.3.256", "1.2.3.256"),
        ("1.2.3.4.5", "1.2.3.4.5"), ("08.1", "08.1"), ("a..b", "a..b"), ("", ""),
    ],
)  # fmt: skip
def test_hosts_are_normalized(authority: str, name: str) -> None:
    assert normalize_host(authority) == name


@for_each("entry", ["", "*.", "https://evil.example", "a b", "evil.example/x", "*"])
def test_invalid_host_entry_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="is not a host name"):
        Urls(deny=[entry])


def test_host_entries_are_normalized() -> None:
    urls = Urls(deny=["Bücher.Example.", "*.evil.example", "::1", "[::2]"])

    text = "https://xn--bcher-kva.example https://a.evil.example http://[::1] http://[0::2]/"
    assert [kind for _, kind in kinds(urls, text)] == ["denied"] * 4


def test_no_finding_is_longer_than_the_lookback() -> None:
    ((url, _),) = kinds(Urls(deny=["evil.example"]), "https://evil.example/" + "a" * 9000)

    assert len(url) == LOOKBACK
