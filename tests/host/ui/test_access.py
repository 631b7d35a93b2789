"""The page by keyboard, for a screen reader, and in the dark."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from berth_bench.ui.chromium import Page
from berth_host.endpoints.loopback import LoopbackServer
from berth_host.endpoints.pages import Answers
from support.holding_world import holding_world
from support.serving import FakeProcess

pytestmark = pytest.mark.slow
FOCUSED = "document.activeElement"


@pytest_asyncio.fixture
async def url(page: Page, tmp_path: Path) -> AsyncIterator[str]:
    async with holding_world("in_process", tmp_path) as world:
        server = LoopbackServer(Answers(FakeProcess(world.host.configuration, world.host)).answer)
        await server.start(0)
        await page.open(server.url)
        await page.until("document.querySelectorAll('.scroll tbody a').length === 3")
        yield server.url
        await page.open("about:blank")
        await server.stop()


async def test_tab_reaches_every_control_and_shows_where_it_is(page: Page, url: str) -> None:
    reached = []
    for _ in range(40):
        await page.press("Tab")
        outline = await page.value(f"getComputedStyle({FOCUSED}).outlineStyle")
        name = await page.value(
            f"{FOCUSED} === document.body ? '' : {FOCUSED}.ariaLabel || {FOCUSED}.id"
            f" || {FOCUSED}.textContent.trim()"
        )
        if not name:
            break
        assert outline == "solid", name
        reached.append(name)
    assert reached[:5] == ["Skip to the view", "Queue", "Nodes", "Plugins", "Groups"]
    assert {"find-pod", "Show", "All 3", "Gated 2", "queue-text", "queue-order", "Pods of the queue"} <= {
        *reached
    }
    # The table takes one stop for itself, and one for its row.
    assert sum(name.startswith("default/") for name in reached) == 1


async def test_arrow_keys_move_through_the_rows_and_enter_opens_one(page: Page, url: str) -> None:
    await page.value("document.querySelector('.scroll tbody a').focus()")
    await page.press("ArrowDown")
    second = await page.value("document.querySelectorAll('.scroll tbody a')[1].textContent")
    assert await page.value(f"{FOCUSED}.textContent") == second
    await page.press("End")
    last = await page.value(f"{FOCUSED}.textContent")
    assert last not in ("", second)
    await page.press("Enter")
    await page.until(f"document.title === 'Pod {last} · berth'")
    # A new view begins at its heading.
    assert await page.value(f"{FOCUSED}.textContent") == f"Pod {last}"


async def test_screen_reader_finds_landmarks_labels_and_tables(page: Page, url: str) -> None:
    tree = await page.tree()
    roles = [role for role, _ in tree]
    assert {"banner", "navigation", "main", "search", "status"} <= {*roles}
    assert ("table", "Pods of the queue") in tree
    assert [name for role, name in tree if role == "columnheader"][2:6] == [
        "Pod",
        "Part",
        "Reason",
        "Attempts",
    ]
    unnamed = [
        role for role, name in tree if role in ("button", "link", "searchbox", "combobox") and not name
    ]
    assert not unnamed
    said = await page.until("document.getElementById('status').textContent")
    assert said == "3 pods in the queue: 1 unschedulable, 2 gated"


async def test_colours_follow_the_browser(page: Page, url: str) -> None:
    light = await page.value("getComputedStyle(document.body).backgroundColor")
    await page.dark()
    dark = await page.value("getComputedStyle(document.body).backgroundColor")
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(18, 24, 30)")
