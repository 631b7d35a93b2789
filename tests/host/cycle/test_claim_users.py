"""Pods of undone bindings leave their claims: which, and what stays."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.cycle.claim_users import ClaimUsers
from berth_host.errors.cluster import ForbiddenError
from berth_host.model.clock import ManualClock
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.tables import ObjectStore
from berth_sim.cluster.cluster import MemoryCluster
from structlog.testing import capture_logs
from support.device_objects import claim, pod_with

CLAIMS = "resource.k8s.io/resourceclaims"
REF = ObjectRef(namespace="default", name="a")
GROUP = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-g"}


def user(name: str) -> dict[str, Any]:
    return {"resource": "pods", "name": name, "uid": f"uid-{name}"}


class Held:
    """A claim with users in a cluster, of which the watch shows nothing yet."""

    def __init__(self, *users: dict[str, Any], allocated: bool = True) -> None:
        self.cluster = MemoryCluster(ManualClock(0.0))
        held = claim("a", allocated=["n1/d0"] if allocated else [])
        held.setdefault("status", {})["reservedFor"] = list(users)
        self.cluster.server.create(held, restore=True)
        self.store = ObjectStore()
        self.users = ClaimUsers(self.cluster, self.store)
        made = pod_with("a", name="web")
        made["metadata"]["uid"] = "uid-web"
        self.pod = Pod.from_object(made)

    def show(self) -> None:
        found = self.found()
        self.store.put(found.ref, found, 1)

    def found(self) -> KubeObject:
        found = self.cluster.server.get(CLAIMS, REF)
        assert found is not None
        return found

    def left(self) -> list[str]:
        return [one["name"] for one in self.found().get("status.reservedFor") or []]


async def test_pod_leaves_and_other_users_stay() -> None:
    held = Held(user("other"), user("web"), GROUP)
    await held.users.take_out(held.pod, may_be_written=True)
    assert held.left() == ["other", "g"]
    assert held.found().get("status.allocation") is not None


async def test_before_prebind_only_what_the_watch_shows_counts() -> None:
    held = Held(user("web"))
    await held.users.take_out(held.pod, may_be_written=False)
    assert held.left() == ["web"]
    held.show()
    await held.users.take_out(held.pod, may_be_written=False)
    assert held.left() == []


@pytest.mark.parametrize("users", [[], [user("other")], [GROUP]])
async def test_nothing_is_written_where_the_pod_is_no_user(users: list[dict[str, Any]]) -> None:
    held = Held(*users)
    before = held.found().ref.resource_version
    await held.users.take_out(held.pod, may_be_written=True)
    assert held.found().ref.resource_version == before


async def test_a_refused_write_is_logged_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: object, **__: object) -> KubeObject:
        raise ForbiddenError(CLAIMS, REF.key, "no right to patch")

    held = Held(user("web"))
    monkeypatch.setattr(held.cluster, "patch", refused)
    with capture_logs() as lines:
        await held.users.take_out(held.pod, may_be_written=True)
    (line,) = [one for one in lines if one["event"] == "claim.user_stays"]
    assert (line["pod"], line["claim"]) == ("default/web", "default/a")


def made(name: str, owner: str = "uid-web", **metadata: Any) -> dict[str, Any]:
    """Return a claim as PreBind makes it for the extended resources of a pod."""
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": owner, "controller": True}
    return claim(
        name,
        metadata={
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "finalizers": ["resource.kubernetes.io/delete-protection"],
            "ownerReferences": [reference],
            **metadata,
        },
    )


@pytest.mark.parametrize(
    ("content", "stays"),
    [
        (made("x"), False),
        (made("x", finalizers=[]), False),
        (made("x", owner="uid-other"), True),
        (made("x", annotations={}), True),
    ],
)
async def test_claim_of_the_pods_extended_resources_is_deleted_and_no_other_one(
    content: dict[str, Any], stays: bool
) -> None:
    held = Held(user("web"))
    ref = held.cluster.server.create(content, restore=True).ref
    written = [("persistentvolumes", ref), (CLAIMS, ref), (CLAIMS, held.found().ref)]
    await held.users.take_out(held.pod, may_be_written=True, written=written)
    assert (held.cluster.server.get(CLAIMS, ref) is not None) == stays
    assert held.left() == []
    # It may be gone already.
    await held.users.take_out(held.pod, may_be_written=True, written=written)


async def test_claim_that_cannot_be_deleted_is_logged_and_other_claims_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refused(*_: object, **__: object) -> None:
        raise ForbiddenError(CLAIMS, "default/x", "no right to delete")

    held = Held(user("web"))
    ref = held.cluster.server.create(made("x"), restore=True).ref
    monkeypatch.setattr(held.cluster, "delete", refused)
    with capture_logs() as lines:
        await held.users.take_out(held.pod, may_be_written=True, written=[(CLAIMS, ref)])
    (line,) = [one for one in lines if one["event"] == "claim.stays"]
    assert (line["pod"], line["claim"]) == ("default/web", "default/x")
    assert held.left() == []
