"""PodTopologySpread: what requeues a rejected pod, bad input, arguments and gates. What it decides is held
to plain rules in `test_spread_rules`.
"""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.config.loading import default_configuration
from berth_plugins.pod_topology_spread.filter import REASON_LABEL, REASON_SKEW
from berth_plugins.pod_topology_spread.plans import Plans
from berth_plugins.pod_topology_spread.plugin import PodTopologySpread
from berth_sdk.errors import ObjectError, PluginArgsError, SelectorError
from berth_sdk.events import ClusterEvent
from berth_sdk.extension_points import NoConcern
from berth_sdk.kube_object import KubeObject
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.slices import at_once
from berth_sdk.status import SUCCESS, Code
from berth_sdk.tables import ObjectStore
from berth_sdk.testing import make_node, make_pod, make_table
from berth_sdk.testing.builders import pod_object
from berth_sdk.testing.handle import RecordingHandle
from support.asking import IN_PROCESS, NO_HANDLE, Ask, Plug
from support.emulated_version import args_of

Json = dict[str, Any]
PLUG = Plug(PodTopologySpread)
ZONE = "topology.kubernetes.io/zone"
WEB = {"matchLabels": {"app": "web"}}


def constraint(key: str = ZONE, action: str = "DoNotSchedule", **fields: Any) -> Json:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": action,
        "labelSelector": WEB,
        **fields,
    }


def web(*constraints: Json, **fields: Any) -> Pod:
    spec = {"topologySpreadConstraints": list(constraints)} if constraints else {}
    fields = {"uid": "uid-web", "labels": {"app": "web"}, **fields}
    return make_pod("web", spec={**spec, **fields.pop("spec", {})}, **fields)


def peer(name: str, node: str = "", **fields: Any) -> Pod:
    return make_pod(name, node=node, **{"uid": f"uid-{name}", "labels": {"app": "web"}, **fields})


NODES = [
    make_node("a1", labels={ZONE: "a"}),
    make_node("a2", labels={ZONE: "a"}),
    make_node("b1", labels={ZONE: "b"}),
    make_node("x1"),
]
TABLE = make_table(NODES, [peer("p1", "a1")])


async def test_too_full_a_domain_and_a_missing_label_have_different_reasons(ask: Ask) -> None:
    assert await ask.filter(PLUG, web(constraint()), TABLE) == [
        REASON_SKEW,
        REASON_SKEW,
        SUCCESS,
        REASON_LABEL,
    ]
    assert REASON_SKEW.code is Code.UNSCHEDULABLE
    assert REASON_LABEL.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE


@pytest.mark.parametrize(("version", "counts"), [("", True), ("1.37", False), ("1.36", False)])
async def test_empty_selector_counts_every_pod_of_the_namespace(ask: Ask, version: str, counts: bool) -> None:
    """kubernetes 141340: upstream counts no pod for an empty selector, so the constraint has no effect."""
    plug = Plug(PodTopologySpread, args=args_of("PodTopologySpread", version))
    others = [peer("p1", "a1", labels={}), peer("elsewhere", "b1", namespace="other")]
    table = make_table(NODES, others)
    in_a = REASON_SKEW if counts else SUCCESS
    got = await ask.filter(plug, web(constraint(labelSelector={})), table)
    assert got == [in_a, in_a, SUCCESS, REASON_LABEL]
    scores = await ask.score(
        plug, web(constraint(action="ScheduleAnyway", labelSelector={})), table.take([0, 2])
    )
    assert isinstance(scores, list)
    assert (scores[0] != scores[1]) is counts


@pytest.mark.parametrize("version", ["", "1.37", "1.36"])
async def test_missing_selector_counts_no_pod(ask: Ask, version: str) -> None:
    plug = Plug(PodTopologySpread, args=args_of("PodTopologySpread", version))
    got = await ask.filter(plug, web(constraint(labelSelector=None)), TABLE)
    assert got == [SUCCESS, SUCCESS, SUCCESS, REASON_LABEL]


async def test_what_if_removes_a_pod_and_adds_another(ask: Ask) -> None:
    scenarios = Scenarios(
        TABLE,
        [
            Scenario("a1", removed=(TABLE.pods.pod(0),)),
            Scenario("a2"),
            Scenario("b1", added=(peer("n1"), peer("n2"))),
            Scenario("b1", added=(peer("n1", namespace="other"),)),
        ],
    )
    assert await ask.scenarios(PLUG, web(constraint()), scenarios) == [
        SUCCESS,
        REASON_SKEW,
        REASON_SKEW,
        SUCCESS,
    ]


async def test_pods_of_a_service_are_spread_by_default(ask: Ask) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}},
    }
    served = Plug(PodTopologySpread, objects={"services": [service]})
    scores = await ask.score(served, web(), TABLE)
    assert isinstance(scores, list)
    # x1 has no zone, so nothing is added for one; a1 has the only peer.
    assert scores[0] > scores[1] > scores[2] > scores[3]
    assert (await ask.score(PLUG, web(), TABLE)).code is Code.SKIP  # type: ignore[union-attr]  # a Status


def test_pods_of_one_spec_share_plans_until_labels_controller_or_services_differ() -> None:
    services, sets = ObjectStore(), ObjectStore()
    stores = {"services": services, "apps/replicasets": sets}
    stores |= {"replicationcontrollers": ObjectStore(), "apps/statefulsets": ObjectStore()}
    plugin = PodTopologySpread({}, RecordingHandle(lambda: TABLE, stores))

    def put(store: ObjectStore, kind: str, name: str, generation: int, selector: Json) -> None:
        item: Json = {"kind": kind, "metadata": {"name": name, "namespace": "default"}}
        item |= {"apiVersion": "v1", "spec": {"selector": selector}}
        store.put(KubeObject.of(item).ref, KubeObject.of(item), generation)

    def pod(name: str, app: str = "web", owner: str = "", namespace: str = "default") -> Pod:
        made = pod_object(name, cpu="1", labels={"app": app}, namespace=namespace)
        if owner:
            of = {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": owner,
                "uid": "u",
                "controller": True,
            }
            made["metadata"]["ownerReferences"] = [of]
        return Pod.from_object(made)

    def shares(one: Pod, other: Pod) -> bool:
        return plugin.sign(one, TABLE) == plugin.sign(other, TABLE)

    assert plugin.sign(pod("a"), TABLE) is plugin.sign(pod("b"), TABLE) is NoConcern.CYCLE
    put(services, "Service", "web", 1, {"app": "web"})
    signed = plugin.sign(pod("a"), TABLE)
    assert signed is not NoConcern.CYCLE
    # Asked twice, as the second pod has the plans of the first one.
    assert signed == plugin.sign(pod("b"), TABLE) == plugin.sign(pod("b"), TABLE)
    assert not shares(pod("b"), pod("c", app="db"))
    assert not shares(pod("b"), pod("c", namespace="other"))
    put(sets, "ReplicaSet", "web-1", 2, {"matchLabels": {"tier": "front"}})
    assert not shares(pod("b"), pod("c", owner="web-1"))
    assert plugin.sign(pod("b"), TABLE) == signed
    put(services, "Service", "web", 3, {"app": "db"})
    assert plugin.sign(pod("b"), TABLE) is NoConcern.CYCLE


# --- bad input -------------------------------------------------------------------------------------

NEAR = {"matchExpressions": [{"key": "app", "operator": "Near"}]}


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        pytest.param(constraint(labelSelector=NEAR), "operator: Unsupported value", id="operator"),
        pytest.param(constraint(maxSkew="1"), "maxSkew: Invalid value: '1'", id="skew"),
        pytest.param(constraint(minDomains=1.5), "minDomains: Invalid value: 1.5", id="domains"),
    ],
)
async def test_unreadable_constraint_is_an_error_of_the_pod(ask: Ask, broken: Json, problem: str) -> None:
    status = (await ask.pre_filter(PLUG, web(broken), TABLE)).status
    assert status.code is Code.ERROR
    assert problem in status.message
    soft = await ask.score(PLUG, web({**broken, "whenUnsatisfiable": "ScheduleAnyway"}), TABLE)
    assert not isinstance(soft, list)
    assert soft.code is Code.ERROR
    assert problem in soft.message


async def test_unknown_action_of_a_constraint_is_neither_a_constraint_nor_a_default(ask: Ask) -> None:
    odd = web(constraint(action="Perhaps", labelSelector=NEAR))
    assert (await ask.pre_filter(PLUG, odd, TABLE)).status.code is Code.SKIP


async def test_without_a_domain_and_min_domains_there_is_no_limit(ask: Ask) -> None:
    nowhere = {"nodeSelector": {"nowhere": "at all"}}
    assert await ask.filter(PLUG, web(constraint(minDomains=0), spec=nowhere), TABLE) == [
        SUCCESS,
        SUCCESS,
        SUCCESS,
        REASON_LABEL,
    ]


async def test_summary_without_its_object_is_an_error_not_a_pass() -> None:
    with pytest.raises(ObjectError, match=r"Need\.whole_pod"):
        await IN_PROCESS.filter(PLUG, Pod(name="web"), TABLE)


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (
            {"defaultingType": "Some"},
            'defaultingType: Unsupported value: "Some": supported values: "System", "List"',
        ),
        ({"defaultConstraints": [constraint()]}, "when .defaultConstraints are not empty"),
        (
            {"defaultingType": "List", "defaultConstraints": [constraint()]},
            "defaultConstraints[0].labelSelector: Forbidden: constraint must not define a selector, as they"
            " deduced for each pod",
        ),
        (
            {"defaultingType": "List", "defaultConstraints": [{"maxSkew": 0}]},
            "[defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf),"
            " defaultConstraints[0].topologyKey: Required value: can not be empty,"
            " defaultConstraints[0].whenUnsatisfiable: Required value: can not be empty]",
        ),
        (
            {
                "defaultingType": "List",
                "defaultConstraints": [
                    {"maxSkew": 1, "topologyKey": "a b", "whenUnsatisfiable": "Perhaps"},
                    {"maxSkew": 1, "topologyKey": "a b", "whenUnsatisfiable": "Perhaps"},
                ],
            },
            "defaultConstraints[1]: Duplicate value",
        ),
        ({"defaultingType": "List", "defaultConstraints": "zone"}, "defaultConstraints: Invalid value"),
    ],
)
def test_invalid_arguments_are_refused(args: Json, problem: str) -> None:
    with pytest.raises(PluginArgsError) as caught:
        PodTopologySpread(args, NO_HANDLE)
    assert problem in str(caught.value)


# --- gates -----------------------------------------------------------------------------------------


async def test_gate_switches_match_label_keys_off(ask: Ask) -> None:
    table = make_table(
        [make_node("a1", labels={ZONE: "a"}), make_node("b1", labels={ZONE: "b"})],
        [peer("p1", "a1", labels={"app": "web", "v": "1"})],
    )
    by_version = web(constraint(matchLabelKeys=["v"]), labels={"app": "web", "v": "2"})
    assert await ask.filter(PLUG, by_version, table) == [SUCCESS, SUCCESS]
    gates = {
        "MatchLabelKeysInPodTopologySpread": False,
        "MatchLabelKeysInPodTopologySpreadSelectorMerge": False,
    }
    told = default_configuration(feature_gates=gates).profiles[0].plugin_args["PodTopologySpread"]
    assert isinstance(told, dict)
    assert told["featureGates"] == {"MatchLabelKeysInPodTopologySpread": False}
    off = Plug(PodTopologySpread, told)
    assert await ask.filter(off, by_version, table) == [REASON_SKEW, SUCCESS]


# --- what requeues a rejected pod -----------------------------------------------------------------------

HONORS = constraint(nodeTaintsPolicy="Honor")


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param(None, peer("p", "a1"), True, id="peer came"),
        pytest.param(peer("p", "a1"), None, True, id="peer left"),
        pytest.param(None, peer("p", "a1", labels={}), False, id="other pod came"),
        pytest.param(peer("p"), None, False, id="pod that was nowhere left"),
        pytest.param(peer("p", nominated="a1"), None, True, id="nominated peer left"),
        pytest.param(peer("p", "a1", namespace="other"), None, False, id="of another namespace"),
        pytest.param(peer("p", "a1"), peer("p", "a1", labels={}), True, id="peer no more"),
        pytest.param(
            peer("p", "a1"), peer("p", "a1", labels={"app": "web", "x": ""}), False, id="peer still"
        ),
        pytest.param(peer("p", "a1"), peer("p", "a1", priority=3), False, id="same labels"),
    ],
)
async def test_hint_for_changes_of_pods(ask: Ask, old: Pod | None, new: Pod | None, want: bool) -> None:
    event = ClusterEvent(resource="Pod", action="update.labels", old=old, new=new)
    assert await ask.hint(PLUG, event, web(constraint())) is want


async def test_hint_for_the_pods_own_tolerations_where_taints_are_honored(ask: Ask) -> None:
    for one, want in ((HONORS, True), (constraint(), False)):
        event = ClusterEvent(
            resource="Pod", action="update.tolerations", old=web(one), new=web(one, tolerations=["t"])
        )
        assert await ask.hint(PLUG, event, web(one)) is want


A1 = make_node("a1", labels={ZONE: "a"})


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param(None, A1, True, id="node with the label came"),
        pytest.param(None, make_node("x1"), False, id="node without came"),
        pytest.param(A1, None, True, id="node with the label left"),
        pytest.param(make_node("x1"), None, False, id="node without left"),
        pytest.param(make_node("a1"), A1, True, id="label came"),
        pytest.param(A1, make_node("a1"), True, id="label went"),
        pytest.param(A1, make_node("a1", labels={ZONE: "b"}), True, id="another domain"),
        pytest.param(A1, make_node("a1", labels={ZONE: "a", "x": ""}), False, id="another label"),
        pytest.param(A1, make_node("a1", labels={ZONE: "a"}, taints=["t:NoSchedule"]), True, id="taints"),
        pytest.param(make_node("x1"), make_node("x1", taints=["t:NoSchedule"]), False, id="taints elsewhere"),
    ],
)
async def test_hint_for_changes_of_nodes(ask: Ask, old: Node | None, new: Node | None, want: bool) -> None:
    event = ClusterEvent(resource="Node", action="update.labels", old=old, new=new)
    assert await ask.hint(PLUG, event, web(constraint())) is want


async def test_hint_raises_for_an_unreadable_constraint() -> None:
    event = ClusterEvent(resource="Node", action="add", new=A1)
    with pytest.raises(SelectorError, match="Near"):
        await IN_PROCESS.hint(PLUG, event, web(constraint(labelSelector=NEAR)))


# --- what is kept ----------------------------------------------------------------------------------


def test_equal_pods_share_a_plan_and_plans_are_bounded() -> None:
    plans = Plans({}, NO_HANDLE, max_plans=2)
    first = at_once(plans.plan(web(constraint()), "DoNotSchedule"))
    assert at_once(plans.plan(web(constraint()), "DoNotSchedule")) is first
    for skew in (2, 3):
        at_once(plans.plan(web(constraint(maxSkew=skew)), "DoNotSchedule"))
    assert at_once(plans.plan(web(constraint()), "DoNotSchedule")) is not first
