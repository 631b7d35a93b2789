"""The page in a real Chromium, over a host on the embedded cluster: what each view shows, live."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from berth_bench.ui.chromium import Page
from berth_host.endpoints.loopback import LoopbackServer
from berth_host.endpoints.pages import Answers
from berth_sdk.kube_object import ObjectRef
from support.groups import grouped, members, pod_group
from support.holding_world import holding_world
from support.hosts import World, node, pod
from support.serving import FakeProcess

pytestmark = pytest.mark.slow
ROWS = "[...document.querySelectorAll('.scroll tbody tr:not(.spacer)')].map((row) => row.innerText)"
NAMES = "[...document.querySelectorAll('.scroll tbody a')].map((one) => one.textContent)"
ABOUT = "document.querySelector('.answer').innerText"
SOON_S = 0.05


@asynccontextmanager
async def shown(world: World, page: Page) -> AsyncIterator[LoopbackServer]:
    """The page of a world, with looks in quick succession.

    At its end there was no error of a script, and nothing was refused by the policy.
    """
    answers = Answers(FakeProcess(world.host.configuration, world.host), SOON_S)
    server = LoopbackServer(answers.answer)
    await server.start(0)
    try:
        yield server
        assert not page.problems
        await page.open("about:blank")  # before its streams end
    finally:
        await server.stop()


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with holding_world("in_process", tmp_path) as world:
        yield world


@pytest_asyncio.fixture
async def url(world: World, page: Page) -> AsyncIterator[str]:
    async with shown(world, page) as server:
        yield server.url


async def test_queue_has_each_part_with_its_number_and_the_reason_of_each_pod(page: Page, url: str) -> None:
    await page.open(url)
    await page.until(f"{NAMES}.length === 3")
    numbers = await page.value(
        "Object.fromEntries([...document.querySelectorAll('.parts button')].map((one) =>"
        " [one.dataset.part, one.querySelector('.count').textContent]))"
    )
    assert numbers == {
        "all": "3",
        "active": "0",
        "backoff": "0",
        "unschedulable": "1",
        "gated": "2",
        "incomplete": "0",
        "pending": "0",
    }
    rows = {row.split("\t")[0]: row for row in await page.value(ROWS)}
    assert "NodeResourcesFit: Insufficient cpu" in rows["default/huge"]
    assert "scheduling gates: example.com/approval" in rows["default/gated"]
    assert "no budget left" in rows["default/kept-out"]
    await page.open(f"{url}#/pods/default/kept-out")
    await page.until(
        "document.querySelector('dl.facts').innerText.includes('Gated by\\nHolding: no budget left')"
    )


async def test_queue_changes_while_it_is_shown(page: Page, url: str, world: World) -> None:
    await page.open(url)
    await page.until(f"{NAMES}.length === 3")
    world.server.create(pod("newcomer", cpu="100"))
    await page.until(f"{NAMES}.includes('default/newcomer')")
    world.server.delete("pods", ObjectRef(namespace="default", name="newcomer"))
    await page.until(f"!{NAMES}.includes('default/newcomer') && {NAMES}.length === 3")


async def test_queue_is_filtered_by_part_reason_and_name(page: Page, url: str) -> None:
    await page.open(url)
    await page.until(f"{NAMES}.length === 3")
    await page.value("document.querySelector('[data-part=gated]').click()")
    assert await page.value(NAMES) == ["default/gated", "default/kept-out"]
    await page.value("[...document.querySelectorAll('[data-reason]')].at(-1).click()")
    assert len(await page.value(NAMES)) == 1
    assert "1 pod shown of 3" in await page.value("document.body.innerText")
    await page.value("document.querySelector('[data-part=all]').click()")
    await page.value("document.getElementById('queue-text').focus()")
    await page.type("BUDGET")
    assert await page.until(f"{NAMES}.length === 1 && {NAMES}") == ["default/kept-out"]


async def test_way_back_leads_to_the_queue_as_it_was(page: Page, url: str, world: World) -> None:
    await page.open(url)
    await page.until(f"{NAMES}.length === 3")
    await page.value("document.querySelector('[data-part=gated]').click()")
    await page.value("document.querySelector('[data-reason*=budget]').click()")
    await page.value(
        "{ const order = document.getElementById('queue-order'); order.value = 'name';"
        " order.dispatchEvent(new Event('change')); }"
    )
    await page.value("document.getElementById('queue-text').focus()")
    await page.type("Kept-")
    await page.until("location.hash.includes('contains=Kept-')")
    await page.value("document.querySelector('.scroll tbody a').focus()")
    await page.press("Enter")
    await page.until("document.title === 'Pod default/kept-out · berth'")
    await page.value("history.back()")
    shown = (
        "[document.querySelector('.parts [aria-pressed=true]').dataset.part,"
        " document.getElementById('queue-text').value, document.getElementById('queue-order').value,"
        " document.querySelector('[data-reason][aria-pressed=true]')?.innerText]"
    )
    chosen = ["gated", "Kept-", "name", "Holding: no budget left"]
    await page.until(f"document.title === 'Queue · berth' && {NAMES}.length === 1")
    assert await page.value(shown) == chosen
    # The address alone leads there, too.
    address = await page.value("location.href")
    await page.open("about:blank")
    await page.open(address)
    await page.until(f"{NAMES}.length === 1")
    assert await page.value(shown) == chosen
    # The link of the view has the whole queue, and its numbers that change leave the way back as it is.
    await page.value("document.querySelector('nav a').focus()")
    await page.press("Enter")
    await page.until(f"{NAMES}.length === 3")
    assert await page.value("location.hash") == "#/queue"
    for index in range(30):
        world.server.create(pod(f"newcomer-{index}", cpu="100"))
    await page.until(f"{NAMES}.length > 3")
    await page.value("history.back()")
    await page.until(f"{NAMES}.length === 1")
    assert await page.value(shown) == chosen


async def test_queue_without_pods_says_so(page: Page) -> None:
    async with World([node("a")]) as world, shown(world, page) as server:
        await page.open(server.url)
        text = await page.until(
            "!document.querySelector('.none').hidden && document.querySelector('.none').innerText"
        )
        assert text == "No pod waits."
        assert "0 pods shown of 0" in await page.value("document.body.innerText")


@pytest.mark.long
async def test_queue_of_more_pods_than_one_answer_is_read_in_pages_and_searched_as_a_whole(
    page: Page,
) -> None:
    gate = [{"name": "example.com/wait"}]
    waiting = [pod(f"p{index:05}", schedulingGates=gate) for index in range(10_002)]
    async with World([node("a"), *waiting, pod("web", cpu="40")]) as world, shown(world, page) as server:
        await world.settle()
        await page.open(server.url)
        summary = "document.querySelector('.pager').innerText"
        await page.until(f"{summary}.startsWith('Pods 1 to 10,000 of 10,003')", 60)
        last = "[...document.querySelectorAll('.pager button')].at(-1)"
        assert await page.value(f"{last}.getAttribute('aria-disabled')") == "false"
        await page.value(f"{last}.click()")
        await page.until(f"{summary}.startsWith('Pods 10,001 to 10,003 of 10,003')")
        assert len(await page.value(NAMES)) == 3
        assert await page.value(f"{last}.getAttribute('aria-disabled')") == "true"
        # The search is for all pods: this one is on the other page.
        await page.value("document.getElementById('queue-text').focus()")
        await page.type("P00007")
        await page.until(f"{NAMES}.length === 1 && {summary}.startsWith('Pods 1 to 1 of 1 that match')")
        reasons = (
            "[...document.querySelectorAll('[aria-label=Reasons] tbody tr')].map((row) => row.innerText)"
        )
        assert await page.value(reasons) == [
            "SchedulingGates: scheduling gates: example.com/wait\t10,002",
            "NodeResourcesFit: Insufficient cpu\t1",
        ]


async def test_pod_view_has_attempts_verdicts_nearest_fit_and_timeline(page: Page, url: str) -> None:
    await page.open(f"{url}#/pods/default/huge?node=tainted")
    await page.until("document.querySelector('.timeline li')")
    text = await page.value("document.querySelector('main').innerText")
    assert "0 of 3 nodes passed every filter in attempt 1" in text
    assert "TaintToleration" in text
    assert "node small-1 lacks 2200m CPU" in text
    assert "TaintToleration rejected tainted: " in text
    steps = await page.value(
        "[...document.querySelectorAll('.timeline .step')].map((one) => one.textContent)"
    )
    assert steps == ["queued", "tried", "rejected", "unschedulable"]
    assert await page.value("document.title") == "Pod default/huge · berth"


async def test_pod_view_has_the_scores_as_numbers_and_as_bars(page: Page, url: str) -> None:
    await page.open(f"{url}#/pods/default/web")
    await page.until("document.querySelector('.bars i')")
    rows = "[...document.querySelector('section[aria-label=Scores] table').rows]"
    texts = await page.value(f"{rows}.map((row) => [...row.cells].map((cell) => cell.innerText))")
    assert texts[0] == ["Plugin", "small-0 (chosen)", "small-1"]
    totals = [int(text) for text in texts[2][1:]]
    parts = [[int(text.split()[0]) for text in row[1:]] for row in texts[3:]]
    assert [sum(column) for column in zip(*parts, strict=True)] == totals
    assert "NodeResourcesFit" in [row[0] for row in texts]
    widths = await page.value(
        f"[...{rows}[1].querySelectorAll('.bars')].map((bars) => [...bars.children].reduce((sum, one) =>"
        " sum + one.getBoundingClientRect().width, 0))"
    )
    assert widths[0] / widths[1] == pytest.approx(totals[0] / totals[1], rel=0.05)


async def test_node_chosen_among_equals_is_named_with_the_scores(page: Page) -> None:
    nodes = [node(name, cpu="8") for name in ("e", "d", "c", "b", "a")]
    async with World([*nodes, pod("web", cpu="1")]) as world, shown(world, page) as server:
        await world.settle()
        await page.open(f"{server.url}#/pods/default/web")
        await page.until("document.querySelector('.bars i')")
        scores = "document.querySelector('section[aria-label=Scores] table')"
        assert (await page.value(f"{scores}.caption.innerText")).endswith(
            "; a, which was chosen, has the same total"
        )
    nodes = [node("a", cpu="8"), node("b", cpu="4")]
    async with World([*nodes, pod("web", cpu="1")]) as world, shown(world, page) as server:
        await world.settle()
        await page.open(f"{server.url}#/pods/default/web")
        await page.until("document.querySelector('.bars i')")
        heads = f"[...{scores}.tHead.rows[0].cells].map((cell) => cell.innerText)"
        assert await page.value(heads) == ["Plugin", "a (chosen)", "b"]
        assert "chosen" not in await page.value(f"{scores}.caption.innerText")


async def test_pod_on_a_node_has_the_way_to_what_the_plugins_say_now(page: Page, url: str) -> None:
    await page.open(f"{url}#/pods/default/web")
    await page.until("document.querySelector('.bars i')")
    verdicts = "document.querySelector('[aria-label=\"Verdicts of plugins\"]')"
    text = await page.value(f"{verdicts}.innerText")
    assert "2 of 3 nodes passed every filter in attempt 1. " in text
    assert "keeps no rejections of an attempt that chose a node" in text
    assert await page.value(f"{verdicts}.querySelector('a').hash") == "#/nodes?pod=default%2Fweb"


async def test_pod_in_backoff_is_told_when_it_is_tried_again_at_the_latest(page: Page) -> None:
    async with World([pod("web")]) as world, shown(world, page) as server:
        await world.settle()
        await page.open(f"{server.url}#/pods/default/web")
        facts = await page.until("document.querySelector('dl.facts')?.innerText")
        assert "Tried again\nat the latest at 00:00:29.000, in 10s" in facts


async def test_pod_that_is_unknown_is_named_with_the_cure(page: Page, url: str) -> None:
    await page.open(f"{url}#/pods/default/nobody")
    said = "document.getElementById('problem').textContent"
    text = await page.until(f"!document.getElementById('problem').hidden && {said}")
    assert "no pod default/nobody is known here" in text
    # The browser writes the status of an answer into its console.
    assert all("404" in problem for problem in page.problems)
    page.problems.clear()


async def test_plugins_have_state_calls_and_breakers(page: Page, url: str) -> None:
    await page.open(f"{url}#/plugins")
    await page.until("document.querySelector('main table tbody tr')")
    rows = await page.value(
        "[...document.querySelector('main table').tBodies[0].rows].map((row) =>"
        " [...row.cells].map((cell) => cell.innerText))"
    )
    found = {row[0]: row for row in rows}
    assert found["Holding"][1:3] == ["available", "in\u00a0process"]
    assert (found["Holding"][9], found["Holding"][10]) == ("closed", "preEnqueue, permit")
    assert int(found["NodeResourcesFit"][5]) > 0


async def test_served_plugin_has_its_versions_and_what_it_was_given(page: Page, tmp_path: Path) -> None:
    async with holding_world("socket", tmp_path) as world, shown(world, page) as server:
        await page.open(f"{server.url}#/plugins")
        await page.until("document.querySelector('main table tbody tr')")
        headers = await page.value(
            "[...document.querySelectorAll('main table th[scope=col]')].map((one) => one.innerText)"
        )
        first = await page.value(
            "[...document.querySelector('main table').tBodies[0].rows[0].cells].map((one) => one.innerText)"
        )
        row = dict(zip(headers, first, strict=False))
        assert [row[name] for name in ("Plugin", "Runs", "State", "Contract")] == [
            "Holding",
            "served",
            "Active",
            "1.0",
        ]
        await page.value("document.querySelector('details summary').click()")
        text = await page.value("document.querySelector('details').innerText")
        assert "1.0, frames" in text
        assert "permit: 10000 ms, Fail" in text
        assert str(tmp_path / "p.sock") in text


async def test_nodes_are_a_map_and_a_table_with_the_same_values(page: Page, url: str) -> None:
    await page.open(f"{url}#/nodes")
    await page.until(f"{NAMES}.length === 3")
    rows = {row.split("\t")[0]: row.split("\t") for row in await page.value(ROWS)}
    assert rows["small-0"][2] == "5 %"
    label = await page.value("document.querySelector('canvas').getAttribute('aria-label')")
    assert "3 nodes: " in label
    assert "the table below has every node" in label
    await page.value("document.querySelector('canvas').focus()")
    await page.press("ArrowRight")
    await page.press("ArrowRight")
    text = await page.until("document.querySelector('[aria-label=\"The chosen node\"]').innerText")
    assert text.startswith("small-1")
    assert "of 4 requested" in text


async def test_nodes_have_what_every_plugin_says_now_about_a_chosen_pod(page: Page, url: str) -> None:
    await page.open(f"{url}#/nodes?pod=default%2Fhuge")
    await page.until(f"{ABOUT}.startsWith('No node fits: 0/3 nodes are available: ')")
    await page.until(f"{NAMES}.length === 3")
    rows = {row.split("\t")[0]: row for row in await page.value(ROWS)}
    assert "NodeResourcesFit: Insufficient cpu" in rows["small-0"]
    assert "TaintToleration: " in rows["tainted"]
    legend = "[...document.querySelectorAll('.legend span')].map((one) => one.innerText)"
    assert await page.value(legend) == [
        "lowest score",
        "highest score",
        "A rejected by NodeResourcesFit: 2",
        "B rejected by TaintToleration: 1",
        "no score",
    ]
    await page.open("about:blank")
    await page.open(f"{url}#/nodes?pod=default%2Fweb")
    text = await page.until(f"{ABOUT}.startsWith('The pod would go to small-0') && {ABOUT}")
    await page.until(f"{NAMES}.length === 3")
    assert "The plugins were asked at 00:0" in text
    assert "as if the pod had left its node small-0" in text
    rows = {row.split("\t")[0]: row.split("\t") for row in await page.value(ROWS)}
    assert int(rows["small-0"][6]) > int(rows["small-1"][6]) > 0
    assert (rows["small-0"][5], rows["small-1"][5]) == ("fits best", "fits")


async def test_map_has_the_scores_of_all_nodes_now_and_of_three_in_the_last_attempt(page: Page) -> None:
    nodes = [node(f"n{index}", cpu=str(2 + index)) for index in range(8)]
    async with World([*nodes, pod("web", cpu="1")]) as world, shown(world, page) as server:
        await world.settle()
        await page.open(f"{server.url}#/nodes?pod=default%2Fweb")
        await page.until(f"{ABOUT}.startsWith('The pod would go to ') && {NAMES}.length === 8")
        scores = f"{ROWS}.map((row) => row.split('\\t')[6]).filter(Boolean)"
        assert len(await page.value(scores)) == 8
        assert "8 nodes: 0 rejected, 8 with a score, from " in await page.value("document.body.innerText")
        # By one plugin, the map has that plugin's part.
        await page.value(
            "{ const by = document.getElementById('nodes-by'); by.value = 'score by NodeResourcesFit';"
            " by.dispatchEvent(new Event('change')); }"
        )
        await page.value("document.querySelector('canvas').focus()")
        await page.press("End")
        detail = await page.value("document.querySelector('[aria-label=\"The chosen node\"]').innerText")
        assert detail.startswith("n7")
        assert "NodeResourcesFit " in detail
        # A node that came later was not asked about, until somebody asks again.
        world.server.create(node("n8"))
        await page.until(f"{ROWS}.some((row) => row.startsWith('n8') && row.includes('not asked'))")
        await page.value(
            "[...document.querySelectorAll('button')].find((one) => one.innerText === 'Ask again').click()"
        )
        await page.until(f"{ROWS}.some((row) => row.startsWith('n8') && row.includes('fits'))")
        await page.value(
            "{ const when = document.getElementById('nodes-when'); when.value = 'last';"
            " when.dispatchEvent(new Event('change')); }"
        )
        text = await page.until(f"{ABOUT}.startsWith('Attempt 1: ') && {ABOUT}")
        assert text.startswith(
            "Attempt 1: 8 of 9 nodes passed every filter. These are the verdicts of that attempt; "
        )
        assert len(await page.value(scores)) == 3


async def test_row_of_the_table_chooses_its_node_without_a_new_question(page: Page, url: str) -> None:
    await page.open(f"{url}#/nodes?pod=default%2Fweb")
    asked = await page.until(f"{NAMES}.length === 3 && {ABOUT}.startsWith('The pod would go to ') && {ABOUT}")
    await page.value("[...document.querySelectorAll('.scroll tbody a')].at(-1).click()")
    detail = "document.querySelector('[aria-label=\"The chosen node\"]').innerText"
    assert (await page.value(detail)).startswith("tainted")
    assert await page.value("location.hash") == "#/nodes?pod=default%2Fweb&node=tainted"
    assert await page.value(ABOUT) == asked


async def test_table_has_what_colours_the_map(page: Page) -> None:
    gpu = "nvidia.com/gpu"
    with_gpu = node("with", cpu="4")
    with_gpu["status"]["allocatable"][gpu] = "4"
    user = pod("user", cpu="1")
    user["spec"]["containers"][0]["resources"]["requests"][gpu] = "3"
    async with World([with_gpu, node("without"), user, pod("plain")]) as world, shown(world, page) as server:
        await world.settle()
        await page.open(f"{server.url}#/nodes")
        await page.until(f"{NAMES}.length === 2")
        choose = (
            "{ const by = document.getElementById('nodes-by'); by.value = %r;"
            " by.dispatchEvent(new Event('change')); }"
        )
        heads = "[...document.querySelectorAll('.scroll thead th')].map((one) => one.innerText)"
        assert (await page.value(heads))[2:5] == ["cpu", "memory", "pods"]
        await page.value(choose % gpu)
        assert (await page.value(heads))[2:5] == [gpu, "memory", "pods"]
        rows = {row.split("\t")[0]: row.split("\t") for row in await page.value(ROWS)}
        assert (rows["with"][2], rows["without"][2]) == ("75 %", "")
        # The address keeps the colour, also with a node.
        await page.value("[...document.querySelectorAll('.scroll tbody a')].at(-1).click()")
        assert await page.value("location.hash") == "#/nodes?by=nvidia.com%2Fgpu&node=without"
        detail = "document.querySelector('[aria-label=\"The chosen node\"]').innerText"
        assert gpu not in await page.value(detail)
        await page.value("document.querySelector('nav a').focus()")
        await page.press("Enter")
        await page.until("document.title === 'Queue · berth'")
        await page.value("history.back()")
        await page.until(f"{NAMES}.length === 2 && ({detail}).startsWith('without')")
        assert await page.value("document.getElementById('nodes-by').value") == gpu
        # With a pod, the parts of one plugin.
        await page.open("about:blank")
        await page.open(f"{server.url}#/nodes?pod=default%2Fplain&by=score+by+NodeResourcesFit")
        await page.until(f"{ABOUT}.startsWith('The pod would go to ')")
        await page.until(f"{NAMES}.length === 2")
        assert (await page.value(heads))[6] == "Score by NodeResourcesFit"
        by_plugin = {row.split("\t")[0]: row.split("\t")[6] for row in await page.value(ROWS)}
        await page.value(choose % "score")
        assert (await page.value(heads))[6] == "Score"
        total = {row.split("\t")[0]: row.split("\t")[6] for row in await page.value(ROWS)}
        assert int(total["with"]) > int(by_plugin["with"])


async def test_groups_are_listed_and_explained(page: Page) -> None:
    groups = [pod_group("big", least=5), *members("big", 5), pod_group("fits", least=2), *members("fits", 2)]
    async with grouped([node("a"), *groups]) as world, shown(world, page) as server:
        await world.settle()
        await page.open(f"{server.url}#/groups")
        await page.until(f"{NAMES}.length === 2")
        rows = {row.split("\t")[0]: row for row in await page.value(ROWS)}
        assert "scheduled" in rows["default/fits"]
        assert "0 of 5 needed" in rows["default/big"]
        await page.value("document.querySelector('.scroll tbody a').click()")
        await page.until("document.querySelector('h1').textContent === 'Group default/big'")
        text = await page.until(
            "document.querySelector('.facts') && document.querySelector('main').innerText"
        )
        assert "0 placed of 5, 5 needed" in text
        # A pod of the group leads back to it.
        await page.open(f"{server.url}#/pods/default/big-0")
        await page.until("document.querySelector('dl.facts a')")
        await page.value("document.querySelector('dl.facts a').click()")
        await page.until("document.querySelector('h1').textContent === 'Group default/big'")
        await page.until("document.querySelector('.facts').innerText.includes('0 placed of 5')")
        assert await page.value("document.getElementById('problem').textContent") == ""


async def test_group_names_the_nodes_that_are_nearest_to_its_next_member(page: Page) -> None:
    nodes = [node(f"n{index}", cpu=str(10 + index)) for index in range(8)]
    objects = [*nodes, pod_group("big", least=2), *members("big", 2, cpu="20")]
    async with grouped(objects) as world, shown(world, page) as server:
        await world.settle()
        await page.open(f"{server.url}#/groups/default/big")
        text = await page.until(
            "document.querySelector('.facts') && document.querySelector('main').innerText"
        )
        assert "node n7 lacks 3 CPU; " in text
        assert text.count(" lacks ") == 5
        assert "; 3 other nodes lack more" in text
