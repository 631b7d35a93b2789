"""How calls are made and checked follows from the descriptor of the instance."""

from __future__ import annotations

from dataclasses import replace

from berth_host.metrics.plugin_stats import PluginStats
from berth_host.rpc.call_limits import Terms
from berth_host.rpc.call_rules import PointPolicy
from berth_host.rpc.calls import FILTER, PRE_BIND
from berth_host.rpc.route import ClientSettings
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.status import Status
from support.relays import Facts, local_client, make_cycle


class Plain:
    """Takes part at Filter."""

    def filter(self, state: object, pod: object, node: object) -> Status:
        return Status()


def terms(descriptor: Descriptor, **points: PointPolicy) -> Terms:
    return Terms(descriptor, Facts(), ClientSettings(points=points), PluginStats("Plain"))


def test_points_and_wishes_are_those_of_the_descriptor_and_the_operators_word_clamps_them() -> None:
    descriptor = replace(local_client(Plain()).descriptor, deadlines={"filter": 0.05})
    assert terms(descriptor).rules["Filter"].deadline_s == 0.05
    assert terms(descriptor, filter=PointPolicy(0.01)).rules["Filter"].deadline_s == 0.01
    assert terms(descriptor).serves(ExtensionPoint.FILTER)
    assert not terms(descriptor).serves(ExtensionPoint.PRE_BIND)


def test_a_kind_of_call_is_counted_for_the_plugin_and_timed_in_its_cycle() -> None:
    cycle, some = make_cycle(), terms(local_client(Plain()).descriptor)
    some.of(FILTER).observe(cycle, 0.25)
    some.of(FILTER).observe(None, 0.5)
    assert some.of(FILTER) is some.of(FILTER)
    assert some.of(FILTER).stats.calls == 2
    assert some.of(PRE_BIND).stats.calls == 0
    assert cycle.account.timings_s == {("Plain", "Filter"): 0.25}
