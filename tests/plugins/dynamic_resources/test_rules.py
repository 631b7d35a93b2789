"""Differences between versions of kube-scheduler in devices: taints by rules, amounts, all devices."""

from __future__ import annotations

from typing import Any

import pytest
from berth_plugins.dynamic_resources.binding import is_overdue
from berth_plugins.dynamic_resources.capacity import AmountError, consumed, fits
from berth_plugins.dynamic_resources.devices import Slice
from berth_plugins.dynamic_resources.plugin import DynamicResources
from berth_plugins.dynamic_resources.requests import requests_of
from berth_plugins.dynamic_resources.rules import Rules
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.testing import make_node, make_table
from support.asking import Ask, Plug
from support.device_objects import DRIVER, claim, device, device_class, exactly, pod_with, resource_slice
from support.emulated_version import args_of

Json = dict[str, Any]
NODES = make_table([make_node("n1")])
CANNOT = Status.unresolvable("cannot allocate all claims")
OLD = Rules(fractional_ranges=False, strict_amounts=False)
MOST = 2**63 - 1


def rule(name: str, selector: Json | None, effect: str = "NoSchedule") -> Json:
    spec: Json = {"taint": {"key": "example.com/broken", "value": "yes", "effect": effect}}
    if selector is not None:
        spec["deviceSelector"] = selector
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name},
        "spec": spec,
    }


def plug(claims: list[Json], rules: list[Json], slices: list[Json], version: str = "", **gates: bool) -> Plug:
    args = args_of("DynamicResources", version)
    return Plug(
        DynamicResources,
        {**args, "featureGates": {**args.get("featureGates", {}), **gates}},
        {
            "resource.k8s.io/resourceclaims": claims,
            "resource.k8s.io/resourceslices": slices,
            "resource.k8s.io/deviceclasses": [device_class()],
            "resource.k8s.io/devicetaintrules": rules,
        },
    )


ONE = [resource_slice("n1", [device("d0")])]
TWO = [resource_slice("n1", [device("d0"), device("d1")])]
WEB = Pod.from_object(pod_with("c"))


@pytest.mark.parametrize(
    ("selector", "effect", "is_tainted"),
    [
        pytest.param({}, "NoSchedule", True, id="any device"),
        pytest.param({"driver": DRIVER}, "NoExecute", True, id="the driver"),
        pytest.param({"driver": DRIVER, "pool": "n1", "device": "d0"}, "NoSchedule", True, id="the device"),
        pytest.param({"device": "d1"}, "NoSchedule", False, id="another device"),
        pytest.param({"pool": "n2"}, "NoSchedule", False, id="another pool"),
        pytest.param({"driver": "other"}, "NoSchedule", False, id="another driver"),
        pytest.param({}, "None", False, id="without effect"),
        pytest.param(None, "NoSchedule", False, id="no selector"),
    ],
)
async def test_rule_taints_the_devices_that_it_selects(
    ask: Ask, selector: Json | None, effect: str, is_tainted: bool
) -> None:
    rules = [rule("r", selector, effect)]
    want = CANNOT if is_tainted else SUCCESS
    assert await ask.filter(plug([claim("c")], rules, ONE), WEB, NODES) == [want]


async def test_other_devices_are_left_and_tolerations_count(ask: Ask) -> None:
    rules = [rule("r", {"device": "d0"})]
    assert await ask.filter(plug([claim("c")], rules, TWO), WEB, NODES) == [SUCCESS]
    two = claim("c", exactly(count=2))
    assert await ask.filter(plug([two], rules, TWO), WEB, NODES) == [CANNOT]
    tolerant = claim("c", exactly(count=2, tolerations=[{"operator": "Exists"}]))
    assert await ask.filter(plug([tolerant], rules, TWO), WEB, NODES) == [SUCCESS]


@pytest.mark.parametrize(("version", "want"), [("", CANNOT), ("1.37", CANNOT), ("1.36", SUCCESS)])
async def test_rules_taint_devices_since_1_37(ask: Ask, version: str, want: Status) -> None:
    rules = [rule("r", {})]
    assert await ask.filter(plug([claim("c")], rules, ONE, version), WEB, NODES) == [want]


def ranged(value: str, least: str, step: str, most: str = "") -> Slice:
    span = {"min": least, "step": step, **({"max": most} if most else {})}
    capacity = {"memory": {"value": value, "requestPolicy": {"default": least, "validRange": span}}}
    one = resource_slice("n1", [device("d0", allowMultipleAllocations=True, capacity=capacity)])
    return Slice.of(KubeObject.of(one))


def taken(wanted: str, one: Slice, rules: Rules) -> str | None:
    """The text of the amount that a request takes; None: it does not fit."""
    spec = claim("c", exactly(capacity={"requests": {"memory": wanted}}))["spec"]
    ((request,),) = (found.alternatives for found in requests_of(spec))
    (found,) = one.devices
    if not fits(request, found, {}, {}, rules):
        return None
    return consumed(request, found, rules)["memory"][1]


@pytest.mark.parametrize(
    ("wanted", "limits", "new", "old"),
    [
        pytest.param("1200m", ("10", "500m", "500m"), "1500m", "2", id="steps of parts of a unit"),
        pytest.param("1", ("10", "500m", "250m"), "1", "1", id="a whole number stays short"),
        pytest.param("3Gi", ("8Gi", "2Gi", "2Gi"), "4Gi", "4Gi", id="binary steps"),
        pytest.param("1000", ("1M", "1k", "1k"), "1000", "1000", id="decimal steps"),
        pytest.param("2500m", ("4", "1", "1", "2"), None, None, id="above the most"),
        pytest.param("100m", ("10", "500m", "500m"), "500m", "500m", id="below the least"),
    ],
)
def test_amounts_are_rounded_up_to_a_step(
    wanted: str, limits: tuple[str, ...], new: str | None, old: str | None
) -> None:
    assert taken(wanted, ranged(*limits), Rules()) == new
    assert taken(wanted, ranged(*limits), OLD) == old


@pytest.mark.parametrize(
    ("wanted", "limits", "words"),
    [
        pytest.param("1.0005", ("10", "500m", "500m"), "not a representable milli value", id="too fine"),
        pytest.param(str(MOST // 1000), ("9E", "2", "2"), "passes the milli-value range", id="milli"),
        pytest.param(str(MOST + 1), ("9E", "1u", "1"), "exceeds MaxInt64", id="too large"),
        pytest.param(str(MOST), ("9E", "1u", "4"), "passes MaxInt64", id="rounded too large"),
    ],
)
def test_amount_that_cannot_be_counted_is_an_error(wanted: str, limits: tuple[str, ...], words: str) -> None:
    with pytest.raises(AmountError, match=words):
        taken(wanted, ranged(*limits), Rules())
    taken(wanted, ranged(*limits), OLD)


async def test_amount_that_cannot_be_counted_ends_the_attempt(ask: Ask) -> None:
    capacity = {
        "memory": {
            "value": "10",
            "requestPolicy": {"default": "500m", "validRange": {"min": "500m", "step": "500m"}},
        }
    }
    slices = [resource_slice("n1", [device("d0", allowMultipleAllocations=True, capacity=capacity)])]
    item = claim("c", exactly(capacity={"requests": {"memory": "1.0005"}}))
    plugin = plug([item], [], slices, DRAFractionalCapacityRange=True)
    (status,) = await ask.filter(plugin, WEB, NODES)
    assert status.code is Code.ERROR
    assert status.message.startswith(
        f"claim default/c, request r: checking capacity for device {DRIVER}/n1/d0:"
        ' capacity "memory": capacity request cannot be represented'
    )
    (status,) = await ask.filter(plug([item], [], slices, "1.36"), WEB, NODES)
    assert status == SUCCESS


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("1.37", "request b: adding 17 devices exceeds the claim limit of 32, with 16 already accounted for"),
        ("1.36", "number of requested devices 33 exceeds the claim limit of 32"),
    ],
)
async def test_too_many_devices_are_an_error(ask: Ask, version: str, words: str) -> None:
    item = claim("c", exactly("a", count=16), exactly("b", count=17))
    (status,) = await ask.filter(plug([item], [], ONE, version), WEB, NODES)
    assert status.code is Code.ERROR
    assert words in status.message


@pytest.mark.parametrize(("version", "want"), [("1.37", CANNOT), ("1.36", SUCCESS)])
async def test_all_devices_include_those_without_room_since_1_37(
    ask: Ask, version: str, want: Status
) -> None:
    capacity = {"memory": {"value": "10"}}
    shared = [device(f"d{i}", allowMultipleAllocations=True, capacity=capacity) for i in range(2)]
    full = claim("full", allocated=["n1/d0"])
    (result,) = full["status"]["allocation"]["devices"]["results"]
    result |= {"shareID": "0c7a9b1e-3a4f-4a43-9a51-0e8b1b1f0001", "consumedCapacity": {"memory": "10"}}
    item = claim("c", exactly(allocationMode="All", capacity={"requests": {"memory": "1"}}))
    slices = [resource_slice("n1", shared)]
    assert await ask.filter(plug([item, full], [], slices, version), WEB, NODES) == [want]


CONDITIONS: Json = {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}


@pytest.mark.parametrize(("is_on", "want"), [(True, SUCCESS), (False, CANNOT)])
@pytest.mark.parametrize("mode", [{}, {"allocationMode": "All"}])
async def test_devices_that_must_be_prepared_are_left_when_their_gate_is_off(
    ask: Ask, mode: Json, is_on: bool, want: Status
) -> None:
    slices = [resource_slice("n1", [device("d0", **CONDITIONS)])]
    plugin = plug([claim("c", exactly(**mode))], [], slices, DRADeviceBindingConditions=is_on)
    assert await ask.filter(plugin, WEB, NODES) == [want]


@pytest.mark.parametrize(
    ("is_on", "want"),
    [(True, Status.unresolvable("resourceclaim not available on the node")), (False, SUCCESS)],
)
async def test_a_claim_whose_device_failed_counts_as_any_other_when_the_gate_is_off(
    ask: Ask, is_on: bool, want: Status
) -> None:
    failed = claim("c", allocated=["n1/d0"])
    (result,) = failed["status"]["allocation"]["devices"]["results"]
    result |= CONDITIONS
    broken = {"type": "Broken", "status": "True"}
    device_status = {"driver": DRIVER, "pool": "n1", "device": "d0", "conditions": [broken]}
    failed["status"]["devices"] = [device_status]
    plugin = plug([failed], [], ONE, DRADeviceBindingConditions=is_on)
    assert await ask.filter(plugin, WEB, NODES) == [want]


@pytest.mark.parametrize(
    ("written", "is_over"),
    [
        ("1970-01-01T00:00:10Z", True),
        ("1970-01-01T12:00:10+12:00", True),
        ("1970-01-01T00:00:41Z", False),
        pytest.param("1970-01-01T00:00:10", False, id="without a zone it is no time, as upstream"),
    ],
)
def test_time_for_devices_to_get_ready_is_counted_from_the_allocation(written: str, is_over: bool) -> None:
    ready = {"driver": DRIVER, "pool": "n1", "device": "d0", "bindingConditions": ["Ready"]}
    allocation = {"devices": {"results": [ready]}, "allocationTimestamp": written}
    made = KubeObject.of({**claim("a"), "status": {"allocation": allocation}})
    assert is_overdue(made, timeout_s=60.0, now_s=100.0) is is_over


SHARE = "0c7a9b1e-3a4f-4a43-9a51-0e8b1b1f0001"
OWN, BEFORE = "", "1.37"


def shared(name: str, amounts: Json, at: str = "n1/d0") -> Json:
    """Return a claim that has a share of a device."""
    made = claim(name, allocated=[at])
    (result,) = made["status"]["allocation"]["devices"]["results"]
    result |= {"shareID": SHARE, "consumedCapacity": amounts}
    return made


def shareable(*names: str) -> list[Json]:
    devices = [device("d0", allowMultipleAllocations=True, capacity={name: {"value": "8"} for name in names})]
    return [resource_slice("n1", devices)]


@pytest.mark.parametrize("published", ["memory", f"{DRIVER}/memory"])
@pytest.mark.parametrize("wanted", ["memory", f"{DRIVER}/memory"])
@pytest.mark.parametrize("version", [OWN, "1.38", BEFORE])
async def test_capacity_has_one_meaning_with_its_domain_and_without_it_since_1_38(
    ask: Ask, published: str, wanted: str, version: str
) -> None:
    item = claim("c", exactly(capacity={"requests": {wanted: "6"}}))
    want = SUCCESS if version != BEFORE or published == wanted else CANNOT
    assert await ask.filter(plug([item], [], shareable(published), version), WEB, NODES) == [want]


@pytest.mark.parametrize("stored", ["memory", f"{DRIVER}/memory"])
async def test_share_counts_after_its_capacity_was_published_by_another_name(ask: Ask, stored: str) -> None:
    item = claim("c", exactly(capacity={"requests": {"memory": "3"}}))
    claims = [item, shared("other", {stored: "6"})]
    assert await ask.filter(plug(claims, [], shareable("memory")), WEB, NODES) == [CANNOT]
    assert await ask.filter(plug(claims, [], shareable(f"{DRIVER}/memory")), WEB, NODES) == [CANNOT]


async def test_capacity_that_is_requested_by_both_names_ends_the_attempt(ask: Ask) -> None:
    item = claim("c", exactly(capacity={"requests": {"memory": "1", f"{DRIVER}/memory": "1"}}))
    (status,) = await ask.filter(plug([item], [], shareable("memory")), WEB, NODES)
    assert status.code is Code.ERROR
    assert f'capacity "memory" requested both as "{DRIVER}/memory" and as "memory"' in status.message


@pytest.mark.parametrize("name", ["memory", f"{DRIVER}/memory"])
def test_amount_is_named_as_the_slice_names_the_capacity(name: str) -> None:
    raw = resource_slice("n1", [device("d0", allowMultipleAllocations=True, capacity={name: {"value": "8"}})])
    (one,) = Slice.of(KubeObject.of(raw)).devices
    spec = claim("c", exactly(capacity={"requests": {"memory": "6"}}))["spec"]
    (request,) = requests_of(spec)[0].alternatives
    assert consumed(request, one, Rules()) == {name: (6 * 10**9, "6")}


@pytest.mark.parametrize(("version", "want"), [(OWN, CANNOT), ("1.38", CANNOT), (BEFORE, SUCCESS)])
async def test_device_with_a_live_share_is_not_taken_as_a_whole_since_1_38(
    ask: Ask, version: str, want: Status
) -> None:
    """The slice forbids shares now, and the share has no amount that would fill the device."""
    slices = [resource_slice("n1", [device("d0")])]
    claims = [claim("c"), shared("other", {})]
    assert await ask.filter(plug(claims, [], slices, version), WEB, NODES) == [want]


async def test_whole_device_that_is_shareable_now_stays_taken(ask: Ask) -> None:
    item = claim("c", exactly(capacity={"requests": {"memory": "1"}}))
    claims = [item, claim("other", allocated=["n1/d0"])]
    assert await ask.filter(plug(claims, [], shareable("memory")), WEB, NODES) == [CANNOT]


@pytest.mark.parametrize(
    ("version", "code"), [(OWN, Code.ERROR), ("1.38", Code.ERROR), (BEFORE, Code.SUCCESS)]
)
async def test_negative_request_is_not_rounded_up_since_1_38(ask: Ask, version: str, code: Code) -> None:
    policy = {"default": "1", "validRange": {"min": "1", "step": "1"}}
    capacity = {"memory": {"value": "8", "requestPolicy": policy}}
    slices = [resource_slice("n1", [device("d0", allowMultipleAllocations=True, capacity=capacity)])]
    item = claim("c", exactly(capacity={"requests": {"memory": "-1"}}))
    (status,) = await ask.filter(plug([item], [], slices, version), WEB, NODES)
    assert status.code is code
    if code is Code.ERROR:
        assert 'capacity "memory": capacity value is negative: request -1' in status.message


@pytest.mark.parametrize("name", ["memory", f"{DRIVER}/memory"])
@pytest.mark.parametrize(("version", "code"), [("1.38", Code.ERROR), (OWN, Code.SUCCESS)])
async def test_stored_negative_share_ends_the_attempt_since_1_38(
    ask: Ask, version: str, code: Code, name: str
) -> None:
    """The shares of 8, 1 and -1 leave no room for 1 more; with the negative one counted, there is."""
    item = claim("c", exactly(capacity={"requests": {"memory": "1"}}))
    claims = [item, shared("other", {name: "8"}), shared("wrong", {name: "-1"})]
    (status,) = await ask.filter(plug(claims, [], shareable("memory"), version), WEB, NODES)
    assert status.code is code
    if code is Code.ERROR:
        assert status.message == (
            f'claim default/wrong, device {DRIVER}/n1/d0: consumedCapacity "{name}" is negative: -1;'
            " delete the claim, or correct its status"
        )


async def test_stored_negative_share_concerns_no_pod_whose_claims_are_allocated(ask: Ask) -> None:
    claims = [claim("c", allocated=["n1/d1"]), shared("wrong", {"memory": "-1"})]
    slices = [resource_slice("n1", [device("d0"), device("d1")])]
    assert await ask.filter(plug(claims, [], slices, "1.38"), WEB, NODES) == [SUCCESS]


@pytest.mark.parametrize(("kind", "match"), [("matchAttribute", True), ("distinctAttribute", False)])
@pytest.mark.parametrize(("version", "equal"), [(OWN, True), ("1.38", True), (BEFORE, False)])
async def test_versions_that_differ_in_their_build_part_are_equal_since_1_38(
    ask: Ask, kind: str, match: bool, version: str, equal: bool
) -> None:
    devices = [device(name, attributes={"fw": {"version": f"1.2.3+{name}"}}) for name in ("d0", "d1")]
    item = claim("c", exactly(count=2), devices={"constraints": [{kind: f"{DRIVER}/fw"}]})
    want = SUCCESS if equal is match else CANNOT
    assert await ask.filter(plug([item], [], [resource_slice("n1", devices)], version), WEB, NODES) == [want]


@pytest.mark.parametrize("version", [OWN, "1.38", BEFORE])
async def test_oversized_alternative_falls_through_to_a_smaller_one(ask: Ask, version: str) -> None:
    """Already so before 1.38, for counts that do not leave int64."""
    choices = [
        {"name": name, "deviceClassName": "gpu", "count": count, "allocationMode": "ExactCount"}
        for name, count in (("large", 33), ("small", 1))
    ]
    item = claim("c", {"name": "r", "firstAvailable": choices})
    assert await ask.filter(plug([item], [], ONE, version), WEB, NODES) == [SUCCESS]


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
async def test_toleration_without_an_effect_tolerates_every_effect(ask: Ask, effect: str) -> None:
    tolerant = claim("c", exactly(tolerations=[{"key": "example.com/broken", "operator": "Exists"}]))
    assert await ask.filter(plug([tolerant], [rule("r", {}, effect)], ONE), WEB, NODES) == [SUCCESS]
