"""What the contract must contain, and that its generated code can be used."""

from __future__ import annotations

import subprocess
import sys

from berth_sdk.plugin.v1 import common_pb2, identity_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from protocheck.walk import declarations

POINTS = [
    "PRE_ENQUEUE",
    "QUEUE_SORT",
    "PRE_FILTER",
    "FILTER",
    "POST_FILTER",
    "PRE_SCORE",
    "SCORE",
    "NORMALIZE_SCORE",
    "RESERVE",
    "PERMIT",
    "PRE_BIND",
    "BIND",
    "POST_BIND",
]
"""The extension points of the scheduling framework, in the order of their numbers from 1."""

GROUP_POINTS = [
    "PLACEMENT_GENERATE",
    "PLACEMENT_SCORE",
    "NORMALIZE_PLACEMENT_SCORE",
    "PLACEMENT_FEASIBLE",
    "POD_GROUP_POST_FILTER",
]
"""The points about groups of pods, in the order of their numbers from 14."""


def test_extension_points_are_those_of_pods_and_those_of_groups() -> None:
    names = ["UNSPECIFIED", *POINTS, *GROUP_POINTS]
    want = {f"EXTENSION_POINT_{name}": number for number, name in enumerate(names)}

    assert dict(identity_pb2.ExtensionPoint.items()) == want


def test_further_extension_points_are_reserved(contract: FileDescriptorSet) -> None:
    identity = next(file for file in contract.file if file.name.endswith("identity.proto"))
    point = next(enum for enum in identity.enum_type if enum.name == "ExtensionPoint")

    assert [(span.start, span.end) for span in point.reserved_range] == [(19, 25)]
    assert list(point.reserved_name) == ["EXTENSION_POINT_SIGN"]


def test_protobuf_encoding_of_objects_is_reserved(contract: FileDescriptorSet) -> None:
    common = next(file for file in contract.file if file.name.endswith("common.proto"))
    kube_object = next(message for message in common.message_type if message.name == "KubeObject")
    (encoding,) = kube_object.enum_type

    assert [(span.start, span.end) for span in encoding.reserved_range] == [(2, 2)]


def test_services_and_calls_are_complete(contract: FileDescriptorSet) -> None:
    got = {
        service.name: [rpc.name for rpc in service.method]
        for file in contract.file
        for service in file.service
    }

    assert got == {
        "IdentityService": ["Handshake", "Configure", "Probe", "Drain"],
        "StateService": ["SyncState", "Reconcile"],
        "QueueService": ["PreEnqueue", "SortKeys", "QueueingHints"],
        "SchedulingService": [
            "PreFilter",
            "Filter",
            "SimulateFilter",
            "PostFilter",
            "PreScore",
            "Score",
            "NormalizeScore",
            "Reserve",
            "Unreserve",
            "Permit",
            "PreBindPreFlight",
            "PreBind",
            "Bind",
            "PlacementGenerate",
            "PlacementScore",
            "NormalizePlacementScore",
            "PlacementFeasible",
            "PodGroupPostFilter",
            "PostBind",
            "EndCycles",
        ],
        "HandleService": [
            "ListWaitingPods",
            "DecideWaitingPods",
            "CancelBinding",
            "ReadState",
            "RunFilters",
            "EvaluatePreemption",
            "RunScores",
            "TryPodGroup",
            "EvaluatePodGroupPreemption",
            "ReadPodGroup",
            "ListNominatedPods",
            "Nominate",
            "Requeue",
            "InvalidateSortKeys",
            "RecordEvents",
        ],
    }


def test_one_file_holds_one_service_group(contract: FileDescriptorSet) -> None:
    services = {file.name.rsplit("/", 1)[-1]: [s.name for s in file.service] for file in contract.file}

    assert services == {
        "common.proto": [],
        "handle.proto": ["HandleService"],
        "identity.proto": ["IdentityService"],
        "queue.proto": ["QueueService"],
        "scheduling.proto": ["SchedulingService"],
        "state.proto": ["StateService"],
    }


def test_declarations_have_unique_names(contract: FileDescriptorSet) -> None:
    names = [declaration.name for declaration in declarations(contract) if declaration.parent is not None]

    assert len(names) == len(set(names))


def test_generated_code_imports_without_warnings() -> None:
    modules = "common identity state queue scheduling handle"
    lines = [f"import berth_sdk.plugin.v1.{name}_pb2" for name in modules.split()]
    lines += [f"import berth_sdk.plugin.v1.{name}_pb2_grpc" for name in modules.split()[1:]]

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_absent_and_empty_token_can_be_told_apart() -> None:
    silent = common_pb2.ReplyContext.FromString(common_pb2.ReplyContext().SerializeToString())
    forgetful = common_pb2.ReplyContext.FromString(
        common_pb2.ReplyContext(plugin_token=b"").SerializeToString()
    )

    assert not silent.HasField("plugin_token")
    assert forgetful.HasField("plugin_token")
