"""`Rules`: what versions of kube-scheduler do differently with devices. `TaintRules`: the DeviceTaintRules.

Source: `dynamic-resource-allocation/resourceslice/tracker/tracker.go`, v1.37.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from berth_sdk.handle import ObjectReader

from berth_plugins.args.gates import (
    ALL_DEVICES_BY_NODE,
    ALL_WITH_FULL_DEVICES,
    FULL_CAPACITY_NAMES,
    LOCAL_COUNTER_SLICES,
    POSITIVE_CAPACITY_REQUESTS,
    POSITIVE_STORED_SHARES,
    SHARES_EXCLUDE_WHOLE,
    SINGLE_DEVICE_CONFIG,
    STRICT_DEVICE_AMOUNTS,
    VERSIONS_WITHOUT_BUILD,
    is_on,
)
from berth_plugins.dynamic_resources.devices import Device, DeviceTaint, Slice
from berth_plugins.objects.records import Follower

TAINT_RULES: Final = "resource.k8s.io/devicetaintrules"
TAINT_RULE_KIND: Final = "resource.k8s.io/DeviceTaintRule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of one version; the defaults are the newest version's.

    `taint_rules`: DeviceTaintRules taint devices. `fractional_ranges`: ranges of capacities count in
    thousandths. `strict_amounts`: a count or an amount that cannot be counted ends the attempt.
    `all_with_full_devices`: a request for all devices needs those without room too. `local_counters`: a slice
    with counters is only for the nodes that it names. `single_config`: a claim's configuration is allocated
    once. `all_by_node`: for a request for all devices, a bad pool excludes its nodes. `shares_exclude_whole`:
    a device with a live share is not allocated as a whole. `full_names`: a capacity has one meaning with the
    driver's name and without it. `positive_requests`: a request for a negative capacity ends the attempt.
    `positive_shares`: a claim with a negative share of a device ends the attempts that allocate devices.
    `versions_without_build`: versions that differ in their build part are equal. `of_groups`: groups of pods
    have claims, too. `binding_conditions`: devices that must be prepared before a pod is bound are allocated,
    and PreBind waits for them.
    """

    taint_rules: bool = True
    fractional_ranges: bool = True
    strict_amounts: bool = True
    all_with_full_devices: bool = True
    local_counters: bool = True
    single_config: bool = True
    all_by_node: bool = True
    shares_exclude_whole: bool = True
    full_names: bool = True
    positive_requests: bool = True
    positive_shares: bool = True
    versions_without_build: bool = True
    of_groups: bool = False
    binding_conditions: bool = True

    @staticmethod
    def of(args: Mapping[str, Any]) -> Rules:
        """Read the rules from the plugin's arguments. Raises PluginArgsError."""
        return Rules(
            taint_rules=is_on(args, "DRADeviceTaintRules", default=True),
            fractional_ranges=is_on(args, "DRAFractionalCapacityRange", default=False),
            strict_amounts=is_on(args, STRICT_DEVICE_AMOUNTS, default=True),
            all_with_full_devices=is_on(args, ALL_WITH_FULL_DEVICES, default=True),
            local_counters=is_on(args, LOCAL_COUNTER_SLICES, default=True),
            single_config=is_on(args, SINGLE_DEVICE_CONFIG, default=True),
            all_by_node=is_on(args, ALL_DEVICES_BY_NODE, default=True),
            shares_exclude_whole=is_on(args, SHARES_EXCLUDE_WHOLE, default=True),
            full_names=is_on(args, FULL_CAPACITY_NAMES, default=True),
            positive_requests=is_on(args, POSITIVE_CAPACITY_REQUESTS, default=True),
            positive_shares=is_on(args, POSITIVE_STORED_SHARES, default=True),
            versions_without_build=is_on(args, VERSIONS_WITHOUT_BUILD, default=True),
            of_groups=is_on(args, "DRAWorkloadResourceClaims", default=False),
            binding_conditions=is_on(args, "DRADeviceBindingConditions", default=True)
            and is_on(args, "DRAResourceClaimDeviceStatus", default=True),
        )


@dataclass(frozen=True, slots=True)
class TaintRule:
    """One DeviceTaintRule. `driver`, `pool`, `device`: None means any. A rule without a selector has
    `selects` False: the rule taints nothing.
    """

    taint: DeviceTaint
    selects: bool
    driver: str | None = None
    pool: str | None = None
    device: str | None = None

    @staticmethod
    def of(spec: Mapping[str, Any]) -> TaintRule:
        """Read a spec."""
        selector = spec.get("deviceSelector")
        known = selector or {}
        return TaintRule(
            DeviceTaint.of(spec.get("taint") or {}),
            selector is not None,
            known.get("driver"),
            known.get("pool"),
            known.get("device"),
        )

    def concerns(self, one: Slice) -> bool:
        """Return True if the rule may taint devices of the slice."""
        wanted = ((self.driver, one.pool.driver), (self.pool, one.pool.pool))
        return self.selects and all(name is None or name == its for name, its in wanted)


class TaintRules:
    """The rules of `reader`; None: rules count for nothing."""

    def __init__(self, reader: ObjectReader | None) -> None:
        self._follower = None if reader is None else Follower(reader)
        self._rules: dict[str, TaintRule] = {}

    def refresh(self) -> list[TaintRule]:
        """Read the rules that changed, and return them as they were and as they are."""
        if self._follower is None:
            return []
        moved, reader = self._follower.moved(), self._follower.reader
        names = (
            {*self._rules, *(item.ref.name for item in reader.list())}
            if moved is None
            else {name for _, name in moved}
        )
        changed: list[TaintRule] = []
        for name in names:
            old, item = self._rules.pop(name, None), reader.get(name)
            new = None if item is None else TaintRule.of(item.get("spec") or {})
            if new is not None:
                self._rules[name] = new
            changed += [one for one in (old, new) if one is not None and old != new]
        return changed

    def applied(self, one: Slice) -> Slice:
        """Return the slice with the taints of the rules behind the devices' own, by names of the rules."""
        rules = [rule for _, rule in sorted(self._rules.items()) if rule.concerns(one)]
        if not rules:
            return one
        return replace(one, devices=tuple(_tainted(device, rules) for device in one.devices))


def _tainted(device: Device, rules: Iterable[TaintRule]) -> Device:
    more = tuple(rule.taint for rule in rules if rule.device in (None, device.id.device))
    return replace(device, taints=(*device.taints, *more)) if more else device
