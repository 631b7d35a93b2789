"""Answers of success that are not the API server's own: an intermediary's page, a cut or an empty body.

Such an answer says nothing about the request. The call raises an error whose outcome is unknown, and its
caller reads the object, as after a lost answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from berth_host.config.decoding.types_v1 import LeaderElection
from berth_host.cycle.readback import ReadBack
from berth_host.cycle.repeating import RepeatingBinder
from berth_host.cycle.status_patch import patch_status
from berth_host.errors.cluster import ClusterError, RepeatableError, UnavailableError
from berth_host.errors.endpoints import ReviewError
from berth_host.model.clock import ManualClock, RealClock
from berth_host.model.patch_type import PatchType
from berth_host.model.user import User
from berth_kube.client import KubeClient
from berth_kube.cluster import KubeCluster
from berth_kube.lease_client import KubeLeases
from berth_kube.reviews import KubeReviewer
from berth_sdk.kube_object import ObjectRef
from berth_sdk.testing.builders import make_pod
from support.kube_api import Answer, KubeApi

WEB = ObjectRef(name="web", namespace="default")
CLAIM = "resource.k8s.io/resourceclaims"
BODIES: dict[str, Any] = {
    "nothing": b"",
    "blanks": b" \n",
    "a page": b"<html><body>Please log in</body></html>",
    "text": b"ok",
    "a cut Status": b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Suc',
    "an empty object": {},
    "a list": [{"kind": "Status", "status": "Success"}],
    "another object": {"kind": "Login", "metadata": {"name": "web"}},
    "a Status without a result": {"kind": "Status", "apiVersion": "v1", "metadata": {}},
    "no UTF-8": b'{"kind":"Status","status":"\xff"}',
}
Write = Callable[[KubeCluster], Awaitable[object]]
WRITES: dict[str, tuple[str, str, Write]] = {
    "bind": ("POST", "/binding", lambda cluster: cluster.bind(WEB, "n1")),
    "delete": ("DELETE", "/web", lambda cluster: cluster.delete("pods", WEB)),
    "delete with a uid": (
        "DELETE",
        "/web",
        lambda cluster: cluster.delete("pods", ObjectRef(name="web", namespace="default"), same_uid=True),
    ),
    "patch": ("PATCH", "/web", lambda cluster: cluster.patch("pods", WEB, {})),
    "patch of a status": (
        "PATCH",
        "/status",
        lambda cluster: cluster.patch("pods", WEB, {}, patch_type=PatchType.STRATEGIC, subresource="status"),
    ),
    "update": (
        "PUT",
        "/web",
        lambda cluster: cluster.update(CLAIM, {"metadata": {"name": "web", "namespace": "default"}}),
    ),
    "create": ("POST", "/resourceclaims", lambda cluster: cluster.create(CLAIM, WEB, {})),
    "get": ("GET", "/web", lambda cluster: cluster.get("pods", WEB)),
}


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("write", WRITES)
async def test_call_with_an_unreadable_answer_has_an_unknown_outcome(
    api: KubeApi, cluster: KubeCluster, write: str
) -> None:
    method, path_end, call = WRITES[write]
    for body in BODIES.values():
        api.answers.append(Answer(method, path_end, 200, body))
        with pytest.raises(UnavailableError) as caught:
            await call(cluster)
        assert not caught.value.outcome_known
        assert not api.answers


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("write", WRITES)
async def test_refusal_without_a_status_has_an_unknown_outcome(
    api: KubeApi, cluster: KubeCluster, write: str
) -> None:
    method, path_end, call = WRITES[write]
    for code in (400, 403, 404, 409, 418):
        api.answers.append(Answer(method, path_end, code, BODIES["a page"]))
        with pytest.raises(ClusterError, match="Please log in") as caught:
            await call(cluster)
        assert not caught.value.outcome_known


async def test_error_names_the_call_and_the_cure(api: KubeApi, cluster: KubeCluster) -> None:
    api.answers.append(Answer("POST", "/binding", 200, BODIES["a page"]))
    with pytest.raises(UnavailableError, match=r"pods 'default/web'.*Please log in.*proxy or load balancer"):
        await cluster.bind(WEB, "n1")


async def test_failure_in_an_answer_of_success_is_the_failure(api: KubeApi, cluster: KubeCluster) -> None:
    failure = {"kind": "Status", "status": "Failure", "code": 403, "message": "no"}
    api.answers.append(Answer("POST", "/binding", 200, failure))
    with pytest.raises(ClusterError, match=r"^no$") as caught:
        await cluster.bind(WEB, "n1")
    assert caught.value.outcome_known


async def test_deletion_answered_with_the_object_is_done_however_deep_it_is(
    api: KubeApi, cluster: KubeCluster
) -> None:
    deep = b'{"f:a":' * 1100 + b"{}" + b"}" * 1100
    body = b'{"kind":"Pod","apiVersion":"v1","metadata":{"managedFields":[{"fieldsV1":' + deep + b"}]}}\n"
    api.answers.append(Answer("DELETE", "/web", 200, body))
    await cluster.delete("pods", WEB)


@pytest.mark.parametrize("is_bound", [True, False])
async def test_binding_with_an_unreadable_answer_is_sent_once_and_its_pod_is_read(
    api: KubeApi, cluster: KubeCluster, clock: ManualClock, is_bound: bool
) -> None:
    await api.put("pods", "web", spec={"nodeName": "n1"} if is_bound else {})
    pod = make_pod("web", uid=api.objects["pods"]["default/web"]["metadata"]["uid"])
    for count, body in enumerate(BODIES.values(), 1):
        api.answers.append(Answer("POST", "/binding", 200, body))
        with pytest.raises(UnavailableError) as caught:
            await RepeatingBinder(cluster).bind(pod.ref, "n1")
        assert not isinstance(caught.value, RepeatableError)
        assert len(api.seen("POST", "/binding")) == count
        assert await ReadBack(cluster, clock).node_of(pod) == ("n1" if is_bound else "")


@pytest.mark.parametrize("code", [200, 404])
async def test_page_in_place_of_a_pod_does_not_mean_that_the_pod_is_gone(
    api: KubeApi, cluster: KubeCluster, code: int
) -> None:
    await api.put("pods", "web", spec={"nodeName": "n1"})
    pod = make_pod("web", uid=api.objects["pods"]["default/web"]["metadata"]["uid"])
    api.answers.append(Answer("GET", "/web", code, BODIES["a page"]))
    assert await ReadBack(cluster, RealClock()).node_of(pod) == "n1"
    assert len(api.seen("GET", "/web")) == 2


async def test_status_patch_with_an_unreadable_answer_is_sent_again(
    api: KubeApi, cluster: KubeCluster
) -> None:
    await api.put("pods", "web")
    api.answers.append(Answer("PATCH", "/status", 200, BODIES["nothing"]))
    written = await patch_status(cluster, WEB, {"nominatedNodeName": "n1"})
    assert written.ref.name == "web"
    assert len(api.seen("PATCH", "/status")) == 2


async def test_unreadable_answer_renews_no_lease(
    api: KubeApi, client: KubeClient, clock: ManualClock
) -> None:
    leases = KubeLeases(client, LeaderElection(resource_namespace="default", resource_name="l"), "me", clock)
    for body in BODIES.values():
        api.answers += [
            Answer("PUT", "/l", 200, body),
            Answer("POST", "/leases", 201, body),
            Answer("GET", "/l", 200, body),
        ]
        for call in (leases.update({}), leases.create({}), leases.get()):
            with pytest.raises(UnavailableError):
                await call
    await leases.close()


async def test_unreadable_review_neither_grants_nor_refuses(api: KubeApi, client: KubeClient) -> None:
    reviewer = KubeReviewer(client, client)
    user = User(name="u", uid="", groups=(), extra={})
    for body in BODIES.values():
        api.answers += [
            Answer("POST", "/tokenreviews", 201, body),
            Answer("POST", "/subjectaccessreviews", 201, body),
            Answer("GET", "/extension-apiserver-authentication", 200, body),
        ]
        for call in (reviewer.user_of("t"), reviewer.may(user, "get", "/metrics"), reviewer.trust()):
            with pytest.raises(ReviewError):
                await call


async def test_page_is_no_list(api: KubeApi, cluster: KubeCluster) -> None:
    api.answers.append(Answer("GET", "/pods", 200, {"items": []}))
    with pytest.raises(UnavailableError, match="no list"):
        await cluster.list("pods", "default", {})
