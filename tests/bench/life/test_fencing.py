"""The law of the Lease: who may write is judged by the moment of sending."""

from __future__ import annotations

from typing import Any

import pytest
from berth_bench.life.api_servers import Arrived
from berth_bench.life.fencing import LEASES, Fencing
from berth_host.cluster.port import WatchEvent
from berth_sdk.kube_object import KubeObject

SLACK_S = 0.1
DURATION_S = 15


class Law:
    """The law, with a clock that is set."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.law = Fencing(lambda: self.now_s, SLACK_S)

    def holds(self, when_s: float, holder: str) -> str:
        self.now_s = when_s
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "kube-scheduler", "namespace": "kube-system"},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": DURATION_S},
        }
        made = KubeObject("coordination.k8s.io/v1", "Lease", parsed=lease)
        return self.law.see(WatchEvent("Lease", None, made))


def bind(client: str, sent_s: float, **more: Any) -> Arrived:
    return Arrived(
        **{"client": client, "sent_s": sent_s, "call": "bind", "resource": "pods", "key": "d/p", **more}
    )


@pytest.fixture
def law() -> Law:
    made = Law()
    assert made.holds(10, "host-1.1_a") == "host-1.1_a"
    assert made.holds(20, "host-1.1_a") == ""
    assert made.holds(30, "host-2.1_b") == "host-2.1_b"
    # Renewed after it had run out.
    assert made.holds(60, "host-2.1_b") == ""
    return made


@pytest.mark.parametrize(
    ("request_", "is_broken"),
    [
        (bind("host-1.1", 10), False),
        (bind("host-1.1", 30 + SLACK_S / 2), False),
        (bind("host-2.1", 31), False),
        (bind("host-2.1", 45 + SLACK_S / 2), False),
        (bind("host-2.1", 45 + SLACK_S), True),
        (bind("host-2.1", 59), True),
        (bind("host-2.1", 60), False),
        (bind("host-1.1", 30 + SLACK_S), True),
        (bind("host-1.1", 9), True),
        (bind("host-2.1", 29), True),
        (bind("host-3.1", 25), True),
        (bind("host-1.1", 31, call="delete"), True),
        (bind("host-1.1", 31, call="watch"), False),
        (bind("host-1.1", 31, resource=LEASES, call="update"), False),
        (bind("host-1.1", 31, resource="events", key="", call="create"), False),
    ],
)
def test_write_is_judged_by_the_holder_at_the_moment_of_sending(
    law: Law, request_: Arrived, is_broken: bool
) -> None:
    law.law.arrived(request_)
    assert bool(law.law.broken) is is_broken


def test_write_that_was_sent_in_time_is_late_when_the_lease_has_changed(law: Law) -> None:
    law.now_s = 65
    sent_in_time = bind("host-1.1", 29)
    law.law.arrived(sent_in_time)
    assert law.law.broken == ""
    assert law.law.is_late(sent_in_time)
    assert not law.law.is_late(bind("host-2.1", 64))
    assert law.law.late_count == 1


def test_nobody_may_write_after_the_lease_was_given_up(law: Law) -> None:
    law.holds(70, "")
    law.law.arrived(bind("host-2.1", 71))
    assert "host-2.1 sent bind pods d/p at 71.000000 s, and the Lease was of nobody" in law.law.broken


def test_renewal_is_the_last_write_of_a_holder(law: Law) -> None:
    assert law.law.renewed_s == 60
    law.holds(62, "host-2.1_b")
    assert law.law.renewed_s == 62
    law.holds(64, "")
    assert law.law.renewed_s == 62
