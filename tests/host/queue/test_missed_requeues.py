"""Single changes that let a rejected pod in: those that kube-scheduler 1.36 misses, and guards.

Each is tried in process and served, and `MISSED` with a host that emulates 1.36 as well. See
`test_requeued_pods`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest
from support.requeue_objects import (
    DEVICE_CLASSES,
    TEAM,
    Json,
    asking,
    attachment,
    away,
    claim,
    claim_of_devices,
    claimed,
    controller,
    csi_node,
    disk,
    ending,
    lingering,
    mounting,
    namespace,
    near,
    node,
    on,
    owned_by,
    running_with,
    service,
    slice_of,
    spread,
    storage,
    term,
    tracking,
    volume,
    waiter,
)
from support.requeue_situations import (
    AFFINITY,
    BINDING,
    CORDONS,
    DEFAULT_SPREAD,
    DEVICES,
    FIT,
    GATES,
    IGNORING,
    LIMITS,
    MADE_FOR_IT,
    NODE_AFFINITY,
    RESTRICTIONS,
    SPREAD,
    TAINTS,
    WAITER,
    Key,
    Situations,
    Step,
    by_key,
    key_of,
    outcome,
)
from support.served import default_plugin_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with default_plugin_server(tmp_path_factory.mktemp("served")) as endpoint:
        yield endpoint


@dataclass(frozen=True, slots=True)
class Missed:
    """One change, and the cluster before it."""

    situations: Situations
    waiting: Json
    before: Mapping[Key, Json]
    step: Step


def missed(situations: Situations, waiting: Json, change: Step, **before: Sequence[Json]) -> Missed:
    found = {key: items[0] for key, items in by_key(**before).items()}
    old = waiting if change.key == WAITER else found.get(change.key)
    return Missed(situations, waiting, found, Step(change.key, old, change.after))


def gone(resource: str, item: Json) -> Step:
    return Step(key_of(resource, item), None, None)


def comes(resource: str, item: Json) -> Step:
    return Step(key_of(resource, item), None, item)


def _own(situations: Situations, number: int) -> tuple[Json, Step]:
    """Return an update of the waiting pod itself."""
    old, new = situations.updates[number]
    return old, Step(WAITER, old, new)


LISTENER = waiter(labels={"app": "web"})
BLOCKER = on("n1", "blocker", labels={"app": "db"})
ANGRY = on("n1", "angry", labels={"app": "x"}, affinity=away(term(app="web"), term("deck", app="y")))
STRANGER = on("n1", "stranger", namespace="other", labels={"app": "db"})
SHIP = node("n1", {"zone": "a"})
BLUE, RED = namespace("other", team="blue"), namespace("other", team="red")
TEAM_AWAY = waiter(affinity=away(term(namespaces=TEAM, app="db")))
TEAM_NEAR = waiter(affinity=near(term(namespaces=TEAM, app="db")))
DELAYED = {"provisioner": "csi.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
PLAIN = waiter(labels={"app": "web", "tier": "x"})
LONELY = waiter(labels={"app": "web"}, topologySpreadConstraints=[spread(minDomains=2)])
LAST = lingering(on("n1", "last", labels={"app": "web"}))
FRONT = service("front", app="web")
_ATTACHMENTS = "storage.k8s.io/volumeattachments"
MISSED = {
    "one of two terms": missed(
        AFFINITY,
        waiter(affinity=away(term(app="db"), term(app="loud"))),
        gone("pods", BLOCKER),
        nodes=[SHIP],
        pods=[BLOCKER],
    ),
    "one of two terms of a pod that runs": missed(
        AFFINITY, LISTENER, gone("pods", ANGRY), nodes=[SHIP], pods=[ANGRY]
    ),
    "a new node beside one with such a pod": missed(
        AFFINITY, LISTENER, comes("nodes", node("n2", {"zone": "b"})), nodes=[SHIP], pods=[ANGRY]
    ),
    "a node moves away from such a pod": missed(
        AFFINITY,
        LISTENER,
        comes("nodes", node("n2", {"zone": "b"})),
        nodes=[SHIP, node("n2", {"zone": "a"})],
        pods=[ANGRY],
    ),
    "a node goes with such a pod": missed(
        AFFINITY, LISTENER, gone("nodes", SHIP), nodes=[SHIP, node("n2", {"zone": "a"})], pods=[ANGRY]
    ),
    "the last pod of the group goes": missed(
        AFFINITY,
        waiter(labels={"app": "db"}, affinity=near(term("deck", app="db"), term(app="db"))),
        gone("pods", BLOCKER),
        nodes=[node("n1", {"deck": "one"}), node("n2", {"deck": "two", "zone": "b"})],
        pods=[BLOCKER],
    ),
    "a namespace is relabelled, anti-affinity": missed(
        AFFINITY, TEAM_AWAY, comes("namespaces", RED), nodes=[SHIP], namespaces=[BLUE], pods=[STRANGER]
    ),
    "a namespace is relabelled, affinity": missed(
        AFFINITY, TEAM_NEAR, comes("namespaces", BLUE), nodes=[SHIP], namespaces=[RED], pods=[STRANGER]
    ),
    "the pod's namespace is relabelled": missed(
        AFFINITY,
        LISTENER,
        comes("namespaces", namespace("default")),
        nodes=[SHIP],
        namespaces=[namespace("default", team="blue")],
        pods=[on("n1", "angry", affinity=away(term(namespaces=TEAM, app="web")))],
    ),
    "a pod comes to a selected namespace": missed(
        AFFINITY, TEAM_NEAR, comes("pods", STRANGER), nodes=[SHIP], namespaces=[BLUE]
    ),
    "an empty domain leaves the pod's selection": missed(
        SPREAD,
        waiter(
            labels={"app": "web"},
            topologySpreadConstraints=[
                spread(),
                spread(topologyKey="deck", labelSelector={"matchLabels": {"app": "noise"}}),
            ],
            nodeSelector={"disk": "ssd"},
        ),
        comes("nodes", node("n2", {"zone": "b", "deck": "two"})),
        nodes=[
            node("n1", {"zone": "a", "deck": "one", "disk": "ssd"}),
            node("n2", {"zone": "b", "deck": "two", "disk": "ssd"}),
        ],
        pods=[
            on("n1", "first", labels={"app": "web"}),
            on("n2", "second", labels={"app": "noise"}),
            on("n2", "third", labels={"app": "noise"}),
        ],
    ),
    "a node joins the enforced affinity": missed(
        NODE_AFFINITY, waiter(), comes("nodes", node("n1", {"deck": "one"})), nodes=[node("n1")]
    ),
    "a node with ignored resources": missed(
        IGNORING,
        asking(waiter(), cpu="3", example_com__gpu="1"),
        comes("nodes", node("n2")),
        nodes=[node("n1", allocatable={"cpu": "1"})],
    ),
    "a node whose resource devices stand for": missed(
        FIT,
        asking(waiter(), cpu="3", example_com__gpu="1"),
        comes("nodes", node("n2")),
        nodes=[node("n1", allocatable={"cpu": "1"})],
        resource_k8s_io__deviceclasses=DEVICE_CLASSES[:1],
    ),
    "a disk of another namespace": missed(
        RESTRICTIONS,
        mounting(waiter(), disk()),
        gone("pods", on("n1", "first", namespace="other")),
        nodes=[node("n1")],
        pods=[mounting(on("n1", "first", namespace="other"), disk())],
    ),
    "a node goes with the pod that has the claim": missed(
        RESTRICTIONS,
        mounting(waiter(), claimed()),
        gone("nodes", node("n1")),
        nodes=[node("n1"), node("n2")],
        pods=[mounting(on("n1", "first"), claimed())],
        persistentvolumeclaims=[claim("c1", "pv-1", mode="ReadWriteOncePod")],
    ),
    **{
        f"a limit of volumes no longer holds: {name}": missed(
            LIMITS,
            mounting(waiter(), claimed()),
            change,
            nodes=[node("n1")],
            pods=[mounting(on("n1", "first"), claimed("c2"))],
            persistentvolumeclaims=[claim("c1", "pv-1"), claim("c2", "pv-2")],
            persistentvolumes=[volume("pv-1"), volume("pv-2")],
            storage_k8s_io__csinodes=[csi_node("n1", 1)],
        )
        for name, change in {
            "unlimited": comes("storage.k8s.io/csinodes", csi_node("n1", None)),
            "deleted": gone("storage.k8s.io/csinodes", csi_node("n1", 1)),
            "a new node": comes("nodes", node("n2")),
            "the volume is there": comes("pods", mounting(on("n1", "second"), claimed())),
        }.items()
    },
    **{
        f"a driver no longer counts its room: {name}": missed(
            BINDING,
            mounting(waiter(), claimed()),
            change,
            nodes=[node("n1", {"zone": "a"})],
            persistentvolumeclaims=[claim("c1")],
            storage_k8s_io__storageclasses=[storage("StorageClass", "slow", **DELAYED)],
            storage_k8s_io__csidrivers=[tracking("csi.example.com", tracks=True)],
        )
        for name, change in {
            "updated": comes("storage.k8s.io/csidrivers", tracking("csi.example.com", tracks=False)),
            "deleted": gone("storage.k8s.io/csidrivers", tracking("csi.example.com", tracks=True)),
        }.items()
    },
    "a claim goes with its devices": missed(
        DEVICES,
        DEVICES.waiters[0],
        gone("resource.k8s.io/resourceclaims", claim_of_devices("theirs")),
        nodes=[node("n1")],
        resource_k8s_io__resourceclaims=[
            claim_of_devices("mine"),
            claim_of_devices("theirs", allocated="d0"),
        ],
        resource_k8s_io__resourceslices=[slice_of("s1", "d0")],
        resource_k8s_io__deviceclasses=DEVICE_CLASSES[1:],
    ),
    "a counted pod begins to terminate": missed(
        SPREAD,
        LONELY,
        Step(key_of("pods", LAST), LAST, ending(LAST)),
        nodes=[SHIP],
        pods=[LAST],
    ),
    **{
        f"the default selector no longer selects peers: {name}": missed(
            DEFAULT_SPREAD,
            waiting,
            change,
            nodes=[SHIP],
            pods=[LAST],
            **{change.key[0].replace("/", "__"): old},
        )
        for name, waiting, change, old in (
            ("a service is deleted", PLAIN, gone("services", FRONT), [FRONT]),
            ("a service selects others", PLAIN, comes("services", service("front", app="db")), [FRONT]),
            *(
                (kind, owned_by(kind, "one", PLAIN), gone(resource, one), [one])
                for kind, resource in (
                    ("ReplicaSet", "apps/replicasets"),
                    ("StatefulSet", "apps/statefulsets"),
                    ("ReplicationController", "replicationcontrollers"),
                )
                for one in (controller(kind, "one", app="web"),)
            ),
        )
    },
    "a second service selects fewer peers": missed(
        DEFAULT_SPREAD,
        PLAIN,
        comes("services", service("back", tier="x")),
        nodes=[SHIP],
        pods=[LAST],
        services=[FRONT],
    ),
    "another owner": missed(
        DEFAULT_SPREAD,
        owned_by("ReplicaSet", "one", PLAIN),
        comes("pods", owned_by("ReplicaSet", "two", PLAIN)),
        nodes=[SHIP],
        pods=[LAST],
        apps__replicasets=[controller("ReplicaSet", "one", app="web")],
    ),
}

CAUGHT = {
    "a gate is removed": missed(GATES, *_own(GATES, 0), nodes=[SHIP]),
    "the pod tolerates more, a taint": missed(
        TAINTS, *_own(TAINTS, 0), nodes=[node("n1", taints=[{"key": "t", "effect": "NoSchedule"}])]
    ),
    "the pod tolerates more, a cordon": missed(
        CORDONS, *_own(CORDONS, 0), nodes=[node("n1", unschedulable=True)]
    ),
    "the pod asks for less": missed(FIT, *_own(FIT, 0), nodes=[node("n1", allocatable={"cpu": "2"})]),
    "the pod's own claim is made": missed(
        DEVICES,
        *_own(DEVICES, 0),
        nodes=[node("n1")],
        resource_k8s_io__resourceclaims=[MADE_FOR_IT],
        resource_k8s_io__resourceslices=[slice_of("s1", "d0")],
        resource_k8s_io__deviceclasses=DEVICE_CLASSES[1:],
    ),
    "the pod has other labels": missed(
        AFFINITY,
        waiter(labels={"app": "web"}),
        comes("pods", waiter(labels={"app": "x"})),
        nodes=[SHIP],
        pods=[on("n1", "angry", labels={"app": "y"}, affinity=away(term(app="web")))],
    ),
    "a running pod is resized": missed(
        FIT,
        asking(waiter(), cpu="3"),
        comes("pods", asking(on("n1", "big"), cpu="1")),
        nodes=[node("n1")],
        pods=[asking(on("n1", "big"), cpu="2")],
    ),
    "a running pod has finished": missed(
        FIT,
        asking(waiter(), cpu="3"),
        comes("pods", {**asking(on("n1", "big"), cpu="2"), "status": {"phase": "Succeeded"}}),
        nodes=[node("n1")],
        pods=[asking(on("n1", "big"), cpu="2")],
    ),
    "the kubelet has resized a running pod": missed(
        FIT,
        asking(waiter(), cpu="3"),
        comes("pods", running_with(asking(on("n1", "big"), cpu="1"), "1")),
        nodes=[node("n1")],
        pods=[running_with(asking(on("n1", "big"), cpu="1"), "3")],
    ),
    "the volume of the pod is attached to a node that is full": missed(
        LIMITS,
        mounting(waiter(), claimed()),
        comes(_ATTACHMENTS, attachment("ours", "pv-1", "n1")),
        nodes=[node("n1")],
        pods=[mounting(on("n1", "first"), claimed("c2"))],
        persistentvolumeclaims=[claim("c1", "pv-1"), claim("c2", "pv-2")],
        persistentvolumes=[volume("pv-1"), volume("pv-2")],
        storage_k8s_io__csinodes=[csi_node("n1", 1)],
    ),
    "an attachment moves to a node that is full": missed(
        LIMITS,
        mounting(waiter(), claimed()),
        comes(_ATTACHMENTS, attachment("ours", "pv-1", "n1")),
        nodes=[node("n1")],
        pods=[mounting(on("n1", "first"), claimed("c2"))],
        persistentvolumeclaims=[claim("c1", "pv-1"), claim("c2", "pv-2")],
        persistentvolumes=[volume("pv-1"), volume("pv-2")],
        storage_k8s_io__csinodes=[csi_node("n1", 1)],
        storage_k8s_io__volumeattachments=[attachment("ours", "pv-1", "n2")],
    ),
    "another volume is attached no longer": missed(
        LIMITS,
        mounting(waiter(), claimed()),
        gone(_ATTACHMENTS, attachment("theirs", "pv-2", "n1")),
        nodes=[node("n1")],
        persistentvolumeclaims=[claim("c1", "pv-1")],
        persistentvolumes=[volume("pv-1"), volume("pv-2")],
        storage_k8s_io__csinodes=[csi_node("n1", 1)],
        storage_k8s_io__volumeattachments=[attachment("theirs", "pv-2", "n1")],
    ),
}
"""Changes that kube-scheduler 1.36 does not miss, or that do not help the pod there: guards."""


@pytest.fixture(params=["in_process", "served"])
def endpoint(request: pytest.FixtureRequest) -> str:
    """Where the plugin is; empty: in process."""
    return "" if request.param == "in_process" else str(request.getfixturevalue("server"))


@pytest.mark.parametrize("name", [*MISSED, *CAUGHT])
async def test_a_change_that_lets_the_pod_in_requeues_it(name: str, endpoint: str) -> None:
    case = {**MISSED, **CAUGHT}[name]
    seen = await outcome(case.situations, case.waiting, case.before, case.step, endpoint)
    assert seen == (False, True, True)


@pytest.mark.parametrize("name", MISSED)
async def test_emulation_of_1_36_misses_the_change_and_the_pod_waits(name: str) -> None:
    case = MISSED[name]
    seen = await outcome(case.situations, case.waiting, case.before, case.step, emulated_version="1.36")
    assert seen == (False, False, True)
