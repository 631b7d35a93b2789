"""A class's methods and attributes become its descriptor; a class that cannot work is refused."""

from __future__ import annotations

from typing import Any

import pytest
from berth_sdk.errors import PluginDefinitionError
from berth_sdk.events import EventInterest, Hint
from berth_sdk.extension_points import (
    METHODS,
    DependsOn,
    ExtensionPoint,
    NodeColumn,
    NodeLabel,
    NodeMode,
    Plugin,
    PodSensitivity,
    ScoreNormalization,
)
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.pod_fields import ALL_FIELDS, PodField
from berth_sdk.runtime.descriptor import describe, describe_instance
from berth_sdk.status import SUCCESS, Status


def nothing(self: Any, *args: Any) -> None: ...


async def waits(self: Any, *args: Any) -> None: ...


def made(**attributes: Any) -> type:
    """Return a plugin class with these attributes; `filter` is there unless it is given."""
    return type("Made", (Plugin,), {"filter": nothing} | attributes)


@pytest.mark.parametrize(
    ("point", "method"),
    [pytest.param(point, method, id=method) for point, methods in METHODS.items() for method in methods],
)
def test_each_method_makes_its_point(point: ExtensionPoint, method: str) -> None:
    partners = {
        "normalize": {"score": nothing},
        "normalize_placements": {"placement_score": nothing},
        "unreserve": {"reserve": nothing},
    }.get(method, {})
    got = describe(type("Made", (Plugin,), {method: nothing, **partners}))
    assert point in got.points


def test_attributes_become_the_descriptor() -> None:
    got = describe(
        made(
            name="Example",
            version="1.2",
            needs=(Need.whole_pod(), Need.nodes(), Need.pods()),
            pod_sensitivity=PodSensitivity.NODE,
            reads_shared=("Other/key",),
            events=[EventInterest("Node", ("add",))],
            deadlines={"preBind": 30},
            max_concurrency=4,
            depends_on=DependsOn.ROW,
        )
    )
    assert (got.name, got.version, got.wants_whole_pod) == ("Example", "1.2", True)
    assert got.needs == (Need.whole_pod(), Need.nodes(), Need.pods())
    assert got.pod_sensitivity is PodSensitivity.NODE
    assert (got.reads_shared, got.events) == (("Other/key",), (EventInterest("Node", ("add",)),))
    assert (dict(got.deadlines), got.max_concurrency) == ({"preBind": 30}, 4)
    assert got.depends_on is DependsOn.ROW


def test_a_descriptor_is_derived_anew_only_after_a_change_of_the_class() -> None:
    cls = made(events=[EventInterest("Node", ("add",))])
    first = describe(cls, "One")
    assert describe(cls, "One") is first
    assert describe(cls, "Other").name == "Other"
    cls.events.append(EventInterest("Pod", ("add",)))  # type: ignore[attr-defined]
    assert len(describe(cls, "One").events or ()) == 2
    cls.score = nothing  # type: ignore[attr-defined]
    assert ExtensionPoint.SCORE in describe(cls, "One").points
    cls.needs = "no list"  # type: ignore[attr-defined]
    with pytest.raises(PluginDefinitionError):
        describe(cls, "One")
    del cls.needs, cls.score  # type: ignore[attr-defined]
    assert ExtensionPoint.SCORE not in describe(cls, "One").points


def test_a_class_that_derives_from_nothing_gets_the_defaults() -> None:
    class Bare:
        def filter(self, state: Any, pod: Any, node: Any) -> None: ...

    got = describe(Bare)
    assert (got.name, got.events, got.node_mode) == ("Bare", None, NodeMode.SNAPSHOT)
    assert got.needs == (Need.nodes(),)


@pytest.mark.parametrize(
    ("attributes", "want"),
    [
        pytest.param({}, (Need.nodes(),), id="usage travels with what-ifs"),
        pytest.param({"pod_sensitivity": PodSensitivity.NONE}, (Need.nodes(),), id="never asked"),
        pytest.param({"needs": ()}, (), id="no usage known"),
        pytest.param(
            {"needs": (Need.nodes(), Need.pod_objects())},
            (Need.nodes(), Need.pod_objects()),
            id="pods known as objects",
        ),
        pytest.param({"filter": None, "score": nothing}, (Need.nodes(),), id="no filter"),
    ],
)
def test_needs_are_those_that_the_class_declared(attributes: dict[str, Any], want: tuple[Need, ...]) -> None:
    assert describe(made(**attributes)).needs == want


@pytest.mark.parametrize(
    ("attributes", "want"),
    [
        pytest.param({"depends_on": DependsOn.NODE}, PodSensitivity.NONE, id="node"),
        pytest.param({"depends_on": DependsOn.NODES}, PodSensitivity.NONE, id="nodes"),
        pytest.param({"depends_on": DependsOn.ROW}, PodSensitivity.NODE, id="row"),
        pytest.param({"depends_on": DependsOn.TABLE}, PodSensitivity.CLUSTER, id="table"),
        pytest.param({}, PodSensitivity.CLUSTER, id="nothing said"),
        pytest.param({"reserve": nothing}, PodSensitivity.CLUSTER, id="a memory"),
        pytest.param({"filter": None, "score": nothing}, PodSensitivity.NONE, id="no filter"),
        pytest.param(
            {"depends_on": DependsOn.NODE, "pod_sensitivity": PodSensitivity.NODE},
            PodSensitivity.NODE,
            id="said otherwise",
        ),
    ],
)
def test_sensitivity_follows_from_what_the_answer_depends_on(
    attributes: dict[str, Any], want: PodSensitivity
) -> None:
    assert describe(made(**attributes)).pod_sensitivity is want


@pytest.mark.parametrize(
    ("attributes", "want"),
    [
        pytest.param({}, NodeMode.SNAPSHOT, id="filter"),
        pytest.param({"filter": None, "permit": nothing}, NodeMode.NAMES, id="permit"),
        pytest.param({"filter": None, "pre_enqueue": nothing}, NodeMode.NAMES, id="queue"),
        pytest.param(
            {"filter": None, "permit": nothing, "pre_filter": nothing}, NodeMode.SNAPSHOT, id="both"
        ),
        pytest.param({"node_mode": NodeMode.NAMES}, NodeMode.NAMES, id="said otherwise"),
    ],
)
def test_node_mode_follows_from_the_methods(attributes: dict[str, Any], want: NodeMode) -> None:
    got = describe(made(**attributes))
    assert got.node_mode is want
    assert got.keeps_state is (want is NodeMode.SNAPSHOT)


def test_the_whole_pod_is_no_state() -> None:
    got = describe(made(filter=None, permit=nothing, needs=(Need.whole_pod(),)))
    assert (got.wants_whole_pod, got.keeps_state) == (True, False)


@pytest.mark.parametrize(
    ("attributes", "want"),
    [
        pytest.param({}, False, id="nothing said"),
        pytest.param({"pre_enqueue": nothing, "sign_queue": nothing}, False, id="signed alone"),
        pytest.param({"depends_on": DependsOn.NODE}, True, id="all wishes"),
        pytest.param({"depends_on": DependsOn.OTHER}, False, id="a memory"),
        pytest.param(
            {"pre_enqueue": nothing, "sign_queue": nothing, "depends_on": DependsOn.OTHER}, True, id="signed"
        ),
    ],
)
def test_waiting_pods_are_alike_where_the_class_says_by_what(attributes: dict[str, Any], want: bool) -> None:
    assert describe(made(**attributes)).signs_queue is want


LABELS = (PodField.LABELS,)


@pytest.mark.parametrize(
    ("attributes", "want"),
    [
        pytest.param({}, None, id="nothing said"),
        pytest.param({"sign_fields": LABELS}, None, id="no depends_on"),
        pytest.param(
            {"depends_on": DependsOn.NODE, "sign_fields": [PodField.LABELS, PodField.LABELS]},
            LABELS,
            id="listed",
        ),
        pytest.param({"depends_on": DependsOn.NODE, "sign_fields": ()}, (), id="nothing of the pod"),
        pytest.param({"depends_on": DependsOn.ROW}, ALL_FIELDS, id="all wishes"),
        pytest.param({"depends_on": DependsOn.OTHER}, None, id="a memory"),
        pytest.param({"depends_on": DependsOn.OTHER, "sign_fields": LABELS}, LABELS, id="a memory that says"),
        pytest.param(
            {"depends_on": DependsOn.ROW, "pre_enqueue": nothing, "sign_queue": nothing},
            None,
            id="signs itself",
        ),
    ],
)
def test_the_host_of_a_served_plugin_is_told_the_fields(
    attributes: dict[str, Any], want: tuple[PodField, ...] | None
) -> None:
    got = describe(made(**attributes))
    assert got.sign_fields == want
    assert got.signs_queue is (want is not None or "sign_queue" in attributes)


ZONE = NodeLabel("topology.kubernetes.io/zone")


@pytest.mark.parametrize(
    ("attributes", "want"),
    [
        pytest.param({"depends_on": DependsOn.ROW}, None, id="nothing said"),
        pytest.param({"depends_on": DependsOn.NODE, "reads": ()}, frozenset(), id="nothing of the node"),
        pytest.param(
            {"depends_on": DependsOn.NODE, "reads": [NodeColumn.TAINTS, ZONE, ZONE]},
            frozenset({NodeColumn.TAINTS, ZONE}),
            id="node",
        ),
        pytest.param(
            {"depends_on": DependsOn.ROW, "reads": (NodeColumn.POD_COUNT,)},
            frozenset({NodeColumn.POD_COUNT}),
            id="row",
        ),
    ],
)
def test_columns_that_a_class_reads_are_in_the_descriptor(
    attributes: dict[str, Any], want: frozenset[NodeColumn | NodeLabel] | None
) -> None:
    assert describe(made(**attributes)).reads == want


def test_a_given_name_wins() -> None:
    assert describe(made(name="Example"), "Other").name == "Other"


def test_no_events_and_any_event_differ() -> None:
    assert describe(made(events=())).events == ()
    assert describe(made(events=None)).events is None


def test_without_a_snapshot_no_state_is_needed() -> None:
    assert describe(made(node_mode=NodeMode.NAMES)).needs == ()
    pods = (Need.pods(),)
    assert describe(made(node_mode=NodeMode.NAMES, needs=pods)).needs == pods


@pytest.mark.parametrize(
    ("methods", "normalization"),
    [
        pytest.param(("score_nodes",), ScoreNormalization.PLUGIN, id="sees all candidates"),
        pytest.param(("score",), ScoreNormalization.NONE, id="sees one node"),
        pytest.param(("score", "pre_score"), ScoreNormalization.PLUGIN, id="saw all candidates before"),
        pytest.param(("score", "normalize"), ScoreNormalization.RPC, id="second step"),
    ],
)
def test_normalization_follows_from_what_the_methods_see(
    methods: tuple[str, ...], normalization: ScoreNormalization
) -> None:
    assert describe(made(**dict.fromkeys(methods, nothing))).normalization is normalization


def test_a_class_cannot_both_answer_early_and_read_shared_values() -> None:
    assert describe(made(answers_early=True)).answers_early is True
    with pytest.raises(PluginDefinitionError, match="answers_early and reads_shared"):
        describe(made(answers_early=True, reads_shared=("Other/key",)))
    with pytest.raises(PluginDefinitionError, match="must be True, False or None"):
        describe(made(answers_early="yes"))


def test_a_class_with_normalize_normalises_by_a_call() -> None:
    got = describe(made(score_nodes=nothing, normalize=nothing))
    assert got.normalization is ScoreNormalization.RPC


def test_both_styles_of_filter_are_allowed() -> None:
    assert describe(made(filter_nodes=nothing)).points == (ExtensionPoint.FILTER,)


def test_abilities_of_a_class_beside_its_points_are_noted() -> None:
    got = describe(
        made(
            add_pod=nothing,
            remove_pod=nothing,
            filter_scenarios=nothing,
            pre_bind=nothing,
            pre_bind_pre_flight=nothing,
            less=nothing,
            queueing_hint=nothing,
            events=[EventInterest("Pod", hint=Hint.ASK_PLUGIN)],
        )
    )
    assert got.has_add_remove
    assert got.has_scenarios
    assert got.has_pre_flight
    assert got.less_only
    assert got.has_hint


def test_subclass_that_overrides_sign_alone_is_told_that_sign_spec_answers_first() -> None:
    class Base(Plugin):
        def filter(self, state: object, pod: Pod, node: object) -> None:
            return None

        def sign_spec(self, pod: Pod) -> object:
            return None

        def sign(self, pod: Pod, nodes: object) -> object:
            return ()

    class Silent(Base):
        def sign(self, pod: Pod, nodes: object) -> object:
            return pod.labels.get("app")

    class Both(Silent):
        def sign_spec(self, pod: Pod) -> object:
            return None

    class Neither(Both):
        pass

    with pytest.raises(PluginDefinitionError, match=r"whose spec Base\.sign_spec decides"):
        describe(Silent)
    for cls in (Base, Both, Neither):
        assert describe(cls).name == cls.__name__


@pytest.mark.parametrize(
    ("attributes", "cure"),
    [
        pytest.param({"filter": None}, "takes part in no extension point", id="no point"),
        pytest.param(
            {"filter": lambda self, state, pod: None}, r"def filter\(self, state, pod, node\)", id="args"
        ),
        pytest.param({"__init__": lambda self: None}, r"def __init__\(self, args, handle\)", id="init"),
        pytest.param({"node_mode": "SNAPSHOT"}, "must be a NodeMode", id="node mode"),
        pytest.param({"max_concurrency": True}, "a number of calls", id="concurrency type"),
        pytest.param({"max_concurrency": -1}, "negative", id="concurrency sign"),
        pytest.param({"sign_fields": ["labels"]}, "a list of PodField", id="sign fields"),
        pytest.param({"reads": NodeColumn.NAME}, "a list of NodeColumn and NodeLabel", id="reads no list"),
        pytest.param(
            {"depends_on": DependsOn.NODE, "reads": ["zone"]}, "as NodeColumn.TAINTS", id="reads a name"
        ),
        pytest.param(
            {"depends_on": DependsOn.NODE, "reads": [NodeLabel("a b")]},
            "the key of one label",
            id="label key",
        ),
        pytest.param(
            {"reads": ()}, "declares reads and no depends_on: declare DependsOn.NODE", id="reads alone"
        ),
        pytest.param(
            {"depends_on": DependsOn.NODES, "reads": ()},
            "declares reads and depends_on NODES",
            id="reads NODES",
        ),
        pytest.param(
            {"depends_on": DependsOn.NODE, "reads": (NodeColumn.POD_COUNT, NodeColumn.REQUESTED)},
            "reads REQUESTED, POD_COUNT, which pods on the node change: declare DependsOn.ROW",
            id="reads pods",
        ),
        pytest.param({"normalization": "none"}, "ScoreNormalization or None", id="normalization"),
        pytest.param({"events": EventInterest("Pod")}, "list of EventInterest", id="events no list"),
        pytest.param({"events": [EventInterest("pod")]}, "did you mean 'Pod'", id="event resource"),
        pytest.param(
            {"events": [EventInterest("Node", ("moved",))]}, "not an action of Node", id="event word"
        ),
        pytest.param({"needs": ["nodes"]}, "list of Need", id="needs"),
        pytest.param({"needs": [Need.objects("")]}, "name it", id="need without resource"),
        pytest.param({"needs": [Need.objects("pods")]}, "pod_objects", id="pods as objects"),
        pytest.param({"needs": [Need.objects("nodes")]}, "node_objects", id="nodes as objects"),
        pytest.param({"reads_shared": "Other/key"}, "list of keys", id="shared no list"),
        pytest.param({"reads_shared": ["key"]}, "<plugin that publishes it>", id="shared key"),
        pytest.param({"deadlines": {"prebind": 3}}, "did you mean 'preBind'", id="deadline point"),
        pytest.param({"deadlines": {"preBind": 0}}, "above 0", id="deadline value"),
        pytest.param({"deadlines": 3}, "must map points", id="deadlines no map"),
        pytest.param(
            {"score": nothing, "normalize": nothing, "normalization": ScoreNormalization.NONE},
            "remove the one or the other",
            id="early with a second step",
        ),
        pytest.param(
            {"normalization": ScoreNormalization.RPC}, "no method `normalize`", id="rpc without normalize"
        ),
        pytest.param({"normalize": nothing}, "without `score_nodes` or `score`", id="normalize alone"),
        pytest.param({"add_pod": nothing}, "only one of", id="add without remove"),
        pytest.param(
            {"sign_queue": nothing}, "without `pre_enqueue` or `queueing_hint`", id="signs no queue"
        ),
        pytest.param({"filter": nothing, "sign": waits}, "write it as a plain method", id="async sign"),
        pytest.param(
            {"filter": nothing, "sensitive_to": waits}, "write it as a plain method", id="async sensitive_to"
        ),
        pytest.param({"pre_bind_pre_flight": nothing}, "without `pre_bind`", id="pre-flight alone"),
        pytest.param({"queueing_hint": nothing}, "no event asks for it", id="hint nobody asks for"),
        pytest.param(
            {"events": [EventInterest("Pod", hint=Hint.ASK_PLUGIN)]},
            "no method `queueing_hint`",
            id="hint missing",
        ),
        pytest.param({"reserve": 3}, "is not a method", id="attribute in a method's place"),
    ],
)
def test_a_class_that_cannot_work_is_refused_with_the_cure(attributes: dict[str, Any], cure: str) -> None:
    with pytest.raises(PluginDefinitionError, match=cure):
        describe(made(**attributes))


def test_an_instance_is_refused() -> None:
    with pytest.raises(PluginDefinitionError, match="is not a class"):
        describe(made()(args={}, handle=None))


class ByArgs(Plugin):
    """Declares by its arguments what they name."""

    def __init__(self, args: dict[str, Any], handle: Any = None) -> None:
        for name, value in args.items():
            setattr(self, name, value)

    def filter(self, state: Any, pod: Any, node: Any) -> Status:
        return SUCCESS


def test_an_instance_declares_in_place_of_its_class() -> None:
    declared = {
        "needs": [Need.nodes()],
        "node_mode": NodeMode.NAMES,
        "depends_on": DependsOn.ROW,
        "events": (),
        "limit": 3,
    }
    found = describe_instance(ByArgs(declared))
    assert (found.node_mode, found.depends_on, found.events) == (NodeMode.NAMES, DependsOn.ROW, ())
    # What follows from it follows for the instance too.
    assert found.pod_sensitivity is PodSensitivity.NODE
    assert found.needs == (Need.nodes(),)
    assert found.host_keeps_answers
    assert describe_instance(ByArgs({"limit": 3})) == describe(ByArgs)
    assert describe(ByArgs).depends_on is None


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"max_concurrency": 3}, "sets self.max_concurrency, which may not depend on the arguments"),
        ({"deadlines": {"filter": 1.0}}, "or call it self._deadlines if it is your own"),
        ({"node_mode": "names"}, "ByArgs.node_mode is 'names': it must be a NodeMode or None"),
        ({"events": [EventInterest("Nod")]}, "did you mean 'Node'"),
        ({"reads": ()}, "declares reads and no depends_on"),
        ({"events": []}, r"sets self.events to an empty list.*: write `self.events = \(\)` to declare none"),
        ({"needs": []}, "or call it self._needs if it is your own"),
    ],
    ids=["not by arguments", "deadlines", "type", "event", "reads", "own list", "own needs"],
)
def test_what_an_instance_declares_is_checked_as_what_a_class_declares(
    declared: dict[str, Any], words: str
) -> None:
    with pytest.raises(PluginDefinitionError, match=words):
        describe_instance(ByArgs(declared))


@pytest.mark.parametrize("name", ["actions", "profiles"])
def test_event_takes_lists_and_refuses_one_text(name: str) -> None:
    one: Any = {name: "add"}
    with pytest.raises(
        PluginDefinitionError, match=rf"'Node'\): {name} is one text, 'add': write \('add',\)"
    ):
        EventInterest("Node", **one)
    listed: Any = {name: ["add"]}
    several: Any = {name: ("add",)}
    assert EventInterest("Node", **listed) == EventInterest("Node", **several)
    assert len({EventInterest("Node", **listed)}) == 1
