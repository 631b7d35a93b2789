"""The page in trouble: a host that goes away, a right that ends, odd addresses, texts and names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from berth_bench.ui.chromium import Page
from berth_bench.versus.free_ports import free_port
from berth_host.endpoints.loopback import LoopbackServer
from berth_host.endpoints.pages import Answers
from berth_host.endpoints.request_response import Answer, Handler, Request, failure
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.pod import Pod
from berth_sdk.results import QueuedPod
from berth_sdk.status import Status
from berth_sdk.tables import NodeView
from support.groups import grouped, members, pod_group
from support.holding_world import holding_world
from support.hosts import World, node, pod
from support.serving import FakeProcess

pytestmark = pytest.mark.slow
NAMES = "[...document.querySelectorAll('.scroll tbody a')].map((one) => one.textContent)"
PROBLEM = "!document.getElementById('problem').hidden && document.getElementById('problem').textContent"
CONNECTION = "document.getElementById('connection').textContent"
SOON_S = 0.05
EVIL = "<img src=x onerror='window.hurt = true'><b>bold</b>"


def answers_of(world: World) -> Answers:
    return Answers(FakeProcess(world.host.configuration, world.host), SOON_S)


@asynccontextmanager
async def serving(handler: Handler, port: int | None = None) -> AsyncIterator[LoopbackServer]:
    """The page at a port, which is free again after the block."""
    server = LoopbackServer(handler)
    await server.start(free_port() if port is None else port)
    try:
        yield server
    finally:
        await server.stop()


async def test_host_that_goes_away_is_told_and_its_return_is_seen(page: Page, tmp_path: Path) -> None:
    async with holding_world("in_process", tmp_path) as world:
        async with serving(answers_of(world).answer) as server:
            await page.open(server.url)
            await page.until(f"{NAMES}.length === 3")
        text = await page.until(PROBLEM)
        assert text.startswith(
            "The connection to the scheduler is lost; trying again. What you see is of 00:00:"
        )
        assert await page.value(CONNECTION) == "not connected"
        assert len(await page.value(NAMES)) == 3
        world.server.create(pod("newcomer", cpu="100"))
        async with serving(answers_of(world).answer, server.port):
            await page.until(f"{NAMES}.includes('default/newcomer') && !({PROBLEM})")
            assert await page.value(CONNECTION) == "live"
            await page.open("about:blank")


async def test_token_that_expires_is_told_and_a_new_one_ends_the_trouble(page: Page, tmp_path: Path) -> None:
    async with holding_world("in_process", tmp_path) as world:
        answers, is_valid = answers_of(world), True

        async def guarded(request: Request) -> Answer:
            if not is_valid:
                return failure(401, "Unauthorized", "Unauthorized: the token has expired")
            return await answers.answer(request)

        async with serving(guarded) as server:
            await page.open(server.url)
            await page.until(f"{NAMES}.length === 3")
        # A stream ends after some minutes; here its server ends it.
        is_valid = False
        async with serving(guarded, server.port):
            await page.until(
                f"({PROBLEM}).startsWith('Unauthorized: the token has expired. What you see is of ')"
            )
            assert await page.value(CONNECTION) == "not connected"
            is_valid = True
            await page.until(f"!({PROBLEM})")
            assert await page.value(CONNECTION) == "live"
            await page.open("about:blank")


async def test_answer_that_comes_back_unchanged_ends_the_trouble(page: Page, tmp_path: Path) -> None:
    async with holding_world("in_process", tmp_path) as world:
        process = FakeProcess(world.host.configuration, world.host)
        async with serving(Answers(process, SOON_S).answer) as server:
            await page.open(server.url)
            await page.until(f"{NAMES}.length === 3")
            process.is_leading = False
            text = await page.until(PROBLEM)
            assert text.startswith("this scheduler cannot answer: it is on standby, ")
            assert ". What you see is of 00:00:" in text
            process.is_leading = True
            await page.until(f"!({PROBLEM})")
            assert len(await page.value(NAMES)) == 3
            await page.open("about:blank")


async def test_connection_that_falls_silent_is_told_and_made_anew(page: Page, tmp_path: Path) -> None:
    async with holding_world("in_process", tmp_path) as world:
        answers, is_silent = answers_of(world), False

        async def hanging(request: Request) -> Answer:
            answer = await answers.answer(request)
            return replace(answer, parts=until_silent(answer.parts)) if answer.parts is not None else answer

        async def until_silent(parts: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
            async for part in parts:
                while is_silent:
                    await asyncio.sleep(SOON_S)
                yield part

        # Half a minute is half a second in this test.
        await page.ask(
            "Page.addScriptToEvaluateOnNewDocument",
            {
                "source": "{ const real = setTimeout; window.setTimeout = (made, ms, ...given) =>"
                " real(made, ms === 30000 ? 500 : ms, ...given); }"
            },
        )
        async with serving(hanging) as server:
            await page.open(server.url)
            await page.until(f"{NAMES}.length === 3")
            is_silent = True
            text = await page.until(f"{CONNECTION} === 'not connected' && {PROBLEM}")
            assert text.startswith(
                "The scheduler has sent nothing for 30 s; trying again. What you see is of 00:00:"
            )
            is_silent = False
            world.server.create(pod("newcomer", cpu="100"))
            # On a busy machine, half a second without a word comes again.
            is_live = f"!({PROBLEM}) && {CONNECTION} === 'live'"
            await page.until(f"{NAMES}.includes('default/newcomer') && {is_live}")
            await page.open("about:blank")


async def test_cluster_without_nodes_has_every_view(page: Page) -> None:
    async with World([pod("web")]) as world, serving(answers_of(world).answer) as server:
        await world.settle()
        for view, text in (
            ("#/queue", "no nodes available to schedule pods"),
            ("#/nodes", "There are no nodes."),
            (
                "#/nodes?pod=default%2Fweb",
                "No node fits: no nodes available to schedule pods. The plugins were",
            ),
            ("#/nodes?pod=default%2Fweb&when=last", "There are no nodes."),
            ("#/nodes?by=score%20by%20NodeResourcesFit", "There are no nodes."),
            ("#/pods/default/web?node=a", "Attempt 5 tried no node."),
            ("#/plugins", "NodeResourcesFit"),
            ("#/groups", "There are no pod groups."),
        ):
            await page.open("about:blank")
            await page.open(f"{server.url}{view}")
            await page.until(f"document.querySelector('main').innerText.includes({json.dumps(text)})")
            assert await page.value("document.getElementById('problem').textContent") == ""
        # The first node is drawn without a new question.
        await page.open("about:blank")
        await page.open(f"{server.url}#/nodes")
        await page.until("document.querySelector('.none').innerText === 'There are no nodes.'")
        assert not await page.value("document.querySelector('canvas').checkVisibility()")
        world.server.create(node("first"))
        await page.until(f"{NAMES}.includes('first') && document.querySelector('canvas').checkVisibility()")
        assert await page.value("document.getElementById('nodes-by').value") == "cpu"
        assert not page.problems
        await page.open("about:blank")


class Talkative(Plugin):
    """Gives each node a reason of its own."""

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        return Status.unschedulable(f"{node.name} is not for this pod")


async def test_reasons_of_hundreds_of_nodes_leave_the_pod_readable(page: Page) -> None:
    nodes = [node(f"node-{index:03}") for index in range(300)]
    async with World([*nodes, pod("web")], [Talkative]) as world, serving(answers_of(world).answer) as server:
        await world.settle()
        await page.open(f"{server.url}#/pods/default/web")
        await page.until("document.querySelector('.timeline li')")
        verdicts = "document.querySelector('[aria-label=\"Verdicts of plugins\"]')"
        assert await page.value(f"{verdicts}.querySelectorAll('tbody tr').length") == 100
        caption = await page.value(f"{verdicts}.querySelector('caption').innerText")
        assert caption == (
            "0 of 300 nodes passed every filter in attempt 2; the 100 most frequent of 300 reasons"
        )
        # The message has all of them, and is open only when somebody opens it.
        message = "document.querySelector('[data-name=message]')"
        assert await page.value(f"{message}.open") is False
        assert await page.value(f"{message}.getBoundingClientRect().height") < 150
        await page.value(f"{message}.querySelector('summary').click()")
        assert "1 node-299 is not for this pod" in await page.value(f"{message}.innerText")
        # It stays open while the page changes.
        world.server.create(node("node-300"))
        await page.until(f"{verdicts}.querySelector('caption').innerText.startsWith('0 of 301 nodes ')")
        assert await page.value(f"{message}.open") is True
        said = await page.value("document.getElementById('status').textContent")
        assert len(said) < 400
        assert not page.problems
        await page.open("about:blank")


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("address", "title"),
    [
        ("#/pods/%zz/x", "Queue"),
        ("#/pods/a/b/c", "Queue"),
        ("#/constructor", "Queue"),
        ("#/groups/one", "Queue"),
        ("#/nodes?by=nothing", "Nodes"),
        (f"#/pods/default/{quote(EVIL, safe='')}", f"Pod default/{EVIL}"),
        (f"#/nodes?pod={quote(EVIL)}", f"Nodes for pod {EVIL}"),
    ],
    ids=["encoding", "parts", "object", "group", "colour", "html", "html-nodes"],
)
async def test_odd_address_leads_to_a_view(page: Page, tmp_path: Path, address: str, title: str) -> None:
    async with (
        holding_world("in_process", tmp_path) as world,
        serving(answers_of(world).answer) as server,
    ):
        await page.open(f"{server.url}{address}")
        assert await page.until("document.querySelector('h1').textContent") == title
        assert await page.value("window.hurt") is None
        assert all("404" in problem for problem in page.problems), page.problems
        await page.open("about:blank")


async def test_name_that_is_no_pod_is_told(page: Page, tmp_path: Path) -> None:
    async with (
        holding_world("in_process", tmp_path) as world,
        serving(answers_of(world).answer) as server,
    ):
        await page.open(server.url)
        await page.value("document.getElementById('find-pod').focus()")
        await page.type("a/b/c")
        await page.press("Enter")
        said = "document.getElementById('find-pod').validationMessage"
        assert await page.until(said) == "a/b/c names no pod: write NAMESPACE/NAME"
        await page.value("document.getElementById('find-pod').value = ''")
        await page.type("huge")
        await page.press("Enter")
        await page.until("document.title === 'Pod default/huge · berth'")
        await page.open("about:blank")


async def test_fault_of_the_page_stays_in_view(page: Page, tmp_path: Path) -> None:
    async with (
        holding_world("in_process", tmp_path) as world,
        serving(answers_of(world).answer) as server,
    ):
        await page.open(server.url)
        await page.until(f"{NAMES}.length === 3")
        await page.value("setTimeout(() => { throw new Error('no such column'); }, 0), 0")
        text = await page.until(PROBLEM)
        assert text == "The page failed: Uncaught Error: no such column. Reload it."
        world.server.create(pod("newcomer", cpu="100"))
        await page.until(f"{NAMES}.includes('default/newcomer')")
        assert await page.value(PROBLEM) == text
        await page.open("about:blank")


class Evil(Plugin):
    """Gives reasons that are HTML."""

    version = EVIL

    def pre_enqueue(self, pod: QueuedPod) -> Status:
        return Status.unschedulable(EVIL) if "gate" in pod.pod.labels else Status.success()

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        return Status.unschedulable(EVIL)


async def test_texts_of_plugins_are_no_html(page: Page) -> None:
    objects = [node("a"), pod("web"), pod("gated", labels={"gate": "x"})]
    async with World(objects, [Evil]) as world, serving(answers_of(world).answer) as server:
        await world.settle()
        for view in (
            "#/queue",
            "#/pods/default/web?node=a",
            "#/pods/default/gated",
            "#/nodes?pod=default%2Fweb",
            "#/nodes?pod=default%2Fweb&when=last",
            "#/plugins",
        ):
            await page.open("about:blank")
            await page.open(f"{server.url}{view}")
            await page.until(f"document.querySelector('main').innerText.includes({json.dumps(EVIL)})")
            assert await page.value("document.querySelectorAll('main img, main b').length") == 0
            assert await page.value("window.hurt") is None
        assert not page.problems
        await page.open("about:blank")


async def test_long_names_leave_the_window_as_wide_as_it_is(page: Page) -> None:
    long, group = "n" * 253, "g" * 63
    items = [node(long, labels={"topology.kubernetes.io/zone": "z" * 63}), pod("p" * 253, cpu="100")]
    items += [pod_group(group, least=5), *members(group, 2)]
    views = (
        "#/queue",
        f"#/pods/default/{'p' * 253}?node={long}",
        f"#/nodes?pod=default%2F{'p' * 253}&node={long}",
        "#/plugins",
        "#/groups",
        f"#/groups/default/{group}",
    )
    async with grouped(items) as world, serving(answers_of(world).answer) as server:
        await world.settle()
        for view in views:
            await page.begin(400, 900)
            await page.open("about:blank")
            await page.open(f"{server.url}{view}")
            await page.until("document.querySelectorAll('.scroll tbody a, dl.facts dd').length > 0")
            await page.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            for width in (400, 1280):
                await page.begin(width, 900)
                await page.until(f"innerWidth === {width}")
                wider_px = await page.value("document.documentElement.scrollWidth - innerWidth")
                assert wider_px <= 0, (view[:20], width)
        await page.open("about:blank")
