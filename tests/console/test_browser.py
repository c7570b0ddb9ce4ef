"""The console in a real Chromium: each page, live updates, filters, hostile names, restarts."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, Route, expect

from proxy.ledger.render import format_csv
from proxy.ledger.spending import read_spending
from proxy.settings import Address, LedgerLocation
from tests.conftest import Proxy, running_proxy
from tests.console.shop import (
    CALLS,
    fill_charts,
    make_traffic,
    policies,
    post_chat,
    running_shop,
    wait_for_ledger,
)
from tests.doubles import ScriptedUpstream, chat, respond
from tests.servers import free_port

PAGES = ("overview", "calls", "policy", "try", "money")
TOKEN = "console-token-0123"


async def test_first_call_appears_on_the_open_page(
    shop: Proxy, upstream: ScriptedUpstream, page: Page
) -> None:
    await page.goto(f"{shop.admin}/#/calls")
    await expect(page.get_by_role("heading", name="No calls yet")).to_be_visible()
    await expect(page.get_by_text('"model": "support-chat"')).to_be_visible()
    for key in ("j", "k", "/", "Escape"):
        await page.keyboard.press(key)

    upstream.answer_with(respond(chat("Paris.")))
    await post_chat(shop)

    await expect(page.locator("a.row")).to_have_count(1)
    await post_chat(shop, model="nobody")
    await expect(page.locator("a.row")).to_have_count(2)
    await expect(page.locator("tbody tr").first).to_contain_text("client error")


async def test_calls_are_filtered_and_the_filter_is_in_the_address(
    shop: Proxy, upstream: ScriptedUpstream, page: Page
) -> None:
    await make_traffic(shop, upstream)
    await page.goto(f"{shop.admin}/#/calls")
    rows = page.locator("a.row")
    await expect(rows).to_have_count(CALLS)

    await page.get_by_role("button", name="limited").click()
    await expect(rows).to_have_count(1)
    assert "outcome=limited" in page.url
    await page.reload()
    await expect(rows).to_have_count(1)
    await page.get_by_role("button", name="Clear").click()
    await page.get_by_label("deployment", exact=True).select_option("resilient")
    await expect(rows).to_have_count(2)
    await page.get_by_label("deployment", exact=True).select_option("")
    await page.keyboard.press("/")
    await page.keyboard.type("guardrail_blocked")
    await expect(rows).to_have_count(1)
    await page.keyboard.type("-nothing")
    await expect(page.get_by_role("heading", name="No call matches")).to_be_visible()
    await page.go_back()
    await expect(rows).to_have_count(CALLS)


async def test_call_shows_the_decisions_of_the_explain_page(
    shop: Proxy, upstream: ScriptedUpstream, page: Page
) -> None:
    await make_traffic(shop, upstream)
    await page.goto(f"{shop.admin}/#/calls?outcome=blocked")
    await page.locator("a.row").click()
    details = page.get_by_role("region", name="Details of the call")
    await expect(details).to_contain_text("blocked")

    request_id = next(r.request_id for r in shop.records if r.error and r.status == 400)
    async with shop.client.get(f"{shop.admin}/explain/{request_id}") as response:
        lines = (await response.text()).splitlines()[1:]
    shown = re.sub(r"\s+", " ", await details.inner_text())
    for line in lines:
        decided = re.sub(r"^[\s│├└─]+(\w+: )?", "", line)
        for part in re.split(r" \(|\)?  \[|\]$|\)$", decided):
            assert part in shown, line


async def test_keyboard_moves_opens_and_closes_calls(
    shop: Proxy, upstream: ScriptedUpstream, page: Page
) -> None:
    await make_traffic(shop, upstream)
    await page.goto(f"{shop.admin}/#/overview")
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    await page.keyboard.press("2")
    await expect(page.locator("a.row")).to_have_count(CALLS)
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("region", name="Details of the call")).to_be_visible()
    await page.keyboard.press("k")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("region", name="Details of the call")).to_have_count(0)
    await page.keyboard.press("Control+k")
    await page.keyboard.type("key support-widget")
    await expect(page.locator("#option0")).to_contain_text("support-widget")
    await page.keyboard.press("Enter")
    await expect(page.locator("a.row")).to_have_count(CALLS - 1)
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()


async def test_hostile_names_are_text(shop: Proxy, upstream: ScriptedUpstream, page: Page) -> None:
    await make_traffic(shop, upstream)
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    await page.goto(f"{shop.admin}/#/calls?q=model_not_found")
    await page.locator("a.row").click()
    details = page.get_by_role("region", name="Details of the call")
    await expect(details).to_contain_text("<img src=x onerror=alert(1)>?gpt")
    assert await page.locator("img").count() == 0
    assert not dialogs


async def test_budget_runs_out_on_the_open_page(
    upstream: ScriptedUpstream, page: Page, tmp_path: Path
) -> None:
    text = policies(upstream.url, budget=0.1, cap=4)
    async with running_proxy(tmp_path / "policies", text) as proxy:
        await page.goto(f"{proxy.admin}/#/overview")
        limit = page.locator('[id="limit.team-day.tag.team:support"]')
        await expect(limit).to_contain_text("0 % used")
        upstream.answer_with(respond(chat("Paris.")))
        while await post_chat(proxy) == 200:
            pass
        await expect(limit).to_contain_text("past 80 %")
        await page.goto(f"{proxy.admin}/#/calls?outcome=limited")
        await page.locator("a.row").first.click()
        details = page.get_by_role("region", name="Details of the call")
        await expect(details).to_contain_text("team-day rejected the call")


async def test_chart_marks_a_point_without_neighbors(
    shop: Proxy, upstream: ScriptedUpstream, page: Page
) -> None:
    upstream.answer_with(respond(chat("Paris.")))
    await post_chat(shop)
    async with shop.client.get(f"{shop.admin}/api/v1/overview") as response:
        overview = await response.json()
    count = len(overview["points"])
    calls_in_flight = [3, 3, *[None] * (count - 4), 3, None]
    for point, value in zip(overview["points"], calls_in_flight, strict=True):
        point["in_flight"] = value

    async def fulfill(route: Route) -> None:
        await route.fulfill(json=overview)

    await page.route("**/api/v1/overview?*", fulfill)
    await page.goto(f"{shop.admin}/#/overview")
    chart = page.get_by_role("img", name="Calls in flight")
    await expect(chart.locator("circle.knob")).to_have_count(1)
    await expect(chart.locator("path.line")).to_have_count(1)


async def test_rejected_reload_and_candidate_are_shown(
    upstream: ScriptedUpstream, page: Page, tmp_path: Path
) -> None:
    candidate = tmp_path / "candidate"
    candidate.mkdir()
    (candidate / "policies.yaml").write_text(policies(upstream.url, cap=7))
    async with running_shop(tmp_path / "policies", upstream, candidate=candidate) as proxy:
        await make_traffic(proxy, upstream)
        await page.goto(f"{proxy.admin}/#/calls")
        await page.get_by_label("candidate", exact=True).select_option("differs")
        await expect(page.locator("a.row")).to_have_count(4)
        await expect(page.locator("tbody")).not_to_contain_text("resilient")
        await page.goto(f"{proxy.admin}/#/policy")
        await expect(page.locator("#candidate")).to_contain_text("house/bounded")
        await expect(page.locator("#rules")).to_contain_text("cap max_tokens 1000")
        (proxy.policies / "policies.yaml").write_text("upstreams: {}\nnonsense: 1\n")
        await expect(page.locator("#revision")).to_contain_text("nonsense")


async def test_try_explains_under_the_active_policies_and_the_candidate(
    upstream: ScriptedUpstream, page: Page, tmp_path: Path
) -> None:
    candidate = tmp_path / "candidate"
    candidate.mkdir()
    (candidate / "policies.yaml").write_text(policies(upstream.url, cap=7))
    async with running_shop(tmp_path / "policies", upstream, candidate=candidate) as proxy:
        await page.goto(f"{proxy.admin}/#/try")
        body = page.get_by_role("textbox", name="Body")
        await expect(body).to_have_value(re.compile("support-chat"))
        await body.fill('{"model": ')
        await expect(page.locator("#fault")).to_contain_text("Not JSON: line 1")
        messages = [{"role": "user", "content": "ana@example.com"}]
        await body.fill(json.dumps({"model": "support-chat", "messages": messages}))
        await page.get_by_role("button", name="Explain").click()
        await expect(page.get_by_label("Decision", exact=True)).to_contain_text(
            "openai/gpt-4o-mini"
        )
        await expect(page.locator("tr.diff")).to_contain_text("max_tokens 7")
        await expect(page.locator("mark")).to_contain_text("ana@example.com")
        await page.get_by_role("button", name="As sent upstream").click()
        await expect(page.locator(".marked")).to_contain_text("[EMAIL]")
        await body.fill('{"model": "nobody", "messages": []}')
        await page.get_by_role("button", name="Explain").click()
        await expect(page.get_by_role("alert")).to_contain_text("messages")
        assert not upstream.requests
        assert not proxy.records


async def test_call_is_taken_to_try_however_old_it_is(
    shop: Proxy, upstream: ScriptedUpstream, page: Page
) -> None:
    await make_traffic(shop, upstream)
    upstream.answer_with(respond(chat("Paris.")))
    for _ in range(35):
        await post_chat(shop)
    await page.goto(f"{shop.admin}/#/calls?outcome=limited")
    await page.locator("a.row").click()
    await page.get_by_role("link", name="Open in Try").click()
    body = page.get_by_role("textbox", name="Body")
    await expect(body).to_have_value(re.compile('"model": "small"'))
    await page.get_by_role("button", name="Explain").click()
    await expect(page.get_by_label("Decision", exact=True)).to_be_visible()
    await page.get_by_label("Take a recent call").select_option(index=1)
    await expect(body).to_have_value(re.compile('"model": "support-chat"'))
    await expect(page.get_by_label("Decision", exact=True)).to_have_count(0)


async def test_money_is_the_ledger_and_downloads(
    upstream: ScriptedUpstream, page: Page, tmp_path: Path
) -> None:
    ledger = LedgerLocation("sqlite", tmp_path / "ledger.db")
    async with running_shop(tmp_path / "policies", upstream, ledger=ledger) as proxy:
        await make_traffic(proxy, upstream)
        await wait_for_ledger(proxy)
        await page.goto(f"{proxy.admin}/#/money?by=deployment")
        row = page.locator("tbody tr", has_text="support-chat")
        await expect(row).to_contain_text("0.03")
        async with page.expect_download() as pending:
            await page.get_by_role("link", name="CSV").click()
        path = await (await pending.value).path()
        start, end = datetime(2026, 1, 1, tzinfo=UTC), datetime.now(UTC)
        report = read_spending(ledger.path, ("deployment",), start, end)
        assert path.read_text() == format_csv(report) + "\n"


async def test_money_without_a_ledger_tells_how_to_keep_one(shop: Proxy, page: Page) -> None:
    await page.goto(f"{shop.admin}/#/money")
    await expect(page.get_by_text("HEADRACE_LEDGER=sqlite:")).to_be_visible()


async def test_page_recovers_from_a_restart(
    upstream: ScriptedUpstream, page: Page, tmp_path: Path
) -> None:
    admin = Address("127.0.0.1", free_port())
    upstream.answer_with(respond(chat("Paris.")))
    async with running_shop(tmp_path / "policies", upstream, admin=admin) as proxy:
        await post_chat(proxy)
        await post_chat(proxy)
        await page.goto(f"{proxy.admin}/#/calls")
        await expect(page.locator("a.row")).to_have_count(2)
    await expect(page.get_by_role("alert")).to_contain_text("The proxy does not answer.")
    async with running_shop(tmp_path / "policies", upstream, admin=admin) as proxy:
        await post_chat(proxy)
        await expect(page.get_by_role("alert")).to_have_count(0)
        await expect(page.locator("a.row")).to_have_count(1)


async def test_address_of_a_call_shows_no_other_call_after_a_restart(
    upstream: ScriptedUpstream, page: Page, tmp_path: Path
) -> None:
    admin = Address("127.0.0.1", free_port())
    upstream.answer_with(respond(chat("Paris.")))
    async with running_shop(tmp_path / "policies", upstream, admin=admin) as proxy:
        await post_chat(proxy)
        await page.goto(f"{proxy.admin}/#/calls")
        await page.locator("a.row").click()
        await expect(page.get_by_role("region", name="Details of the call")).to_be_visible()
    async with running_shop(tmp_path / "policies", upstream, admin=admin) as proxy:
        await post_chat(proxy)
        await page.reload()
        await expect(page.locator("a.row")).to_have_count(1)
        heading = page.get_by_role("heading", name="This call is not stored")
        await expect(heading).to_be_visible()


@pytest.mark.parametrize(
    ("name", "path"),
    [("overview", "overview?*"), ("policy", "policy"), ("calls", "calls/stream?*")],
)
async def test_failed_refresh_is_named_above_the_data(
    name: str, path: str, shop: Proxy, upstream: ScriptedUpstream, page: Page
) -> None:
    upstream.answer_with(respond(chat("Paris.")))
    await post_chat(shop)
    await page.goto(f"{shop.admin}/#/{name}")
    shown = "team-day" if name == "overview" else "support-chat"
    await expect(page.locator("#main:not([aria-busy])")).to_contain_text(shown)
    body = json.dumps({"error": {"message": "Too many pages are open. Try again."}})

    async def refuse(route: Route) -> None:
        await route.fulfill(status=503, content_type="application/json", body=body)

    await page.route(f"**/api/v1/{path}", refuse)
    if name == "calls":  # a resumed page opens its stream again
        await page.get_by_role("button", name="Pause the updates").click()
        await page.get_by_role("button", name="Resume the updates").click()
    alert = page.get_by_role("alert")
    await expect(alert).to_contain_text(re.compile(r"Showing data of \d\d:\d\d:\d\d:"))
    sentence = "stream of calls was refused" if name == "calls" else "Too many pages are open"
    await expect(alert).to_contain_text(sentence)
    await expect(alert).to_contain_text("docs/troubleshooting.md")
    await expect(page.locator(".stale #main")).to_contain_text(shown)
    await page.unroute(f"**/api/v1/{path}")
    await expect(alert).to_have_count(0)


async def test_paused_page_shows_new_calls_when_it_is_resumed(
    shop: Proxy, upstream: ScriptedUpstream, page: Page
) -> None:
    upstream.answer_with(respond(chat("Paris.")))
    await post_chat(shop)
    await page.goto(f"{shop.admin}/#/calls")
    await expect(page.locator("a.row")).to_have_count(1)
    await page.get_by_role("button", name="Pause the updates").click()
    other = await page.context.new_page()
    await other.goto(f"{shop.admin}/#/calls")
    await post_chat(shop)
    await expect(other.locator("a.row")).to_have_count(2)  # a page that is not paused
    await expect(page.locator("a.row")).to_have_count(1)
    await page.get_by_role("button", name="Resume the updates").click()
    await expect(page.locator("a.row")).to_have_count(2)


async def test_try_is_busy_while_a_request_is_decided(shop: Proxy, page: Page) -> None:
    released = asyncio.Event()

    async def hold(route: Route) -> None:
        await released.wait()
        await route.continue_()

    await page.route("**/api/v1/try", hold)
    await page.goto(f"{shop.admin}/#/try")
    await page.get_by_role("button", name="Explain").click()
    await expect(page.get_by_role("button", name="Explaining")).to_be_disabled()
    await expect(page.locator(".try")).to_have_attribute("aria-busy", "true")
    released.set()
    await expect(page.get_by_label("Decision", exact=True)).to_be_visible()
    await expect(page.get_by_role("button", name="Explain", exact=True)).to_be_enabled()
    await expect(page.locator(".try")).to_have_attribute("aria-busy", "false")


async def test_page_asks_for_the_token_after_a_restart(
    upstream: ScriptedUpstream, page: Page, tmp_path: Path
) -> None:
    admin = Address("127.0.0.1", free_port())
    upstream.answer_with(respond(chat("Paris.")))
    settings: dict[str, Any] = {"admin": admin, "admin_token": TOKEN}
    field = page.get_by_label("Admin token")
    async with running_shop(tmp_path / "policies", upstream, **settings) as proxy:
        await post_chat(proxy)
        await page.goto(f"{proxy.admin}/#/calls")
        await field.fill(TOKEN)
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.locator("a.row")).to_have_count(1)
    await expect(page.get_by_role("alert")).to_contain_text("The proxy does not answer.")
    async with running_shop(tmp_path / "policies", upstream, **settings):
        await expect(field).to_be_visible()


async def test_token_signs_in_and_out_of_reach_without_it(
    upstream: ScriptedUpstream, page: Page, tmp_path: Path
) -> None:
    async with running_shop(tmp_path / "policies", upstream, admin_token=TOKEN) as proxy:
        await page.goto(f"{proxy.admin}/#/calls")
        field = page.get_by_label("Admin token")
        await field.fill("wrong")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("alert")).to_contain_text("Wrong token")
        await field.fill(TOKEN)
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("heading", name="No calls yet")).to_be_visible()
        [cookie] = await page.context.cookies()
        assert cookie["httpOnly"]
        assert cookie["sameSite"] == "Strict"
        assert TOKEN not in cookie["value"]
        await page.keyboard.press("?")
        await page.get_by_role("button", name="Sign out").click()
        await expect(field).to_be_visible()
        await page.context.add_cookies(
            [{"name": cookie["name"], "value": cookie["value"], "url": proxy.admin}]
        )
        await page.reload()
        await expect(field).to_be_visible()


async def test_call_that_is_not_stored_is_named(
    shop: Proxy, upstream: ScriptedUpstream, page: Page
) -> None:
    upstream.answer_with(respond(chat("Paris.")))
    await post_chat(shop)
    await page.goto(f"{shop.admin}/#/calls?call=99")
    heading = page.get_by_role("heading", name="This call is not stored")
    await expect(heading).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(heading).to_have_count(0)


async def test_try_takes_any_stored_call(
    shop: Proxy, upstream: ScriptedUpstream, page: Page
) -> None:
    upstream.answer_with(respond(chat("Paris.")))
    await post_chat(shop, model="small")
    for _ in range(40):
        await post_chat(shop)
    async with shop.client.get(f"{shop.admin}/api/v1/calls") as response:
        calls = (await response.json())["calls"]
    await page.goto(f"{shop.admin}/#/try?call={calls[-1]['id']}")
    body = page.get_by_role("textbox", name="Body")
    await expect(body).to_have_value(re.compile('"model": "small"'))
    await page.get_by_role("button", name="Explain").click()
    await expect(page.get_by_label("Decision", exact=True)).to_be_visible()
    await page.get_by_label("Take a recent call").select_option(calls[0]["id"])
    await expect(body).to_have_value(re.compile('"model": "support-chat"'))
    await expect(page.get_by_role("heading", name="The request has changed")).to_be_visible()


async def test_days_are_those_of_the_ledger_in_any_browser(
    upstream: ScriptedUpstream, browser: Browser, tmp_path: Path
) -> None:
    ledger = LedgerLocation("sqlite", tmp_path / "ledger.db")
    context = await browser.new_context(timezone_id="Pacific/Honolulu")
    page = await context.new_page()
    async with running_shop(tmp_path / "policies", upstream, ledger=ledger) as proxy:
        upstream.answer_with(respond(chat("Paris.")))
        await post_chat(proxy)
        await wait_for_ledger(proxy, 1)
        await page.goto(f"{proxy.admin}/#/money?unit=week")
        async with proxy.client.get(f"{proxy.admin}/api/v1/money?unit=week") as response:
            first = datetime.fromtimestamp((await response.json())["times"][0] / 1000, UTC)
        await expect(page.locator(".strip dt").first).to_have_text(f"Since {first:%b} {first.day}")
    await context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
async def test_no_page_breaks_wcag_2_2_aa(
    scheme: str, width: int, upstream: ScriptedUpstream, browser: Browser, tmp_path: Path
) -> None:
    ledger = LedgerLocation("sqlite", tmp_path / "ledger.db")
    async with running_shop(tmp_path / "policies", upstream, ledger=ledger) as proxy:
        await make_traffic(proxy, upstream)
        context = await browser.new_context(
            viewport={"width": width, "height": 844},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        page = await context.new_page()
        tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
        for name in PAGES:
            await page.goto(f"{proxy.admin}/#/{name}")
            await expect(page.locator("#main:not([aria-busy])")).to_be_visible()
            if name == "calls":
                await page.locator("a.row").first.click()
                await expect(page.get_by_role("region", name="Details of the call")).to_be_visible()
            if name == "try":
                await page.get_by_role("button", name="Explain").click()
                await expect(page.get_by_label("Decision", exact=True)).to_be_visible()
            options = {"runOnly": {"type": "tag", "values": tags}}
            results = await Axe().run(page, options=options)
            assert not results.response["violations"], (name, results.generate_report())
        await context.close()


class Picture(NamedTuple):
    page: str
    scheme: Literal["light", "dark"]
    width: int
    height: int
    file: str


PICTURES = (
    Picture("overview?range=5m", "light", 1440, 640, "console-overview.png"),
    Picture("calls", "dark", 1440, 900, "console-calls.png"),
    Picture("try", "light", 1440, 900, "console-try.png"),
    Picture("overview?range=5m", "dark", 390, 900, "console-phone.png"),
)
FOLDER = Path(__file__).parents[2] / "docs" / "pictures"


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.file)
async def test_page_fits_its_width(
    picture: Picture,
    upstream: ScriptedUpstream,
    browser: Browser,
    tmp_path: Path,
    *,
    update_golden: bool,
) -> None:
    """``--update-golden`` also writes the pictures of the documentation."""
    async with running_shop(tmp_path / "policies", upstream) as proxy:
        for _ in range(3):
            upstream.answer_with(respond(chat("Paris.")))
            await post_chat(proxy)
        await make_traffic(proxy, upstream, 3)
        if update_golden and picture.page.startswith("overview"):
            await fill_charts(proxy, upstream, seconds=300)
        context = await browser.new_context(
            viewport={"width": picture.width, "height": picture.height}, color_scheme=picture.scheme
        )
        page = await context.new_page()
        await page.goto(f"{proxy.admin}/#/{picture.page}")
        await expect(page.locator("#main:not([aria-busy])")).to_be_visible()
        if picture.page == "calls":
            await page.locator("tr", has_text="limited").locator("a.row").click()
            await expect(page.get_by_role("region", name="Details of the call")).to_be_visible()
        if picture.page == "try":
            await page.get_by_role("button", name="Explain").click()
            await expect(page.get_by_label("Decision", exact=True)).to_be_visible()
        overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert await page.evaluate(overflow) <= 0
        if update_golden:
            await page.screenshot(path=FOLDER / picture.file)
        assert (FOLDER / picture.file).exists()
        await context.close()
