"""What the pod's owner and the log are told of codes that the host reads as ERROR, of statuses without code,
and of unknown actions of patches.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from berth_sdk.cycle_state import CycleState
from berth_sdk.kube_object import ObjectRef
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2, scheduling_pb2
from berth_sdk.pod import Pod
from berth_sdk.results import ObjectPatch, PatchAction, PatchOutcome, PatchResult, PreBindResult
from berth_sdk.status import SUCCESS, Status
from structlog.testing import capture_logs
from support.hosts import World, enabling, node, pod
from support.scripted_plugin import ScriptedPlugin, decided, descriptor

POINTS = {"PRE_FILTER": "preFilter", "FILTER": "filter", "RESERVE": "reserve", "PRE_BIND": "preBind"}
MESSAGES = {
    "PreFilter": scheduling_pb2.PreFilterResponse,
    "Filter": scheduling_pb2.FilterResponse,
    "Reserve": scheduling_pb2.ReserveResponse,
}

ASKED = [("PRE_FILTER", "PreFilter"), ("FILTER", "Filter"), ("RESERVE", "Reserve")]


def configuration(path: Path, *points: str) -> str:
    enabled = "".join(f"    {POINTS[point]}: {{enabled: [{{name: Demo}}]}}\n" for point in points)
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles:\n- schedulerName: default-scheduler\n  plugins:\n{enabled}"
        f"- schedulerName: other\n  plugins:\n{enabled}"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        f"plugins:\n- name: Demo\n  endpoint: unix://{path}\n  required: true\n"
    )


def with_code(code: Any, *reasons: str) -> pb.ReplyContext:
    context = pb.ReplyContext(status=pb.PluginStatus(reasons=reasons))
    context.status.code = code
    return context


async def messages(
    tmp_path: Path, point: str, rpc: str, context: pb.ReplyContext
) -> tuple[Any, list[Any], int]:
    """Return the messages of two pods in two profiles, the log lines about codes, and the violations."""
    plugin = ScriptedPlugin(descriptor("Demo", point))
    plugin.on(rpc, lambda _: MESSAGES[rpc](ctx=context))
    path = tmp_path / "p.sock"
    objects = [node("n1"), pod("a"), pod("b", schedulerName="other")]
    with capture_logs() as lines:
        async with plugin.serving(path), World(objects, configuration=configuration(path, point)) as world:
            await world.settle()
            assert not world.node_of("a") + world.node_of("b")
            said = [world.message_of(name) for name in ("a", "b")]
            violations = world.host.plugin_stats()["Demo"].violations
    assert len(plugin.requests(rpc)) > 1
    return said, [line for line in lines if line["event"] == "plugin.code_read_as_error"], violations


@pytest.mark.parametrize(
    ("point", "rpc"), [("PRE_FILTER", "PreFilter"), ("FILTER", "Filter"), ("RESERVE", "Reserve")]
)
async def test_unknown_code_is_named_in_the_reason_and_once_in_the_log(
    tmp_path: Path, point: str, rpc: str
) -> None:
    said, lines, violations = await messages(tmp_path, point, rpc, with_code(99, "why"))
    for message in said:
        assert 'plugin "Demo" answered the unknown status code 99' in message
        assert "why" in message
    (line,) = lines
    assert (line["plugin"], line["call"], line["code"]) == ("Demo", rpc, "99")
    assert line["log_level"] == "warning"
    assert violations == 0


async def test_code_without_a_meaning_at_the_point_is_named_in_reason_and_log(tmp_path: Path) -> None:
    said, lines, violations = await messages(
        tmp_path, "RESERVE", "Reserve", with_code(pb.PluginStatus.CODE_WAIT, "why")
    )
    for message in said:
        assert 'plugin "Demo" answered Wait, which has no meaning at Reserve, why' in message
    assert {(line["plugin"], line["call"], line["code"]) for line in lines} == {("Demo", "Reserve", "Wait")}
    assert len(lines) == 1
    assert violations == 0


@pytest.mark.parametrize(
    ("point", "rpc"), [("PRE_FILTER", "PreFilter"), ("FILTER", "Filter"), ("RESERVE", "Reserve")]
)
async def test_status_with_reasons_and_without_a_code_is_a_violation_and_places_no_pod(
    tmp_path: Path, point: str, rpc: str
) -> None:
    said, lines, violations = await messages(tmp_path, point, rpc, with_code(0, "no licence is free"))
    for message in said:
        assert (
            "without a code ('no licence is free'): set `code`" in message or "broke the contract" in message
        )
    assert violations >= 2
    assert not lines


# --- unknown actions of patches -----------------------------------------------------------------------------

WEB = ObjectRef(namespace="default", name="web")
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"selector": {"app": "web"}},
}


async def test_unknown_action_of_a_patch_is_refused_and_changes_nothing_served(tmp_path: Path) -> None:
    def pre_bind(request: Any) -> scheduling_pb2.PreBindResponse:
        if request.round:
            return scheduling_pb2.PreBindResponse(ctx=decided())
        later = scheduling_pb2.ObjectPatch(
            resource="services", ref=pb.ObjectRef(namespace="default", name="web"), merge_patch_json=b"{}"
        )
        later.merge_patch_json = b'{"spec": {"selector": {"app": "other"}}}'
        later.action = 9  # type: ignore[assignment]  # of a later contract
        own = scheduling_pb2.ObjectPatch(resource="pods", ref=request.ctx.pod.summary.ref, action=9)  # type: ignore[arg-type]
        own.merge_patch_json = b'{"metadata": {"labels": {"a": "b"}}}'
        return scheduling_pb2.PreBindResponse(ctx=decided(), patches=[own, later])

    needs = [identity_pb2.DeclaredNeed(kind=identity_pb2.DeclaredNeed.KIND_OBJECT, resource="services")]
    plugin = ScriptedPlugin(descriptor("Demo", "PRE_BIND", needs=needs))
    plugin.on("PreBind", pre_bind)
    path = tmp_path / "p.sock"
    text = configuration(path, "PRE_BIND")
    async with plugin.serving(path), World([SERVICE, node("n1"), pod("web")], configuration=text) as world:
        await world.settle()
        assert world.node_of("web") == "n1"
        assert world.host.plugin_stats()["Demo"].violations == 0
        service = world.server.get("services", WEB)
        assert service is not None
        assert service.get("spec.selector") == {"app": "web"}
    results = plugin.requests("PreBind")[1].patched
    assert [item.outcome for item in results] == [
        scheduling_pb2.PatchResult.OUTCOME_REFUSED,
        scheduling_pb2.PatchResult.OUTCOME_SKIPPED,
    ]
    assert "does not know the patch's action" in results[0].message


async def test_unknown_action_of_a_patch_is_refused_and_changes_nothing_in_process() -> None:
    seen: list[PatchResult] = []

    class Later:
        def pre_bind(
            self, state: CycleState, pod: Pod, node_name: str, patched: Any
        ) -> PreBindResult | Status:
            seen.extend(patched)
            patch = ObjectPatch(
                resource="pods",
                ref=pod.ref,
                merge_patch={"metadata": {"labels": {"a": "b"}}},
                action=PatchAction.UNKNOWN,
            )
            return SUCCESS if patched else PreBindResult(SUCCESS, patches=(patch,))

    objects = [node("n1"), pod("web")]
    async with World(objects, [Later], configuration=enabling(["Later"])) as world:
        await world.settle()
        assert world.node_of("web") == "n1"
        found = world.pod("web")
        assert found is not None
        assert not found.get("metadata.labels")
    assert [item.outcome for item in seen] == [PatchOutcome.REFUSED]
