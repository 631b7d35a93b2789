"""Changes to other objects that plugins ask for in PreBind and PostFilter, and that the host makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from berth_sdk.cycle_state import CycleState
from berth_sdk.kube_object import ObjectRef
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.results import (
    NodeRejections,
    ObjectPatch,
    PatchAction,
    PatchOutcome,
    PatchResult,
    PostFilterResult,
    PreBindResult,
)
from berth_sdk.status import SUCCESS, Status
from support.hosts import World, node, pod

SERVICES = "services"
WEB = ObjectRef(namespace="default", name="web")
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"selector": {"app": "web"}},
}


def change(ref: ObjectRef = WEB, action: PatchAction = PatchAction.MERGE, **body: Any) -> ObjectPatch:
    return ObjectPatch(resource=SERVICES, ref=ref, merge_patch=body, action=action)


def pre_binding(*rounds: ObjectPatch) -> tuple[type, list[PatchResult]]:
    """Return a plugin with one patch per round of PreBind, and the list of the outcomes."""
    seen: list[PatchResult] = []

    class Binds:
        needs = (Need.nodes(), Need.objects(SERVICES))

        def pre_bind(
            self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
        ) -> PreBindResult | Status:
            seen.extend(patched)
            return PreBindResult(SUCCESS, rounds[len(seen) : len(seen) + 1])

    return Binds, seen


async def test_created_object_gets_its_generated_name_from_the_server() -> None:
    begun = ObjectRef(namespace="default", name="web-")
    plugin, seen = pre_binding(change(begun, PatchAction.CREATE, spec={"selector": {"app": "web"}}))
    async with World([node("n1"), pod("web")], [plugin]) as world:
        await world.settle()
        assert world.node_of("web") == "n1"
        (made,) = seen
        assert made.outcome is PatchOutcome.APPLIED
        assert made.ref.name.startswith("web-")
        assert len(made.ref.name) > len("web-")
        found = world.server.get(SERVICES, made.ref)
        assert found is not None
        assert (found.kind, found.get("spec.selector")) == ("Service", {"app": "web"})


async def test_creation_under_an_existing_name_is_a_conflict_with_the_existing_object() -> None:
    plugin, seen = pre_binding(change(action=PatchAction.CREATE, spec={}))
    async with World([SERVICE, node("n1"), pod("web")], [plugin]) as world:
        await world.settle()
    (result,) = seen
    assert result.outcome is PatchOutcome.CONFLICT
    assert result.object is not None
    assert result.object.get("spec.selector") == {"app": "web"}


async def test_second_deletion_of_an_object_has_the_outcome_missing() -> None:
    gone = change(action=PatchAction.DELETE)
    plugin, seen = pre_binding(gone, gone)
    async with World([SERVICE, node("n1"), pod("web")], [plugin]) as world:
        await world.settle()
        assert world.server.get(SERVICES, WEB) is None
    assert [result.outcome for result in seen] == [PatchOutcome.APPLIED, PatchOutcome.NOT_FOUND]


class Frees:
    """Rejects every node until the service has another selector, and changes it when nothing is left."""

    needs = (Need.nodes(), Need.objects(SERVICES))
    ref = WEB

    def __init__(self, args: Any, handle: Any) -> None:
        self._services = handle

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: Any) -> Status:
        service = self._services.objects(SERVICES).get("web", "default")
        free = service is not None and service.get("spec.selector") == {"app": "free"}
        return SUCCESS if free else Status.unschedulable("in use")

    def post_filter(self, state: CycleState, pod: Pod, rejections: NodeRejections) -> PostFilterResult:
        patch = change(self.ref, spec={"selector": {"app": "free"}})
        return PostFilterResult(Status.unschedulable("freed"), patches=(patch,))


class FreesAnother(Frees):
    ref = ObjectRef(namespace="default", name="missing")


@pytest.mark.parametrize(
    ("plugin", "node_name", "selector"),
    [(Frees, "n1", {"app": "free"}), (FreesAnother, "", {"app": "web"})],
)
async def test_post_filter_changes_the_objects_in_the_way(
    plugin: type, node_name: str, selector: dict[str, str]
) -> None:
    async with World([SERVICE, node("n1"), pod("web")], [plugin]) as world:
        await world.settle()
        found = world.server.get(SERVICES, WEB)
        assert found is not None
        assert found.get("spec.selector") == selector
        notes = [event.note for event in world.server.events.recent]
        if not node_name:
            assert any("FreesAnother: patch of default/missing: " in note for note in notes)
        # The change of the service is an event, and the pod is tried again.
        assert world.node_of("web") == node_name
