"""A served plugin that reads the pod's spec without declaring it is refused with the cure."""

from __future__ import annotations

from typing import Any

import grpc
from berth_sdk import Plugin, Pod, Status
from berth_sdk.node import Node
from support.sdk_server import RawHost, refused

from .conftest import Serve


class ReadsSpec(Plugin):
    def filter(self, state: Any, pod: Pod, node: Any) -> Status:
        if pod.spec.get("hostNetwork"):
            return Status.unschedulable("host network")
        return Status.success()


def test_undeclared_spec_is_an_error_with_the_cure(serve: Serve) -> None:
    host: RawHost = serve(ReadsSpec).host
    host.attach()
    host.give_nodes(Node(name="n0"))
    error = refused(lambda: host.filter("ReadsSpec", Pod(name="p", uid="u")))
    assert error.code() is grpc.StatusCode.INTERNAL
    cure = "UndeclaredError: ReadsSpec reads pod.spec, which it did not declare: add Need.whole_pod() to"
    assert cure in (error.details() or "")
