"""Each part of the cluster, read with and without the need that brings it: by a plugin in the host, by a
served plugin, and in an author's tests. Without the need the error is the same in all three; with it, the
value is.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from berth_host.attempt.cycle import Cycle
from berth_host.model.resources import kind_of
from berth_host.rpc.client import PluginClient
from berth_host.rpc.in_process import InProcessTransport
from berth_host.rpc.route import LocalRoute
from berth_sdk.kube_object import KubeObject
from berth_sdk.needs import NeedKind
from berth_sdk.runtime.plugin_runtime import PluginRuntime, make_plugin
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.status import Status
from berth_sdk.tables import ObjectStore
from berth_sdk.testing import PluginHost
from berth_sdk.testing.handle import RecordingHandle
from support.attached import PROFILE, AttachedHost, ClusterState, at_socket
from support.declared_parts import CLAIM, CLAIMS, NODE, ON_NODE, PARTS, PLUGIN, SHARED, WAITING, Part
from support.sdk_server import Serving

COMING = (ON_NODE, WAITING)


def in_tests(part: Part, *, declared: bool) -> str:
    """Return the reason that the plugin gives, or its error, in `PluginHost`."""
    cls = part.plugin(declared=declared)
    resources = {need.resource for need in cls.needs if need.kind is NeedKind.OBJECT}
    host = PluginHost(cls, nodes=[NODE], pods=[ON_NODE], objects={name: [CLAIM] for name in resources})
    attempt = host.attempt(WAITING)
    attempt.shared.values.update(SHARED)
    try:
        if part.read is None:
            return attempt.what_if("n0", removed=[ON_NODE], added=[WAITING]).message
        return attempt.filter()["n0"].message
    except Exception as err:  # noqa: BLE001  # what an author sees
        return str(err)


async def in_process(part: Part, *, declared: bool) -> str:
    """Return the same, in process."""
    state = ClusterState()
    fill(state)
    cls = part.plugin(declared=declared)
    store = ObjectStore()
    item = KubeObject.of(CLAIM)
    store.put(item.ref, item, 1)
    handle = RecordingHandle(lambda: state.nodes, {CLAIMS: store})
    runtime = PluginRuntime(make_plugin(cls, {}, handle), handle=handle, keeps_rows=False)
    client = PluginClient(PLUGIN, PROFILE, LocalRoute(InProcessTransport(runtime)), state)
    return await asked(client, Cycle("c1", WAITING, PROFILE, version=state.version), state, part)


async def served(part: Part, folder: Path, *, declared: bool) -> str:
    """Return the same, served over a socket."""
    cls = part.plugin(declared=declared)
    with Serving(folder, cls) as serving:
        place = at_socket(Path(serving.address.removeprefix("unix:")), PLUGIN)
        host = AttachedHost([place], node_count=0)
        fill(host.state)
        try:
            await host.attachments.start(60)
            return await asked(host.client, host.cycle(WAITING), host.state, part)
        finally:
            await host.attachments.stop()


def fill(state: ClusterState) -> None:
    state.add_nodes([NODE])
    state.put(ON_NODE, "n0")
    state.objects.put(kind_of(CLAIMS), KubeObject.of(CLAIM))
    state.snapshot.update(state.cache)


async def asked(client: PluginClient, cycle: Cycle, state: ClusterState, part: Part) -> str:
    cycle.shared.values.update(SHARED)
    nodes = state.nodes
    if part.read is not None:
        verdicts = await client.filter(cycle, nodes)
    else:
        (held,) = nodes.pods.on_node(0)
        what_if = Scenario("n0", removed=(held,), added=(WAITING,))
        verdicts = await client.filter_scenarios(cycle, Scenarios(nodes, [what_if]))
    status: Status = verdicts.to_list()[0]
    return status.message


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("name", PARTS)
async def test_part_that_was_not_declared_is_the_same_error_everywhere(name: str, tmp_path: Path) -> None:
    part = PARTS[name]
    assert in_tests(part, declared=False) == part.refusal
    assert f"UndeclaredError: {part.refusal}" in await in_process(part, declared=False)
    assert f"UndeclaredError: {part.refusal}" in await served(part, tmp_path, declared=False)


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("name", PARTS)
async def test_part_that_was_declared_is_the_same_value_everywhere(name: str, tmp_path: Path) -> None:
    part = PARTS[name]
    value = in_tests(part, declared=True)
    assert value and "UndeclaredError" not in value and "which it did not declare" not in value
    assert await in_process(part, declared=True) == value
    assert await served(part, tmp_path, declared=True) == value
