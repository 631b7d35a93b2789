"""Limits on connections, and which one is closed when there is no room."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.listening.connections import (
    LEAST_OPEN,
    MOST_OF_PEER,
    MOST_OPEN,
    Connection,
    Connections,
    Limits,
    Phase,
    limits_within,
    peer_of,
)
from berth_host.metrics.connection_metrics import ConnectionMetrics
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from structlog.testing import capture_logs

LIMITS = Limits(in_all=6, of_peer=3)
PEERS = ["a", "b", "c"]


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        (("10.1.2.3", 5), "10.1.2.3"),
        (("::ffff:10.1.2.3", 5, 0, 0), "10.1.2.3"),
        (("2001:db8:1:2:3:4:5:6", 5, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 5, 0, 2), "fe80::/64"),
        (("::1", 5, 0, 0), "::/64"),
        ("", "unix"),
        (b"\0name", "unix"),
        ((), "unix"),
        (("name", 1), "name"),
    ],
)
def test_peer_is_the_address_or_the_network_of_one_machine(address: Any, peer: str) -> None:
    assert peer_of(address) == peer


@pytest.mark.parametrize(
    ("descriptors", "limits"),
    [
        (1 << 20, Limits(MOST_OPEN, MOST_OF_PEER)),
        (1024, Limits(MOST_OPEN, MOST_OF_PEER)),
        (256, Limits(64, 48)),
        (16, Limits(LEAST_OPEN, 6)),
    ],
)
def test_limits_leave_descriptors_for_the_rest_of_the_process(descriptors: int, limits: Limits) -> None:
    assert limits_within(descriptors) == limits


class ConnectionsMachine(RuleBasedStateMachine):
    """Connections come, ask, and go, in any order."""

    made = Bundle("made")

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.metrics = ConnectionMetrics()
        self.connections = Connections("p", self.metrics, LIMITS, lambda: self.now_s)
        self.closed: set[int] = set()
        self.number = 0
        self.numbers: dict[Connection, int] = {}

    def teardown(self) -> None:
        count = self.metrics.events.value
        assert count(("p", "accepted")) == len(self.numbers)
        assert count(("p", "closed_for_room")) == len(self.closed)

    @rule(target=made, peer=st.sampled_from(PEERS), later_s=st.integers(0, 2))
    def admit(self, peer: str, later_s: int) -> Connection | None:
        self.now_s += later_s
        before = self.connections.all()
        number = self.number = self.number + 1
        silent = [one for one in before if one.phase is not Phase.ANSWERING]
        strangers = [one for one in before if one.peer == peer and not one.is_known]
        with capture_logs():
            found = self.connections.admit(peer, lambda: self.closed.add(number))
        gone = [one for one in before if one not in self.connections]
        if len(strangers) >= LIMITS.of_peer:
            assert gone == [min(strangers, key=lambda one: one.spoke_s)]
        elif len(before) >= LIMITS.in_all:
            if not silent:
                assert found is None
                return None
            assert gone == [min(silent, key=lambda one: (one.is_known, one.spoke_s))]
        else:
            assert not gone
        assert found is not None
        self.numbers[found] = number
        assert {self.numbers[one] for one in gone} <= self.closed
        return found

    @rule(connection=made)
    def know(self, connection: Connection | None) -> None:
        if connection is not None and connection in self.connections:
            self.connections.know(connection)

    @rule(connection=made, phase=st.sampled_from([Phase.WAITING, Phase.HANDSHAKING, Phase.IDLE]))
    def speak(self, connection: Connection | None, phase: Phase) -> None:
        if connection is not None:
            self.connections.spoke(connection, phase)

    @rule(connection=consumes(made))
    def remove(self, connection: Connection | None) -> None:
        if connection is not None:
            self.connections.remove(connection)
            self.connections.remove(connection)

    @invariant()
    def limits_hold(self) -> None:
        found = self.connections.all()
        assert len(found) <= LIMITS.in_all
        for peer in PEERS:
            assert sum(one.peer == peer and not one.is_known for one in found) <= LIMITS.of_peer
        assert sum(self.connections.phases().values()) == len(found)


TestConnections = ConnectionsMachine.TestCase
