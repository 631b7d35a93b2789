"""Rows 11, 12 and 33 of the failure table, with real processes: hosts that are killed, or lose the lead.

Row 14 as well, where the host's own Bind gets no answer.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from berth_sdk.kube_object import ObjectRef
from support.faults import FailingProcess, RawPlugin, configuration, running, served_cluster
from support.hosts import node, pod
from support.scripted_plugin import descriptor
from support.waiting import until

pytestmark = pytest.mark.slow

ELECTION = "{leaderElect: true, leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 500ms}"


@pytest.mark.long
async def test_row_11_the_next_host_takes_up_what_the_killed_one_left(tmp_path: Path) -> None:
    """One pod is bound, one waits on Permit with its reservation, one has preempted another."""
    plugin = FailingProcess(tmp_path / "plugin")
    text = configuration(plugin, Failing="reserve permit postBind")
    low = pod("low", cpu="3", nodeName="n1")
    low["metadata"]["finalizers"] = ["example.com/stays"]
    objects = [
        *(node("n0", cpu="2"), node("n1"), low),
        *(pod("web"), pod("held", labels={"faulty": "held"})),
    ]
    async with running(plugin), served_cluster(*objects) as cluster:
        first = cluster.host(tmp_path / "first", text)
        await first.begin()
        await cluster.bound("web")
        await until(lambda: len(plugin.asked("Permit")) == 2 and len(plugin.did("post-bind")) == 1)
        cluster.server.create(pod("high", cpu="3", priority=10))
        await until(lambda: cluster.pod("high").get("status.nominatedNodeName") == "n1")
        await until(lambda: cluster.pod("low").get("metadata.deletionTimestamp") is not None)
        web_node, held_uid = cluster.node_of("web"), cluster.pod("held").ref.uid
        (left,) = (cycle for cycle, uid in plugin.did("reserve") if uid == held_uid)
        await first.kill()

        second = cluster.host(tmp_path / "second", text)
        await second.begin()
        # Nothing is alive in its epoch: the plugin gives back what the other host's pod had.
        await until(lambda: plugin.did("reconcile") == [["0", "-"]] * 2)
        await until(lambda: plugin.did("unreserve") == [[left, held_uid]])
        await until(lambda: len([uid for _, uid in plugin.did("reserve") if uid == held_uid]) == 2)
        assert cluster.node_of("web") == web_node
        again = [cycle for cycle, uid in plugin.did("reserve") if uid == held_uid][-1]
        await until(lambda: again in [words[1] for words in plugin.asked("Permit")])
        assert await plugin.order("allow", held_uid, again) in ("APPLIED", "STORED_EARLY")
        await cluster.bound("held")
        change = {"metadata": {"finalizers": None}}
        cluster.server.patch("pods", ObjectRef(namespace="default", name="low"), change)
        await cluster.bound("high")
        assert cluster.node_of("high") == "n1"
        assert cluster.served.handlers.rebinds == 0
        assert await second.stop() == 0


@pytest.mark.long
async def test_row_12_the_host_that_lost_the_lead_sends_nothing_and_the_next_one_begins_its_term(
    tmp_path: Path,
) -> None:
    plugin = FailingProcess(tmp_path / "plugin")
    plugin.arm("PreBind", "hang")
    text = configuration(plugin, Failing="reserve preBind postBind")
    text = text.replace("preBind: {deadline: 10s}", "preBind: {deadline: 30s}")
    async with running(plugin), served_cluster(node("n0"), node("n1")) as cluster:
        first = cluster.host(tmp_path / "first", text, election=ELECTION)
        await first.begin()
        cluster.server.create(pod("web"))
        await until(lambda: plugin.has_fired)
        ((left, _),) = plugin.did("reserve")
        shaken = len(plugin.asked("Handshake"))

        second = cluster.host(tmp_path / "second", text, election=ELECTION)
        await second.begin()
        await until(lambda: len(plugin.asked("Handshake")) > shaken)
        assert len(plugin.asked("Configure")) == len(plugin.asked("Reconcile")) == 1
        os.kill(first.pid, signal.SIGSTOP)
        await cluster.bound("web")
        bound_to, bound_with = cluster.node_of("web"), cluster.pod("web").get("metadata.resourceVersion")
        await until(lambda: len(plugin.did("post-bind")) == 1)
        assert plugin.did("reconcile") == [["0", "-"]] * 2
        assert [cycle for cycle, _ in plugin.did("unreserve")] == [left]
        done = plugin.lines("journal")

        os.kill(first.pid, signal.SIGCONT)
        await until(lambda: first.ended_with is not None)
        assert first.ended_with == 1
        assert cluster.node_of("web") == bound_to
        assert cluster.pod("web").get("metadata.resourceVersion") == bound_with
        # What it still says to the plugin is refused; the call that it left open is noticed to be over.
        assert [words for words in plugin.lines("journal") if words[0] != "noticed"] == done
        cluster.server.create(pod("next"))
        await cluster.bound("next")
        assert cluster.served.handlers.rebinds == 0


@pytest.mark.long
async def test_row_14_the_hosts_own_bind_without_an_answer_is_followed_by_a_look_at_the_pod(
    tmp_path: Path,
) -> None:
    """The connection breaks after the pod was bound, and before it: one pod each."""
    plugin = FailingProcess(tmp_path / "plugin")
    text = configuration(plugin, Failing="reserve postBind")
    async with running(plugin), served_cluster(node("n0")) as cluster:
        cluster.cuts.update(after="after", before="before")
        await cluster.host(tmp_path / "host", text).begin()
        cluster.server.create(pod("after"))
        cluster.server.create(pod("before"))
        await cluster.bound("after", "before")
        await until(lambda: len(plugin.did("post-bind")) == 2)
        assert not cluster.cuts
        after = cluster.pod("after").ref.uid
        assert [uid for _, uid in plugin.did("reserve")].count(after) == 1
        assert after not in [uid for _, uid in plugin.did("unreserve")]
        assert cluster.served.handlers.rebinds == 0


async def test_row_33_children_end_with_the_host_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = FailingProcess(tmp_path / "plugin")
    command = json.dumps([sys.executable, "-m", "support.failing_plugin"])
    text = configuration(plugin, Failing="reserve").replace(
        f"endpoint: {plugin.endpoint}", f"command: {command}"
    )
    monkeypatch.setenv("BERTH_FAULTS", str(plugin.folder))
    async with served_cluster(node("n0"), pod("web")) as cluster:
        host = cluster.host(tmp_path / "host", text)
        await host.begin()
        await cluster.bound("web")
        assert len(plugin.did("reserve")) == 1
        pid = int((plugin.folder / "pid").read_text())
        assert is_alive(pid)
        await host.kill()
        await until(lambda: not is_alive(pid))


@pytest.mark.long
async def test_row_33_a_child_that_survives_its_host_is_a_stranger_to_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not asked any more, and nobody ends it."""
    plugin = RawPlugin(tmp_path / "plugin", descriptor("Raw", "FILTER"))
    command = json.dumps([sys.executable, "-m", "support.surviving_child", "Raw"])
    text = configuration(plugin, Raw="filter").replace(f"endpoint: {plugin.endpoint}", f"command: {command}")
    monkeypatch.setenv("BERTH_FAULTS", str(plugin.folder))

    def pids() -> list[int]:
        return [int(words[0]) for words in plugin.lines("pids")]

    try:
        async with served_cluster(node("n0"), pod("web")) as cluster:
            first = cluster.host(tmp_path / "first", text)
            await first.begin()
            await cluster.bound("web")
            await first.kill()
            (survivor,) = pids()
            heard = plugin.lines(f"{survivor}/journal")
            assert "Filter" in [words[0] for words in heard]

            second = cluster.host(tmp_path / "second", text)
            await second.begin()
            cluster.server.create(pod("next"))
            await cluster.bound("next")
            _, own = pids()
            assert "Filter" in [words[0] for words in plugin.lines(f"{own}/journal")]
            assert is_alive(survivor)
            assert await second.stop() == 0
            assert not is_alive(own)
            assert is_alive(survivor)
            assert plugin.lines(f"{survivor}/journal") == heard
    finally:
        for pid in pids():
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and was not waited for does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
