"""The embedded server refuses in the words of a real API server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from berth_host.errors.cluster import ClusterError
from berth_host.model.clock import ManualClock
from berth_sdk.kube_object import ObjectRef
from berth_sim.cluster.server import ApiServer
from support.manifest_objects import node_object, pod_object

WEB = ObjectRef(namespace="default", name="web")
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "c", "namespace": "default"},
    "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}}]}},
}


def gated(server: ApiServer) -> object:
    server.delete("pods", WEB)
    server.create(pod_object("web", schedulingGates=[{"name": "example.com/wait"}]))
    return server.bind(WEB, "n1")


def terminating(server: ApiServer) -> object:
    server.patch("pods", WEB, {"metadata": {"finalizers": ["example.com/hold"]}})
    server.delete("pods", WEB)
    return server.bind(WEB, "n1")


def twice(server: ApiServer) -> object:
    server.bind(WEB, "n2")
    return server.bind(WEB, "n1")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda s: s.bind(ObjectRef(namespace="default", name="p1"), "n1"), 'pods "p1" not found'),
        (
            lambda s: s.patch("resource.k8s.io/resourceclaims", ObjectRef(namespace="a", name="b"), {}),
            'resourceclaims.resource.k8s.io "b" not found',
        ),
        (
            twice,
            'Operation cannot be fulfilled on pods/binding "web": pod web is already assigned to node "n2"',
        ),
        (
            gated,
            'Operation cannot be fulfilled on pods/binding "web": '
            "pod web has non-empty .spec.schedulingGates",
        ),
        (
            terminating,
            'Operation cannot be fulfilled on pods/binding "web": '
            "pod web is being deleted, cannot be assigned to a host",
        ),
        (
            lambda s: s.patch("pods", WEB, {}, expected_resource_version="1"),
            f'Operation cannot be fulfilled on pods "web": {MODIFIED}',
        ),
        (
            lambda s: s.patch(
                "resource.k8s.io/resourceclaims", s.create(CLAIM).ref, {}, expected_resource_version="1"
            ),
            f'Operation cannot be fulfilled on resourceclaims.resource.k8s.io "c": {MODIFIED}',
        ),
        (lambda s: s.create(pod_object("web")), 'pods "web" already exists'),
        (
            lambda s: s.create(node_object("A")),
            "Node \"A\" is invalid: metadata.name: Invalid value: 'A' is not a DNS name: "
            "use at most 253 lower case letters, digits, '-' and '.'",
        ),
        (
            lambda s: s.create(
                {**pod_object("other"), "spec": {"containers": [{"image": "x"}, {"image": "y"}]}}
            ),
            'Pod "other" is invalid: [spec.containers[0].name: Required value, '
            "spec.containers[1].name: Required value]",
        ),
        (
            lambda s: s.create({**pod_object("other"), "spec": {"containers": []}}),
            'Pod "other" is invalid: spec.containers: Required value',
        ),
        (
            lambda s: s.delete("pods", ObjectRef(namespace="default", name="web", uid="u")),
            'Operation cannot be fulfilled on Pod "web": the UID in the precondition (u) does not match '
            "the UID in record (00000000-0000-4000-8000-000000000001). "
            "The object might have been deleted and then "
            "recreated",
        ),
    ],
)
def test_refusal_is_worded_as_the_api_server_words_it(call: Callable[[ApiServer], Any], says: str) -> None:
    server = ApiServer(ManualClock(1_800_000_000))
    server.create(pod_object("web"))
    with pytest.raises(ClusterError) as caught:
        call(server)
    assert caught.value.server_message == str(caught.value) == says
