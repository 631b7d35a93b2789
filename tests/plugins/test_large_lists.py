"""Lists of a pod at the sizes that the API admits: the work of the default plugins, counted and not timed.

Each test counts an operation whose number has to follow the size of the list, and not its square.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest
from berth_plugins.image_locality import ImageLocality
from berth_plugins.inter_pod_affinity.index import TermIndex
from berth_plugins.inter_pod_affinity.plugin import InterPodAffinity
from berth_plugins.node_affinity import NodeAffinity
from berth_plugins.node_ports import NodePorts
from berth_plugins.node_resources.fit import NodeResourcesFit
from berth_plugins.objects import tolerations
from berth_plugins.pod_topology_spread.filter import REASON_LABEL
from berth_plugins.pod_topology_spread.plugin import PodTopologySpread
from berth_plugins.taint_toleration import TaintToleration
from berth_plugins.volumes.node_volume_limits import NodeVolumeLimits
from berth_plugins.volumes.volume_binding import VolumeBinding
from berth_plugins.volumes.volume_restrictions import VolumeRestrictions
from berth_plugins.volumes.volume_zone import VolumeZone
from berth_sdk import selectors
from berth_sdk.cycle_state import CycleState
from berth_sdk.events import ClusterEvent
from berth_sdk.node import Taint
from berth_sdk.pod import Pod, Toleration
from berth_sdk.pod_affinity import PodAffinityTerm
from berth_sdk.status import SUCCESS, Code
from berth_sdk.tables import NodeTable
from berth_sdk.tables.node_columns import NodeColumns, NodeUsage
from berth_sdk.tables.used_ports import UsedPorts
from berth_sdk.testing import make_node, make_pod, make_table
from support.asking import IN_PROCESS, Plug
from support.storage import (
    CLAIMS,
    CLASSES,
    CSI_CAPACITIES,
    CSI_DRIVERS,
    CSI_NODES,
    VOLUMES,
    capacity,
    claim,
    csi,
    csi_driver,
    csi_node,
    pod_using,
    storage_class,
    volume,
)

SPREAD = Plug(PodTopologySpread)
AFFINITY = Plug(NodeAffinity)
FIT = Plug(NodeResourcesFit)
NEIGHBOURS = Plug(InterPodAffinity)
PORTS = Plug(NodePorts)
ZONE = "topology.kubernetes.io/zone"


@contextmanager
def counted(owner: type, name: str) -> Iterator[list[object]]:
    """Count the calls of a method."""
    calls: list[object] = []
    method = getattr(owner, name)

    def counting(self: object, *args: Any) -> Any:
        calls.append(args)
        return method(self, *args)

    setattr(owner, name, counting)
    try:
        yield calls
    finally:
        setattr(owner, name, method)


@contextmanager
def python_calls() -> Iterator[list[str]]:
    """Count the calls of functions that are written in Python, and the steps of generators."""
    calls: list[str] = []
    sys.setprofile(lambda frame, event, _: calls.append(frame.f_code.co_name) if event == "call" else None)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def spread(count: int, action: str, **fields: Any) -> Pod:
    constraints = [
        {
            "maxSkew": 1,
            "topologyKey": f"key-{i}",
            "whenUnsatisfiable": action,
            "labelSelector": {"matchLabels": {"app": "web"}},
            **fields,
        }
        for i in range(count)
    ]
    return make_pod(
        "web", uid="uid-web", labels={"app": "web"}, spec={"topologySpreadConstraints": constraints}
    )


def nodes(count: int, keys: int = 0) -> NodeTable:
    labels = [{f"key-{k}": f"{i}" for k in range(keys)} for i in range(count)]
    return make_table([make_node(f"n{i}", labels=own) for i, own in enumerate(labels)])


@pytest.mark.parametrize("fields", [{}, {"nodeTaintsPolicy": "Honor"}, {"nodeAffinityPolicy": "Ignore"}])
async def test_constraints_whose_labels_no_node_has_read_few_columns(fields: dict[str, str]) -> None:
    table = nodes(300)
    with counted(NodeColumns, "label") as reads:
        verdicts = await IN_PROCESS.filter(SPREAD, spread(3000, "DoNotSchedule", **fields), table)
    assert verdicts == [REASON_LABEL] * 300
    assert len(reads) < 10


async def test_soft_constraints_whose_labels_no_node_has_read_few_columns() -> None:
    with counted(NodeColumns, "label") as reads:
        assert await IN_PROCESS.score(SPREAD, spread(3000, "ScheduleAnyway"), nodes(300)) == [0] * 300
    assert len(reads) < 10


@pytest.mark.parametrize("action", ["DoNotSchedule", "ScheduleAnyway"])
async def test_one_selector_of_many_constraints_is_read_and_matched_once(
    action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[object] = []
    read = selectors.LabelSelector.read

    def counting(raw: Any, path: str) -> Any:
        reads.append(raw)
        return read(raw, path)

    monkeypatch.setattr(selectors.LabelSelector, "read", counting)
    with counted(selectors.LabelSelector, "matches") as matches:
        await (IN_PROCESS.filter if action == "DoNotSchedule" else IN_PROCESS.score)(
            SPREAD, spread(300, action), nodes(3)
        )
    assert len(reads) < 10
    assert len(matches) < 10


@pytest.mark.parametrize("action", ["DoNotSchedule", "ScheduleAnyway"])
async def test_columns_that_constraints_read_follow_their_number(action: str) -> None:
    reads = []
    for count in (40, 160):
        with counted(NodeColumns, "label") as calls:
            pod, table = spread(count, action), nodes(3, count)
            await (IN_PROCESS.filter if action == "DoNotSchedule" else IN_PROCESS.score)(SPREAD, pod, table)
        reads.append(len(calls))
    assert reads[1] < 5 * reads[0]


async def test_many_constraints_give_way_and_decide_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth_sdk.slices._do_slice", _one_batch)
    pod, table = spread(200, "DoNotSchedule"), nodes(3, 200)
    runtime, state = SPREAD.runtime(), CycleState("cycle")
    before = runtime.pre_filter(state, pod, table)
    assert isinstance(before, Awaitable)
    assert (await before).status.is_success
    passed: Any = runtime.filter(state, pod, table)
    assert passed.verdicts.to_list() == await IN_PROCESS.filter(SPREAD, pod, table)


def _one_batch(work: Any, slice_s: float, clock: Any) -> None:
    for _ in range(16):
        next(work)


@pytest.mark.parametrize("action", ["DoNotSchedule", "ScheduleAnyway"])
async def test_labels_that_a_node_has_cost_each_constraint_little(action: str) -> None:
    counts = []
    for count in (100, 1100):
        pod, table = spread(count, action), nodes(2, count)
        with python_calls() as calls, counted(NodeColumns, "label") as reads:
            await (IN_PROCESS.filter if action == "DoNotSchedule" else IN_PROCESS.score)(SPREAD, pod, table)
        counts.append(len(calls))
        assert len(reads) < 40
    assert counts[1] - counts[0] < 25 * 1000


async def test_constraints_with_a_selector_each_leave_the_kept_counts_to_others() -> None:
    own = [{"matchLabels": {"app": f"x{i}"}} for i in range(100)]
    pod = spread(100, "DoNotSchedule")
    constraints: Any = pod.object.parsed["spec"]["topologySpreadConstraints"] if pod.object else []
    for constraint, selector in zip(constraints, own, strict=True):
        constraint["labelSelector"] = selector
    running = [make_pod(f"p{i}", node=f"n{i % 2}", labels={"app": f"x{i}"}, uid=f"u{i}") for i in range(100)]
    labels = [{f"key-{k}": f"{i}" for k in range(100)} for i in range(2)]
    table = make_table([make_node(f"n{i}", labels=one) for i, one in enumerate(labels)], running)
    assert await IN_PROCESS.filter(SPREAD, pod, table) == [SUCCESS] * 2
    assert len(table.pod_counts) == 0


def test_keys_that_no_node_or_pod_has_share_one_column() -> None:
    running = make_pod("p", node="n1", labels={"app": "a"})
    table = make_table([make_node("n1", labels={"zone": "a"})], [running])
    for labelled, key in ((table, "zone"), (table.pods, "app")):
        assert labelled.label(key)[0].tolist() == [1]
        absent = [labelled.label(f"key-{i}") for i in range(100)]
        assert not any(codes.any() for codes, _ in absent)
        assert len({id(values) for _, values in absent}) == 1


def test_columns_by_label_are_bounded() -> None:
    labels = {f"key-{i}": "x" for i in range(3000)}
    columns = NodeColumns()
    columns.add(make_node("n1", labels=labels))
    pods = make_table([make_node("n1")], [make_pod("p", node="n1", labels=labels)]).pods
    for key in labels:
        assert columns.label(key)[0][0] == 1
        assert pods.label(key)[0].tolist() == [1]
    assert len(columns.labels) <= 1024
    assert pods.label("key-0")[1] is pods.label("key-0")[1]
    assert pods.label("key-2999")[1] is not pods.label("key-2999")[1]  # built at each read
    version = columns.nodes_version
    columns.begin_update()
    assert len(columns.labels) <= 512
    assert columns.nodes_version != version  # codes may differ when the columns are read again


def test_labels_without_a_column_are_looked_up_in_one_pass_over_the_nodes() -> None:
    columns = NodeColumns()
    for i in range(50):
        columns.add(make_node(f"n{i}", labels={f"key-{k}": f"{i}" for k in range(3000 if i == 7 else 1)}))
    with counted(NodeColumns, "_live_nodes") as passes:
        for k in range(3000):
            codes, values = columns.label(f"key-{k}")
            assert codes[7] == values.find("7") > 0
            assert (codes > 0).sum() == (50 if k == 0 else 1)
    assert len(passes) <= 1024 + 2
    columns.set_node(7, make_node("n7", labels={"key-2999": "8"}))
    codes, values = columns.label("key-2999")
    assert codes[7] == values.find("8") > 0
    assert not columns.label("key-2998")[0].any()


async def test_long_selector_of_a_constraint_is_read_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"matchExpressions": [{"key": f"k{i}", "operator": "DoesNotExist"} for i in range(1000)]}
    pod, table = spread(1, "DoNotSchedule", labelSelector=keys), nodes(3, 1)
    most = 0
    with counted(selectors.Requirement, "__init__") as read:

        def one_batch(work: Any, slice_s: float, clock: Any) -> None:
            nonlocal most
            read.clear()
            try:
                _one_batch(work, slice_s, clock)
            finally:
                most = max(most, len(read))

        monkeypatch.setattr("berth_sdk.slices._do_slice", one_batch)
        before: Any = SPREAD.runtime().pre_filter(CycleState("cycle"), pod, table)
        assert (await before).status.is_success
    assert 1 <= most <= 2 * 16


@pytest.mark.parametrize("effect", ["NoSchedule", "PreferNoSchedule"])
async def test_tolerations_of_many_taints_are_found_by_key(
    effect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[object] = []
    tolerates = tolerations.tolerates

    def counting(*args: Any, **options: Any) -> bool:
        judged.append(args)
        return tolerates(*args, **options)

    monkeypatch.setattr(tolerations, "tolerates", counting)
    plain = [Toleration(key=f"k{i}", operator="Equal", value="v", effect=effect) for i in range(1000)]
    anything = [Toleration(operator="Exists", effect="NoExecute")] * 1000
    pod = replace(make_pod("web"), tolerations=(*plain, *anything))
    taints = [f"k{i}=v:{effect}" for i in range(1000)]
    table = make_table(
        [make_node("n0", taints=taints), make_node("n1", taints=[*taints, f"k1000=v:{effect}"])]
    )
    plug = Plug(TaintToleration)
    if effect == "NoSchedule":
        verdicts = await IN_PROCESS.filter(plug, pod, table)
        assert [verdict.is_success for verdict in verdicts] == [True, False]
    else:
        assert await IN_PROCESS.score(plug, pod, table) == [0, 1]
    assert len(judged) <= 3 * 2002


async def test_tolerations_with_a_key_are_not_hashed_to_be_found_by_key() -> None:
    plain = [Toleration(key=f"k{i}", operator="Equal", value="v", effect="NoSchedule") for i in range(1000)]
    anything = [Toleration(operator="Exists", effect="NoExecute")] * 1000
    with counted(Toleration, "__hash__") as hashes:
        assert tolerations.any_tolerates((*plain, *anything), Taint("k999", "v", "NoSchedule"))
        assert not tolerations.any_tolerates((*plain, *anything), Taint("k999", "w", "NoSchedule"))
    assert len(hashes) <= 2 * len(anything) + 10


async def test_comparisons_parse_each_label_value_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[object] = []
    parse = selectors.parse_int64

    def parse_int64(text: str | None) -> int | None:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(selectors, "parse_int64", parse_int64)
    terms = [
        {"matchExpressions": [{"key": "key-0", "operator": "Gt", "values": [str(1000 + i)]}]}
        for i in range(500)
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod = make_pod("web", spec={"affinity": {"nodeAffinity": required}})
    verdicts = await IN_PROCESS.filter(AFFINITY, pod, nodes(200, 1))
    assert not any(verdict.is_success for verdict in verdicts)
    assert len(parsed) < 500 * 4 + 200 * 2


async def test_hint_about_a_pod_with_many_terms_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = [
        {"matchExpressions": [{"key": "disk", "operator": "In", "values": [f"d{i}"]}]} for i in range(300)
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod = make_pod("web", spec={"affinity": {"nodeAffinity": required}})
    monkeypatch.setattr("berth_sdk.slices._do_slice", _one_batch)
    plugin = cast(Any, AFFINITY.runtime().plugin)
    for disk, before, helps in (
        ("d299", None, True),
        ("e", None, False),
        ("d299", "d0", False),
        ("d299", "e", True),
    ):
        old = None if before is None else make_node("n1", labels={"disk": before})
        event = ClusterEvent(
            resource="Node", action="update", old=old, new=make_node("n1", labels={"disk": disk})
        )
        answer = plugin.queueing_hint(event, make_pod("web", spec=dict(pod.spec)))
        assert isinstance(answer, Awaitable)
        assert await answer is helps


async def test_pairs_of_a_node_selector_stop_at_the_first_that_no_node_has() -> None:
    pod = make_pod("web", spec={"nodeSelector": {f"key-{i}": "x" for i in range(20_000)}})
    with counted(NodeColumns, "label") as reads:
        verdicts = await IN_PROCESS.filter(AFFINITY, pod, nodes(20))
    assert not any(verdict.is_success for verdict in verdicts)
    assert len(reads) < 10


def wanting(count: int, **requests: int) -> Pod:
    return make_pod("web", requests={**{f"example.com/r{i}": 1 for i in range(count)}, **requests})


async def test_resources_that_no_node_offers_take_no_rows() -> None:
    offers = {f"example.com/r{i}": i for i in range(3)}
    table = make_table(
        [make_node("n1", allocatable={"pods": 9, **offers}), make_node("n2", allocatable={"pods": 0})],
        [make_pod("p", node="n1", requests={"example.com/r2": 2, "example.com/r3": 1})],
    )
    verdicts = await IN_PROCESS.filter(FIT, wanting(100), table)
    insufficient = [f"Insufficient example.com/r{i}" for i in sorted(range(100), key=str)]
    enough = "Insufficient example.com/r1"
    assert verdicts[0].reasons == tuple(reason for reason in insufficient if reason != enough)
    assert verdicts[1].reasons == ("Too many pods", *insufficient)
    assert {verdict.code for verdict in verdicts} == {Code.UNSCHEDULABLE_AND_UNRESOLVABLE}
    assert table.requested("example.com/r3").tolist() == [1, 0]
    assert not table.offers("example.com/r3")


async def test_many_resources_that_a_node_has_fit() -> None:
    room = {f"example.com/r{i}": 1 for i in range(100)}
    table = make_table(
        [make_node("n1", allocatable={"pods": 9, **room}), make_node("n2", allocatable={"pods": 0, **room})]
    )
    verdicts = await IN_PROCESS.filter(FIT, wanting(100), table)
    assert [verdict.reasons for verdict in verdicts] == [(), ("Too many pods",)]
    taken = make_table(
        [make_node("n1", allocatable={"pods": 9, **room})], [make_pod("p", node="n1", requests=room)]
    )
    (verdict,) = await IN_PROCESS.filter(FIT, wanting(100), taken)
    assert (verdict.code, len(verdict.reasons)) == (Code.UNSCHEDULABLE, 100)


def test_row_of_a_resource_appears_with_its_first_offer() -> None:
    columns = NodeColumns()
    slot = columns.add(make_node("n1"))
    columns.set_usage(slot, NodeUsage(requested={"example.com/r": 2}))
    assert not columns.allocatable.has("example.com/r")
    columns.set_node(slot, make_node("n1", allocatable={"example.com/r": 5}))
    assert columns.allocatable.column("example.com/r")[slot] == 5
    assert columns.requested.column("example.com/r")[slot] == 2


def port_pod(ports: range, *, node: str = "") -> Pod:
    return make_pod(f"p{ports.start}", node=node, host_ports=list(ports), uid=f"u{ports.start}")


def test_ports_of_two_pods_are_compared_by_number() -> None:
    plugin = cast(Any, PORTS.runtime().plugin)
    with counted(UsedPorts, "in_conflict") as asked:
        for gone, helps in ((range(5000, 9000), False), (range(3999, 7999), True)):
            event = ClusterEvent(resource="Pod", action="delete", old=port_pod(gone, node="n1"))
            assert plugin.queueing_hint(event, port_pod(range(1, 4000))) is helps
    assert len(asked) <= 2 * 4000


async def test_ports_that_nobody_uses_take_no_room() -> None:
    table = make_table([make_node(f"n{i}") for i in range(20)], [port_pod(range(1, 4001), node="n3")])
    with counted(NodeColumns, "_at") as masks:
        verdicts = await IN_PROCESS.filter(PORTS, port_pod(range(4000, 8000)), table)
    assert [verdict.is_success for verdict in verdicts] == [i != 3 for i in range(20)]
    assert len(masks) == 1
    columns = NodeColumns()
    slot = columns.add(make_node("n1"))
    for ports in (range(1, 4001), range(3000, 3002), range(0)):
        columns.set_usage(slot, NodeUsage(host_ports=frozenset(port_pod(ports).host_ports)))
        assert len(columns.port_users) == len(ports)


def disk_pod(count: int, **fields: Any) -> Pod:
    volumes = [
        {"name": f"v{i}", "rbd": {"monitors": [f"m{i}"], "pool": "p", "image": "i", **fields}}
        for i in range(count)
    ]
    return make_pod("disks", node="n1", uid="u", spec={"volumes": volumes})


def test_disks_of_two_pods_are_compared_by_name() -> None:
    plugin = cast(Any, Plug(VolumeRestrictions).runtime().plugin)
    for mine, theirs, helps in ((True, True, False), (True, False, True), (False, True, True)):
        event = ClusterEvent(resource="Pod", action="delete", old=disk_pod(1000, readOnly=theirs))
        pod = disk_pod(1000, readOnly=mine)
        with python_calls() as calls:
            assert plugin.queueing_hint(event, pod) is helps
        assert len(calls) < 20 * 1000


def terms(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [
        {"labelSelector": {"matchLabels": {"app": f"x{i}"}}, "topologyKey": "zone", **fields}
        for i in range(count)
    ]


def near(kind: str, wanted: list[dict[str, Any]], *, required: bool = True) -> Pod:
    if required:
        stanza: dict[str, Any] = {"requiredDuringSchedulingIgnoredDuringExecution": wanted}
    else:
        weighted = [{"weight": 1, "podAffinityTerm": term} for term in wanted]
        stanza = {"preferredDuringSchedulingIgnoredDuringExecution": weighted}
    return make_pod("web", uid="uid-web", labels={"app": "web"}, spec={"affinity": {kind: stanza}})


def zones() -> NodeTable:
    running = [make_pod(f"p{i}", node=f"n{i}", labels={"app": f"x{i}"}, uid=f"u{i}") for i in range(4)]
    return make_table([make_node(f"n{i}", labels={"zone": f"z{i // 2}"}) for i in range(8)], running)


@pytest.mark.parametrize("count", [2, 200])
async def test_many_terms_of_anti_affinity_decide_as_few_and_keep_few_counts(count: int) -> None:
    table = zones()
    verdicts = await IN_PROCESS.filter(NEIGHBOURS, near("podAntiAffinity", terms(count)), table)
    allowed = [verdict.is_success for verdict in verdicts]
    assert allowed == ([False] * 2 + [True] * 6 if count == 2 else [False] * 4 + [True] * 4)
    assert len(table.pod_counts) <= 64


async def test_many_terms_of_affinity_need_a_pod_that_all_match() -> None:
    every = {"matchExpressions": [{"key": "other", "operator": "DoesNotExist"}]}
    wanted = [
        {"labelSelector": every, "topologyKey": "zone", "namespaces": ["default", f"x{i}"]}
        for i in range(200)
    ]
    table = zones()
    verdicts = await IN_PROCESS.filter(NEIGHBOURS, near("podAffinity", wanted), table)
    assert [verdict.is_success for verdict in verdicts] == [True] * 4 + [False] * 4
    verdicts = await IN_PROCESS.filter(NEIGHBOURS, near("podAffinity", [*wanted, *terms(1)]), table)
    assert [verdict.is_success for verdict in verdicts] == [True] * 2 + [False] * 6
    assert len(table.pod_counts) <= 64


async def test_many_preferred_terms_add_up() -> None:
    few = await IN_PROCESS.score(NEIGHBOURS, near("podAffinity", terms(4), required=False), zones())
    many = await IN_PROCESS.score(NEIGHBOURS, near("podAffinity", terms(200), required=False), zones())
    assert many == few == [2] * 4 + [0] * 4


async def test_terms_whose_topology_key_no_node_has_count_nothing() -> None:
    wanted = [{**term, "topologyKey": f"key-{i}"} for i, term in enumerate(terms(3000))]
    table = zones()
    with counted(NodeColumns, "label") as reads:
        verdicts = await IN_PROCESS.filter(NEIGHBOURS, near("podAntiAffinity", wanted), table)
    assert all(verdict.is_success for verdict in verdicts)
    assert len(table.pod_counts) == 0
    assert len(reads) < 10


async def test_terms_of_others_whose_topology_key_no_node_has_read_no_column() -> None:
    wanted = [{**term, "labelSelector": {}, "topologyKey": f"key-{i}"} for i, term in enumerate(terms(3000))]
    crowd = replace(near("podAntiAffinity", wanted), name="p", uid="p", node_name="n0")
    table = make_table([make_node("n0", labels={"zone": "a"})], [crowd])
    with counted(NodeColumns, "label") as reads:
        verdicts = await IN_PROCESS.filter(NEIGHBOURS, make_pod("web"), table)
    assert verdicts == [SUCCESS]
    assert len(reads) < 10


def test_labels_of_a_pod_are_not_looked_up_one_by_one_where_there_are_few_terms() -> None:
    few_terms = TermIndex(len)
    every = {"matchExpressions": [{"key": "other", "operator": "DoesNotExist"}]}
    stanza = near("podAntiAffinity", [*terms(5), *terms(1, labelSelector=every)]).pod_affinity
    assert stanza is not None
    for term in stanza.required_anti:
        few_terms.add(term)
    few = {"app": "x3"}
    many = {**few, **{f"key-{i}": "x" for i in range(2000)}}
    (every_term,) = (term for term in stanza.required_anti if term.selector.matches({}))
    for labels in (few, many):
        with counted(Labels, "items") as reads:
            found = few_terms.meaning(replace(make_pod("web"), labels=Labels(labels)), {})
        assert {*found.terms} == {every_term, stanza.required_anti[3]}
        assert len(reads) == 1 + (labels is few)


class Labels(dict[str, str]):
    """Labels whose readings can be counted."""

    def items(self) -> Any:
        return super().items()


def test_terms_that_pods_add_one_after_the_other_are_matched_and_hashed_a_few_times() -> None:
    def tally(terms: frozenset[PodAffinityTerm]) -> frozenset[PodAffinityTerm]:
        return terms

    pod = make_pod("web", labels={"app": "web"})
    wanted: list[dict[str, Any]] = [
        {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": f"key-{i % 700}", "namespaces": [n]}
        for i, n in enumerate(["default", *(f"n{i}" for i in range(1999))])
    ]
    for one in wanted[::2]:
        one["namespaces"].append("default")
    stanza = near("podAntiAffinity", wanted).pod_affinity
    assert stanza is not None
    whole, step_by_step = TermIndex(tally), TermIndex(tally)
    for term in stanza.required_anti:
        whole.add(term)
    # The first index knew the terms in another order, as of pods that are gone.
    added = stanza.required_anti[1000:] + stanza.required_anti[:1000]
    with counted(PodAffinityTerm, "matches") as matched, counted(PodAffinityTerm, "__hash__") as hashes:
        for first in range(0, 2000, 100):
            for term in added[first : first + 100]:
                step_by_step.add(term)
            found = step_by_step.meaning(pod, {})
    assert len(matched) <= 2 * 2000
    assert len(hashes) <= 10 * 2000
    expected = whole.meaning(pod, {})
    assert len(expected.terms) == 1000
    assert (found.ids, found.terms, found.tallies) == (expected.ids, expected.terms, expected.tallies)


def test_selector_with_many_requirements_matches_by_the_labels_of_the_pod() -> None:
    many = [{"key": f"key-{i}", "operator": "DoesNotExist"} for i in range(100)]
    few = [{"key": "app", "operator": "In", "values": ["web", "db"]}, *many[:2]]
    pods = [{"app": "web"}, {"app": "no"}, {}, {"app": "db", "key-1": "x"}, {"app": "db", "key-70": "x"}]
    selector = selectors.LabelSelector.of({"matchExpressions": [*few, *many]})
    assert [selector.matches(labels) for labels in pods] == [True, False, False, False, False]
    with counted(selectors.Requirement, "accepts") as asked:
        assert selector.matches({"app": "web"})
    assert len(asked) < 5


def storage_nodes() -> NodeTable:
    return make_table([make_node(f"n{i}", labels={"zone": f"z{i}"}) for i in range(3)])


CLAIM_COUNT = 200


@pytest.mark.parametrize("kind", ["bound", "waiting", "topologies"])
async def test_many_claims_give_way_and_decide_alike(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"c{i}" for i in range(CLAIM_COUNT)]
    zones = [f"z{i % 3 if kind == 'bound' else 1}" for i in range(CLAIM_COUNT)]
    objects: dict[str, list[Any]] = {
        VOLUMES: [volume(name, zones=["z1", zone]) for name, zone in zip(names, zones, strict=True)],
        CLASSES: [storage_class()],
    }
    if kind == "bound":
        objects[CLAIMS] = [claim(name, bound_to=name) for name in names]
    elif kind == "waiting":
        objects[CLAIMS] = [claim(name) for name in names]
        objects[CLASSES] = [storage_class(provisioner="kubernetes.io/no-provisioner")]
    else:
        names = names[:1]
        objects |= {CLAIMS: [claim(names[0])], VOLUMES: []}
        zones = [f"y{i}" for i in range(CLAIM_COUNT)]
        objects[CLASSES] = [storage_class(allowedTopologies=[*map(_topology, [*zones, "z1"])])]
    plug, pod = Plug(VolumeBinding, objects=objects), pod_using("web", *names)
    at_once = await IN_PROCESS.filter(plug, pod, storage_nodes())
    assert [verdict.is_success for verdict in at_once] == [False, True, False]
    batches: list[object] = []

    def one_batch(work: Any, slice_s: float, clock: Any) -> None:
        batches.append(None)
        _one_batch(work, slice_s, clock)

    monkeypatch.setattr("berth_sdk.slices._do_slice", one_batch)
    assert await IN_PROCESS.filter(plug, pod, storage_nodes()) == at_once
    assert len(batches) >= CLAIM_COUNT // 16


def _topology(zone: str) -> dict[str, Any]:
    return {"matchLabelExpressions": [{"key": "zone", "values": [zone]}]}


LONG = 1000
CONDITIONS = [{"key": f"k{i}", "operator": "DoesNotExist"} for i in range(LONG)]
TERMS = {"required": {"nodeSelectorTerms": [{"matchExpressions": [one]} for one in CONDITIONS]}}
TERM = {"required": {"nodeSelectorTerms": [{"matchExpressions": CONDITIONS}]}}
BOUND = {CLAIMS: [claim("c", bound_to="v")]}
KEYS = [{"key": f"k{i}", "values": ["a"]} for i in range(LONG)]
GCE: dict[str, Any] = {"gcePersistentDisk": {"pdName": "d"}, "labels": {ZONE: "a"}}
LISTS: dict[str, dict[str, list[Any]]] = {
    "terms of a bound volume": {**BOUND, VOLUMES: [volume("v", nodeAffinity=TERMS)]},
    "conditions of a bound volume": {**BOUND, VOLUMES: [volume("v", nodeAffinity=TERM)]},
    "a volume that is migrated to CSI": {
        **BOUND,
        VOLUMES: [volume("v", nodeAffinity=TERMS, **GCE)],
        CSI_NODES: [csi_node("n0", {}, migrated="kubernetes.io/gce-pd")],
    },
    "terms of a free volume": {VOLUMES: [volume("v", nodeAffinity=TERMS)]},
    "conditions of a free volume": {VOLUMES: [volume("v", nodeAffinity=TERM)]},
    "topologies of a class": {
        CLASSES: [storage_class(allowedTopologies=[*map(_topology, map(str, range(LONG)))])]
    },
    "keys of one topology": {CLASSES: [storage_class(allowedTopologies=[{"matchLabelExpressions": KEYS}])]},
    "the selector of a claim": {CLAIMS: [claim("c", selector={"matchExpressions": CONDITIONS})]},
    "the nodes of a capacity": {
        CSI_DRIVERS: [csi_driver(storageCapacity=True)],
        CSI_CAPACITIES: [capacity("a", "1Gi", nodeTopology={"matchExpressions": CONDITIONS})],
    },
}


@pytest.mark.parametrize("what", LISTS)
async def test_long_lists_of_storage_objects_are_read_in_slices(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = {CLAIMS: [claim("c")], CLASSES: [storage_class()], **LISTS[what]}
    plug, pod = Plug(VolumeBinding, objects=objects), pod_using("web", "c")
    at_once = await IN_PROCESS.filter(plug, pod, storage_nodes())
    most = 0
    with counted(selectors.Requirement, "__init__") as read:

        def one_batch(work: Any, slice_s: float, clock: Any) -> None:
            nonlocal most
            read.clear()
            try:
                _one_batch(work, slice_s, clock)
            finally:
                most = max(most, len(read))

        monkeypatch.setattr("berth_sdk.slices._do_slice", one_batch)
        assert await IN_PROCESS.filter(plug, pod, storage_nodes()) == at_once
    assert 1 <= most <= 2 * 16


@pytest.mark.parametrize("plugin", [VolumeZone, VolumeRestrictions, NodeVolumeLimits])
async def test_plugins_that_need_no_affinity_of_a_volume_do_not_read_it(plugin: type) -> None:
    objects = {**BOUND, VOLUMES: [volume("v", nodeAffinity=TERMS, csi=csi("v"))]}
    plug = Plug(plugin, objects={**objects, CSI_NODES: [csi_node("n0", {"csi.example.com": 1})]})
    with counted(selectors.Requirement, "__init__") as read:
        await IN_PROCESS.filter(plug, pod_using("web", "c"), storage_nodes())
    assert not read


async def test_topologies_of_a_class_are_judged_once_for_all_its_claims() -> None:
    names = [f"c{i}" for i in range(50)]
    topologies = [_topology(f"z{i}") for i in range(50)]
    objects = {
        CLAIMS: [claim(name) for name in names],
        CLASSES: [storage_class(allowedTopologies=topologies)],
    }
    with counted(selectors.LabelSelector, "judged") as judged:
        plug, pod = Plug(VolumeBinding, objects=objects), pod_using("web", *names)
        verdicts = await IN_PROCESS.filter(plug, pod, storage_nodes())
    assert all(verdict.is_success for verdict in verdicts)
    assert len(judged) == len(topologies)


@pytest.mark.parametrize("plugin", [VolumeBinding, VolumeZone, VolumeRestrictions, NodeVolumeLimits])
async def test_volumes_that_name_one_claim_give_way(plugin: type, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = {
        CLAIMS: [claim("c", bound_to="c", accessModes=["ReadWriteOncePod"])],
        VOLUMES: [volume("c", labels={ZONE: "a"}, csi=csi("c"))],
        CSI_NODES: [csi_node("n0", {"csi.example.com": 0})],
    }
    table = make_table([make_node("n0", labels={ZONE: "a"}), make_node("n1", labels={ZONE: "b"})])
    plug = Plug(plugin, objects=objects)
    few = await IN_PROCESS.filter(plug, pod_using("web", "c"), table)
    batches: list[object] = []

    def one_batch(work: Any, slice_s: float, clock: Any) -> None:
        batches.append(None)
        _one_batch(work, slice_s, clock)

    monkeypatch.setattr("berth_sdk.slices._do_slice", one_batch)
    pod, state = pod_using("web", *["c"] * 200), CycleState("cycle")
    runtime = plug.runtime()
    before: Any = runtime.pre_filter(state, pod, table)
    before = await before if isinstance(before, Awaitable) else before
    assert before.status.code in (Code.SUCCESS, Code.SKIP)
    if before.status.is_success:
        passed: Any = runtime.filter(state, pod, table)
        passed = await passed if isinstance(passed, Awaitable) else passed
        assert passed.verdicts.to_list() == few
    assert len(batches) >= 200 // 16


async def test_images_of_many_containers_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    images = {f"i{i}:v1": 1 << 30 for i in range(200)}
    table = make_table([make_node("n0", images=images), make_node("n1")])
    pod = make_pod("web", containers=[{"name": f"c{i}", "image": f"i{i}:v1"} for i in range(200)])
    assert await IN_PROCESS.score(Plug(ImageLocality), pod, table) == [51, 0]
    monkeypatch.setattr("berth_sdk.slices._do_slice", _one_batch)
    runtime = Plug(ImageLocality).runtime()
    scored: Any = runtime.score(CycleState("cycle"), pod, table)
    assert isinstance(scored, Awaitable)
    assert (await scored).tolist() == [51, 0]
