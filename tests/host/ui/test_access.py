"""The page by keyboard, for a screen reader, and in the dark."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from berth_bench.ui.chromium import Page
from berth_host.endpoints.loopback import LoopbackServer
from berth_host.endpoints.pages import Answers
from berth_sdk.kube_object import ObjectRef
from support.holding_world import holding_world
from support.hosts import World, node, pod
from support.serving import FakeProcess

pytestmark = [pytest.mark.slow, pytest.mark.long]
FOCUSED = "document.activeElement"
SOON_S = 0.05
LEAST_CONTRAST = 4.5
"""WCAG 2.2, 1.4.3 (AA), of text of usual size."""
CONTRASTS = """
(() => {
  const parts = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = ([red, green, blue]) => {
    const [r, g, b] = [red, green, blue].map((value) => value / 255)
      .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = parts(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.body.querySelectorAll('*')) {
    const isText = [...element.childNodes].some((one) => one.nodeType === Node.TEXT_NODE && one.data.trim());
    if (!isText || !element.checkVisibility()) continue;
    const own = light(parts(getComputedStyle(element).color));
    const [one, two] = [own, light(behind(element))].sort((a, b) => b - a);
    found.push([element.innerText.slice(0, 40) || element.tagName, (one + 0.05) / (two + 0.05)]);
  }
  return found;
})()
"""


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with holding_world("in_process", tmp_path) as world:
        yield world


@pytest_asyncio.fixture
async def url(page: Page, world: World) -> AsyncIterator[str]:
    async with AsyncExitStack() as stack:
        process = FakeProcess(world.host.configuration, world.host)
        server = LoopbackServer(Answers(process, SOON_S).answer)
        stack.push_async_callback(server.stop)
        await server.start(0)
        await page.open(server.url)
        await page.until("document.querySelectorAll('.scroll tbody a').length === 3")
        yield server.url
        await page.open("about:blank")


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


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
async def test_every_text_stands_out_from_what_is_behind_it(page: Page, url: str, *, is_dark: bool) -> None:
    await page.dark(on=is_dark)
    for view, ready in (
        ("#/queue", "'.scroll tbody a'"),
        ("#/pods/default/huge?node=tainted", "'.timeline li'"),
        ("#/pods/default/web", "'.bars i'"),
        ("#/nodes?pod=default%2Fhuge&node=tainted", "'.legend .key'"),
        ("#/plugins", "'main table tbody tr'"),
        ("#/groups", "'.none'"),
        ("#/pods/default/nobody", "'#problem:not([hidden])'"),
    ):
        await page.open("about:blank")
        await page.open(f"{url}{view}")
        await page.until(f"document.querySelector({ready})")
        await page.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        found = await page.value(CONTRASTS)
        assert len(found) > 10
        assert [one for one in found if one[1] < LEAST_CONTRAST] == [], view


async def test_keyboard_stays_with_its_row_when_others_come_before_it(
    page: Page, url: str, world: World
) -> None:
    await page.value(
        "{ const order = document.getElementById('queue-order'); order.value = 'name';"
        " order.dispatchEvent(new Event('change')); }"
    )
    await page.value("document.querySelectorAll('.scroll tbody a')[1].focus()")
    assert await page.value(f"{FOCUSED}.textContent") == "default/huge"
    for index in range(60):
        world.server.create(pod(f"a{index:02}", cpu="100"))
    await page.until("document.querySelector('.scroll table').getAttribute('aria-rowcount') === '64'")
    assert await page.value(f"{FOCUSED}.textContent") == "default/huge"
    box = await page.value("document.querySelector('.scroll').getBoundingClientRect().toJSON()")
    row = await page.value(f"{FOCUSED}.getBoundingClientRect().toJSON()")
    assert box["top"] < row["top"] < row["bottom"] < box["bottom"]
    await page.press("ArrowDown")
    assert await page.value(f"{FOCUSED}.textContent") == "default/kept-out"


async def test_heat_map_passes_its_keys_through_a_screen_reader_and_keeps_its_node(
    page: Page, url: str, world: World
) -> None:
    await page.open(f"{url}#/nodes")
    await page.until("document.querySelectorAll('.scroll tbody a').length === 3")
    names = [name for role, name in await page.tree() if role == "application"]
    assert len(names) == 1
    assert names[0].startswith("Nodes. 3 nodes: ")
    await page.value("document.querySelector('canvas').focus()")
    await page.press("End")
    detail = "document.querySelector('[aria-label=\"The chosen node\"]')"
    assert (await page.value(f"{detail}.innerText")).startswith("tainted")
    # Another node comes before the chosen one, which is read out only once.
    await page.value(
        "window.readOut = 0; new MutationObserver(() => { readOut += 1; })"
        f".observe({detail}, {{ childList: true }})"
    )
    world.server.create(node("another"))
    await page.until("document.querySelectorAll('.scroll tbody a').length === 4")
    assert (await page.value(f"{detail}.innerText")).startswith("tainted")
    assert await page.value("window.readOut") == 0
    await page.press("ArrowLeft")
    assert (await page.value(f"{detail}.innerText")).startswith("small-1")
    assert await page.value("window.readOut") == 1


@pytest.mark.parametrize("width", [1280, 400])
async def test_part_of_a_pod_is_not_cut_off(page: Page, url: str, width: int) -> None:
    await page.begin(width, 900)
    await page.until(f"innerWidth === {width}")
    cut = (
        "[...document.querySelectorAll('.scroll tbody tr:not(.spacer)')].map((row) => row.cells[1])"
        ".filter((cell) => cell.scrollWidth > cell.clientWidth)"
        ".map((cell) => cell.innerText)"
    )
    parts = (
        "[...document.querySelectorAll('.scroll tbody tr:not(.spacer)')].map((row) => row.cells[1].innerText)"
    )
    assert "Unschedulable" in await page.value(parts)
    assert await page.value(cut) == []


async def test_narrow_window_has_captions_messages_and_the_state_of_the_connection(
    page: Page, url: str
) -> None:
    await page.begin(400, 900)
    await page.open(f"{url}#/pods/default/web")
    await page.until("document.querySelector('.bars i')")
    rights = "[...document.querySelectorAll('caption')].map((one) => one.getBoundingClientRect().right)"
    assert max(await page.value(rights)) <= 400
    row = "document.querySelector('[aria-label=Attempts] tbody tr')"
    assert await page.value(f"{row}.cells[6].getBoundingClientRect().width") >= 200
    assert await page.value(f"{row}.cells[3].getBoundingClientRect().height") < 60
    # Beside the name of the program, not in a line of its own.
    tops = "['.brand', '.connection'].map((one) => document.querySelector(one).getBoundingClientRect())"
    brand, connection = await page.value(f"{tops}.map((box) => [box.top, box.bottom])")
    assert brand[0] < connection[1]
    assert connection[0] < brand[1]


async def test_reasons_scroll_so_that_the_pods_stay_in_sight(page: Page, url: str) -> None:
    await page.begin(400, 900)
    await page.value(
        "document.querySelectorAll('[data-reason]').forEach((one) => { one.style.height = '2000px'; })"
    )
    box = await page.value("document.querySelector('.reasons').getBoundingClientRect().toJSON()")
    assert box["height"] <= 0.4 * 900


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
async def test_chosen_node_stands_out_from_its_colour(page: Page, url: str, *, is_dark: bool) -> None:
    await page.dark(on=is_dark)
    await page.open(f"{url}#/nodes?pod=default%2Fhuge&node=tainted")
    await page.until("document.querySelector('.legend .key') && document.querySelector('h2')")
    await page.value("new Promise((done) => setTimeout(done, 200))")
    # The outermost pixels of the chosen cell from left to right, at its middle. A cell is 34 px wide.
    pixels = await page.value(
        "(() => { const canvas = document.querySelector('canvas');"
        " const found = canvas.getContext('2d').getImageData(2 * 34, 16, 33, 1).data;"
        " return Array.from({ length: 4 }, (_, at) => [...found.slice(4 * at, 4 * at + 3)]); })()"
    )
    assert pixels == [[0, 0, 0], [0, 0, 0], [255, 255, 255], [255, 255, 255]]


async def test_changing_numbers_leave_selected_texts_open_lists_and_the_keyboard(
    page: Page, url: str, world: World
) -> None:
    await page.open(f"{url}#/plugins")
    calls = (
        "Number([...document.querySelectorAll('main tr')]"
        ".find((row) => row.cells[0].innerText === 'NodeResourcesFit')?.cells[5].innerText)"
    )
    before = await page.until(f"document.querySelector('details') && {calls} >= 0 && `${{{calls}}}`")
    await page.value(
        "{ const one = document.querySelector('[data-name=NodeResourcesFit]'); one.open = true;"
        " one.firstChild.focus(); getSelection().selectAllChildren(one.querySelector('dd'));"
        " window.kept = one; }"
    )
    selected = await page.value("getSelection().toString()")
    assert selected
    world.server.create(pod("newcomer", cpu="100"))
    await page.until(f"{calls} > {before}")
    assert await page.value("getSelection().toString()") == selected
    assert await page.value(
        f"window.kept.isConnected && window.kept.open && {FOCUSED}.parentElement === kept"
    )
    await page.open("about:blank")
    await page.open(f"{url}#/pods/default/web")
    await page.until("document.querySelector('.bars i')")
    await page.value("document.querySelector('[aria-label=\"Verdicts of plugins\"] a').focus()")
    world.server.delete("pods", ObjectRef(namespace="default", name="web"))
    await page.until("document.querySelector('dl.facts').innerText.includes('deleted')")
    assert await page.value(f"{FOCUSED}.textContent") == "the map of nodes"
    # Bars that are drawn again keep their widths, though no attribute may set a style.
    assert await page.value("document.querySelector('.bars i').getBoundingClientRect().width") > 10
    assert not page.problems


async def test_way_back_leads_to_the_row_that_was_opened(page: Page, url: str, world: World) -> None:
    for index in range(60):
        world.server.create(pod(f"a{index:02}", cpu="100"))
    await page.until("document.querySelector('.scroll table').getAttribute('aria-rowcount') === '64'")
    await page.value("document.querySelector('.scroll tbody a').focus()")
    await page.press("End")
    await page.press("ArrowUp")
    opened = await page.value(f"{FOCUSED}.textContent")
    await page.press("Enter")
    await page.until(f"document.title === 'Pod {opened} · berth'")
    await page.value("history.back()")
    await page.until(f"document.title === 'Queue · berth' && {FOCUSED}.textContent === '{opened}'")
    box = await page.value("document.querySelector('.scroll').getBoundingClientRect().toJSON()")
    row = await page.value(f"{FOCUSED}.getBoundingClientRect().toJSON()")
    assert box["top"] < row["top"] < row["bottom"] < box["bottom"]
    # Rows that come later leave the keyboard where the user went since.
    await page.value("document.getElementById('queue-text').focus()")
    world.server.create(pod("newcomer", cpu="100"))
    await page.until("document.querySelector('.scroll table').getAttribute('aria-rowcount') === '65'")
    assert await page.value(f"{FOCUSED}.id") == "queue-text"


async def test_narrow_window_has_the_state_of_each_plugin_in_sight(page: Page, url: str) -> None:
    await page.begin(400, 900)
    await page.open(f"{url}#/plugins")
    await page.until("document.querySelector('main table .state')")
    states = "[...document.querySelectorAll('main table .state')]"
    rights = f"{states}.map((one) => one.getBoundingClientRect().right)"
    assert max(await page.value(rights)) <= 400
