"""UsedPorts and the ports of node columns, beside a comparison of each port with each other one."""

from __future__ import annotations

from berth_sdk.pod import HostPort
from berth_sdk.tables.node_columns import NodeColumns, NodeUsage
from berth_sdk.tables.used_ports import UsedPorts
from berth_sdk.testing import make_node
from hypothesis import given
from hypothesis import strategies as st

PORTS = st.builds(
    HostPort,
    st.sampled_from(["", "0.0.0.0", "10.0.0.1", "10.0.0.2", "::"]),
    st.sampled_from(["", "TCP", "UDP"]),
    st.sampled_from([80, 81]),
)


def conflict(first: HostPort, second: HostPort) -> bool:
    one, other = first.normalized, second.normalized
    if (one.protocol, one.port) != (other.protocol, other.port):
        return False
    return one.ip == other.ip or "0.0.0.0" in (one.ip, other.ip)


@given(st.lists(PORTS), st.lists(PORTS))
def test_ports_conflict_as_each_with_each(used: list[HostPort], wanted: list[HostPort]) -> None:
    ports = UsedPorts(used)
    for port in wanted:
        found = {one.normalized for one in used if conflict(port, one)}
        assert set(ports.in_conflict(port)) == found
    assert ports.conflict_with(wanted) == any(conflict(one, other) for one in used for other in wanted)


@given(st.lists(st.tuples(st.integers(0, 19), st.frozensets(PORTS.map(lambda one: one.normalized)))), PORTS)
def test_columns_show_where_ports_are_taken(
    writes: list[tuple[int, frozenset[HostPort]]], wanted: HostPort
) -> None:
    columns = NodeColumns()
    for slot in range(20):
        columns.add(make_node(f"n{slot}"), slot)
    last: dict[int, frozenset[HostPort]] = {}
    for slot, ports in writes:
        columns.set_usage(slot, NodeUsage(host_ports=ports))
        last[slot] = ports
    taken = [any(conflict(wanted, one) for one in last.get(slot, ())) for slot in range(20)]
    assert columns.ports_in_conflict([wanted])[:20].tolist() == taken
    kept = {(protocol, number, ip) for (protocol, number), ips in columns.port_users.items() for ip in ips}
    assert kept == {(one.protocol, one.port, one.ip) for ports in last.values() for one in ports}
