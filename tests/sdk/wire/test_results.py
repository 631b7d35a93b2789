"""A plugin's answers and its description, as the contract's messages."""

from __future__ import annotations

import numpy as np
import pytest
from berth_sdk import (
    EventInterest,
    Hint,
    Need,
    NodeMode,
    Plugin,
    PodSensitivity,
    ScoreNormalization,
    Status,
    Verdicts,
)
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.runtime.descriptor import describe
from berth_sdk.selectors import LabelSelector
from berth_sdk.status import Code
from berth_sdk.testing import make_node, make_table
from berth_sdk.wire import records as wire
from berth_sdk.wire.results import (
    encode_descriptor,
    encode_eligible,
    encode_verdicts,
)
from berth_sdk.wire.status import encode_status

NODES = make_table([make_node(f"n{i}") for i in range(40)])
ODD = NODES.take(list(range(1, 40, 2)))


@pytest.mark.parametrize("code", list(Code))
def test_every_code_has_its_namesake(code: Code) -> None:
    message = encode_status(Status(code, ("why",)))
    assert pb.PluginStatus.Code.Name(message.code) == f"CODE_{code.name}"
    assert list(message.reasons) == ["why"]


def test_equal_verdicts_make_one_group_and_feasible_nodes_none() -> None:
    full, spot = Status.unschedulable("full"), Status.unresolvable("spot")
    verdicts = Verdicts(
        np.asarray([0, 1, 2, 3] * 5, dtype=np.int32),
        (Status.success(), full, spot, Status.unschedulable("full")),
    )
    message = encode_verdicts(verdicts, ODD, NodeMode.SNAPSHOT)
    got = {
        group.status.reasons[0]: wire.decode_bitmap(group.nodes.bitmap).tolist() for group in message.rejected
    }
    rows = ODD.slots.reshape(5, 4)
    assert got == {"full": sorted([*rows[:, 1], *rows[:, 3]]), "spot": sorted(rows[:, 2])}
    names = encode_verdicts(verdicts, ODD, NodeMode.NAMES).rejected[1].nodes
    assert (list(names.names), names.bitmap) == ([f"n{slot}" for slot in rows[:, 2]], b"")


def test_a_group_without_nodes_is_not_sent() -> None:
    verdicts = Verdicts(np.zeros(20, dtype=np.int32), (Status.success(), Status.unschedulable("full")))
    assert not encode_verdicts(verdicts, ODD, NodeMode.SNAPSHOT).rejected


@pytest.mark.parametrize(
    ("names", "form"),
    [
        pytest.param({f"n{i}" for i in range(40)}, "bitmap", id="many known"),
        pytest.param({f"n{i}" for i in range(3)}, "names", id="few"),
        pytest.param({f"n{i}" for i in range(41)}, "names", id="many, one unknown"),
        pytest.param(set(), "nothing", id="none"),
    ],
)
def test_eligible_nodes_go_in_the_shorter_form_that_can_say_them(names: set[str], form: str) -> None:
    message = encode_eligible(frozenset(names), NODES, NodeMode.SNAPSHOT)
    if form == "bitmap":
        assert wire.decode_bitmap(message.bitmap).tolist() == list(range(40))
    assert (bool(message.bitmap), set(message.names)) == (
        form == "bitmap",
        names if form == "names" else set(),
    )
    assert set(encode_eligible(frozenset(names), NODES, NodeMode.NAMES).names) == names


def test_a_descriptor_travels_whole() -> None:
    class Whole(Plugin):
        name = "Example"
        version = "1.2"
        needs = (Need.whole_pod(), Need.nodes(images=True), Need.objects("persistentvolumeclaims"))
        pod_sensitivity = PodSensitivity.NONE
        normalization = ScoreNormalization.HOST_MIN_MAX
        reads_shared = ("Other/key",)
        events = (EventInterest("Node", ("add",), Hint.ASK_PLUGIN, "pool=gpu"),)
        deadlines = {"preBind": 30.5}  # noqa: RUF012 (read only)
        max_concurrency = 4

        def queueing_hint(self, event: object, pod: object) -> bool:
            return True

        def filter(self, state: object, pod: object, node: object) -> None:
            return None

        def score(self, state: object, pod: object, node: object) -> int:
            return 0

    got = encode_descriptor(describe(Whole))
    assert (got.name, got.version, got.max_concurrency, got.handle_client) == ("Example", "1.2", 4, True)
    assert list(got.points) == [identity_pb2.EXTENSION_POINT_FILTER, identity_pb2.EXTENSION_POINT_SCORE]
    assert got.node_mode == identity_pb2.NODE_MODE_SNAPSHOT
    assert got.pod_sensitivity == identity_pb2.POD_SENSITIVITY_NONE
    assert got.normalization == identity_pb2.SCORE_NORMALIZATION_HOST_MIN_MAX
    assert [need.resource for need in got.needs] == ["", "", "persistentvolumeclaims"]
    assert [(wish.point, wish.deadline.nanos) for wish in got.deadlines] == [
        (identity_pb2.EXTENSION_POINT_PRE_BIND, 500_000_000)
    ]
    assert got.events == [
        identity_pb2.EventInterest(
            resource="Node",
            actions=["add"],
            label_selector="pool=gpu",
            hint=identity_pb2.EventInterest.HINT_ASK_PLUGIN,
        )
    ]


def test_any_event_is_an_empty_list_and_no_event_one_that_cannot_happen() -> None:
    def with_events(events: object) -> identity_pb2.PluginDescriptor:
        methods = {"filter": lambda self, state, pod, node: None, "events": events}
        return encode_descriptor(describe(type("Made", (Plugin,), methods)))

    assert not with_events(None).events
    (never,) = with_events(()).events
    selector = LabelSelector.parse(never.label_selector)
    assert not any(selector.matches(labels) for labels in ({}, {"berth.io/none": ""}, {"berth.io/none": "x"}))
