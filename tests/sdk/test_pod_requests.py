"""The requests of a pod: containers over time, sidecars, pod level, overhead, defaults, and resizes."""

from __future__ import annotations

from typing import Any

import pytest
from berth_sdk.errors import ObjectError
from berth_sdk.pod_requests import PodRequests, has_resizes, quantities, requests_of
from hypothesis import given
from hypothesis import strategies as st

Json = dict[str, Any]
MIB = 2**20


def container(name: str = "c", always: bool = False, **requests: Any) -> Json:
    resources = {"requests": {key.replace("_", "-"): value for key, value in requests.items()}}
    return {"name": name, "resources": resources, **({"restartPolicy": "Always"} if always else {})}


def of(*containers: Json, status: Json | None = None, **spec: Any) -> PodRequests:
    return requests_of({"containers": list(containers), **spec}, status)


def test_requests_add_up_exactly_before_they_are_rounded() -> None:
    got = of(container(cpu="0.4m", memory="0.5"), container(cpu="0.4m", memory="0.5"))
    assert got.requests == {"cpu": 1, "memory": 1}


@pytest.mark.parametrize(
    ("init", "main", "want"),
    [
        pytest.param([container(cpu=3)], [container(cpu=1), container(cpu=1)], 3000, id="init is larger"),
        pytest.param([container(cpu=1)], [container(cpu=1), container(cpu=1)], 2000, id="main is larger"),
        pytest.param([container(cpu=1), container(cpu=2)], [container(cpu=1)], 2000, id="inits take turns"),
        pytest.param([container(always=True, cpu=1)], [container(cpu=1)], 2000, id="a sidecar stays"),
        pytest.param(
            [container(always=True, cpu=1), container(cpu=3)],
            [container(cpu=1)],
            4000,
            id="init over a sidecar",
        ),
        pytest.param(
            [container(cpu=3), container(always=True, cpu=1)], [container(cpu=1)], 3000, id="init before it"
        ),
        pytest.param(
            [container(always=True, cpu=1), container(always=True, cpu=2), container(cpu="500m")],
            [container(cpu="100m")],
            3500,
            id="two sidecars",
        ),
    ],
)
def test_request_is_the_peak_over_init_containers_and_sidecars(
    init: list[Json], main: list[Json], want: int
) -> None:
    assert of(*main, initContainers=init).requests["cpu"] == want


def test_each_resource_has_its_own_peak() -> None:
    got = of(container(cpu=1, memory=9), initContainers=[container(cpu=5, memory=1)])
    assert got.requests == {"cpu": 5000, "memory": 9}


def test_overhead_comes_on_top_of_everything() -> None:
    got = of(container(cpu=1), overhead={"cpu": "250m", "memory": 5})
    assert got.requests == {"cpu": 1250, "memory": 5}
    assert got.score == {"cpu": 1250, "memory": 200 * MIB + 5}


def test_explicit_zero_requests_stay_in_the_maps() -> None:
    got = of(container(cpu=0))
    assert got.requests == {"cpu": 0}
    assert got.non_zero == {"cpu": 0, "memory": 200 * MIB}
    assert of(container()).requests == {}


def test_each_container_that_names_no_amount_has_the_default() -> None:
    got = of(container(), container(cpu="10m"), container(memory=1), initContainers=[container()])
    assert got.non_zero == {"cpu": 210, "memory": 400 * MIB + 1}
    assert got.score == got.non_zero
    assert of(container(), initContainers=[container(always=True)]).non_zero["cpu"] == 200


def test_other_resources_have_no_default() -> None:
    assert "ephemeral-storage" not in of(container(ephemeral_storage=1), container()).non_zero


def test_pod_level_replaces_the_sum_of_what_it_names() -> None:
    level = {"requests": {"cpu": "2500m", "hugepages-2Mi": "4Mi", "example.com/gpu": 9}}
    plain = {"resources": {"requests": {"cpu": 1, "memory": 7, "example.com/gpu": 1}}}
    got = of(plain, resources=level, overhead={"cpu": 1})
    assert got.requests == {"cpu": 3500, "memory": 7, "hugepages-2Mi": 4 * MIB, "example.com/gpu": 1}
    assert got.non_zero == {"cpu": 3500, "memory": 7}
    # The strategies of NodeResourcesFit leave the pod level aside.
    assert got.score == {"cpu": 2000, "memory": 7, "example.com/gpu": 1}


def test_with_pod_level_each_container_gets_a_default_of_what_the_whole_pod_lacks() -> None:
    level = {"requests": {"cpu": 1}}
    got = of(container(), container(), resources=level)
    assert got.non_zero == {"cpu": 1000, "memory": 400 * MIB}
    inits = [container(always=True), container()]
    assert of(container(), initContainers=inits, resources=level).non_zero["memory"] == 400 * MIB
    assert of(container(memory=7), container(), resources=level).non_zero["memory"] == 7
    assert of(container(), resources=level, overhead={"memory": 9}).non_zero["memory"] == 9


def resized(**status: Any) -> Json:
    return {"containerStatuses": [{"name": "c", **status}]}


PENDING: Json = {"conditions": [{"type": "PodResizePending", "reason": "Infeasible"}]}


@pytest.mark.parametrize(
    ("status", "want", "by_container"),
    [
        pytest.param(resized(resources={"requests": {"cpu": 3}}), 3000, 3000, id="shrinking, not done"),
        pytest.param(resized(resources={"requests": {"cpu": 1}}), 2000, 2000, id="growing, not done"),
        pytest.param(
            resized(resources={"requests": {"cpu": 1}}, allocatedResources={"cpu": 4}),
            4000,
            4000,
            id="allocated",
        ),
        pytest.param(resized(allocatedResources={"cpu": 4}), 4000, 2000, id="no resources in the status"),
        pytest.param(
            {
                **resized(resources={"requests": {"cpu": 1}}, allocatedResources={"cpu": "1500m"}),
                **PENDING,
            },
            1500,
            1500,
            id="infeasible: what it has",
        ),
        pytest.param(PENDING, 0, 2000, id="infeasible, without a status"),
        pytest.param({**resized(), **PENDING}, 0, 2000, id="infeasible, with an empty status"),
        pytest.param(
            {
                **resized(resources={"requests": {"cpu": 1}}),
                "conditions": [{"type": "PodResizePending", "reason": "Deferred"}],
            },
            2000,
            2000,
            id="deferred: what it wants",
        ),
        pytest.param(
            {"containerStatuses": [{"name": "x", "resources": {}}]}, 2000, 2000, id="another container"
        ),
        pytest.param(
            {"resources": {"requests": {"cpu": 5}}, "allocatedResources": {"cpu": 6}},
            6000,
            2000,
            id="totals of the pod",
        ),
    ],
)
def test_resizes_count_for_pods_on_nodes(status: Json, want: int, by_container: int) -> None:
    spec = {"containers": [container(cpu=2)]}
    assert requests_of(spec, status).requests.get("cpu", 0) == want
    assert requests_of(spec, status, resizes_by_container=True).requests["cpu"] == by_container
    assert requests_of(spec, None).requests["cpu"] == 2000
    assert has_resizes(spec, status) or want == by_container == 2000


def test_totals_of_a_resize_are_compared_and_not_containers() -> None:
    """One container has shrunk, and another one is to grow: they never need both at one time."""
    spec = {"containers": [container("a", cpu=1), container("b", cpu=3)]}
    actual = [("a", 3), ("b", 1)]
    status = {
        "containerStatuses": [
            {"name": name, "resources": {"requests": {"cpu": cpu}}, "allocatedResources": {"cpu": cpu}}
            for name, cpu in actual
        ]
    }
    assert requests_of(spec, status).requests["cpu"] == 4000
    assert requests_of(spec, status, resizes_by_container=True).requests["cpu"] == 6000


@pytest.mark.parametrize(
    ("level", "by_containers", "by_pod"),
    [
        pytest.param({}, {"cpu": 2100, "memory": 200 * MIB}, None, id="none"),
        pytest.param(
            {"cpu": 5}, {"cpu": 2100, "memory": 200 * MIB}, {"cpu": 5100, "memory": 200 * MIB}, id="cpu"
        ),
        pytest.param(
            {"cpu": 5, "memory": MIB},
            {"cpu": 2100, "memory": 200 * MIB},
            {"cpu": 5100, "memory": MIB},
            id="both",
        ),
        pytest.param(
            {"example.com/gpu": 1},
            {"cpu": 2100, "memory": 200 * MIB},
            None,
            id="a resource that has no level",
        ),
    ],
)
def test_requests_of_the_pod_count_in_scores_since_1_38(
    level: Json, by_containers: Json, by_pod: Json
) -> None:
    spec = {
        "containers": [container(cpu=2)],
        "overhead": {"cpu": "100m"},
        "resources": {"requests": level},
    }
    assert requests_of(spec, None).score == by_containers
    assert requests_of(spec, None, scores_pod_level=True).score == (by_pod or by_containers)


def test_amounts_beyond_int64_count_as_the_largest() -> None:
    """A message cannot hold more, and no node offers more."""
    got = requests_of({"containers": [container("a", memory="5Ei"), container("b", memory="5Ei")]}, None)
    assert got.requests["memory"] == got.non_zero["memory"] == got.score["memory"] == 2**63 - 1


def test_infeasible_container_without_status_has_the_default_for_scores() -> None:
    got = requests_of({"containers": [container(cpu=2)]}, PENDING)
    assert got.requests == {}
    assert got.non_zero == {"cpu": 100, "memory": 200 * MIB}


def test_status_of_an_unchanged_pod_says_what_the_spec_says() -> None:
    spec = {"containers": [container(cpu=2, memory="1Gi")]}
    wanted = spec["containers"][0]["resources"]["requests"]
    status = {"containerStatuses": [{"name": "c", "allocatedResources": wanted, "resources": {}}]}
    assert not has_resizes(spec, status)
    assert requests_of(spec, status) == requests_of(spec, None)


@pytest.mark.parametrize(("by_container", "want"), [(False, 13000), (True, 5000)])
def test_plain_init_containers_are_resized_with_the_totals_alone(by_container: bool, want: int) -> None:
    status = {
        "initContainerStatuses": [
            {"name": "side", "resources": {"requests": {"cpu": 4}}},
            {"name": "plain", "resources": {"requests": {"cpu": 9}}},
        ]
    }
    init = [container("side", always=True, cpu=1), container("plain", cpu=1)]
    spec = {"containers": [container(cpu=1)], "initContainers": init}
    assert requests_of(spec, status, resizes_by_container=by_container).requests["cpu"] == want


def test_pod_level_can_be_resized() -> None:
    status = {"resources": {"requests": {"cpu": 3}}, "allocatedResources": {"cpu": 4}}
    assert of(container(), resources={"requests": {"cpu": 2}}, status=status).requests["cpu"] == 4000


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"containers": [container(cpu=1), container(cpu="x")]}, "spec.containers[1].resources.requests.cpu"),
        (
            {"containers": [], "initContainers": [container(memory="1 Gi")]},
            "spec.initContainers[0].resources.requests.memory",
        ),
        ({"containers": [], "overhead": {"cpu": []}}, "spec.overhead.cpu"),
        ({"containers": [{"resources": {"requests": ["cpu"]}}]}, "spec.containers[0].resources.requests"),
        ({"containers": [], "resources": {"requests": {"cpu": "x"}}}, "spec.resources.requests.cpu"),
    ],
)
def test_error_names_the_path_of_the_quantity(spec: Json, path: str) -> None:
    with pytest.raises(ObjectError) as caught:
        requests_of(spec, None)
    assert caught.value.path == path


def test_quantities_are_read_in_scheduling_units_and_missing_ones_are_empty() -> None:
    assert quantities({"cpu": "1500m", "memory": "1Ki", "pods": 3}, "x") == {
        "cpu": 1500,
        "memory": 1024,
        "pods": 3,
    }
    assert quantities(None, "x") == {}


amounts = st.fixed_dictionaries({}, optional={"cpu": st.integers(0, 9), "memory": st.integers(0, 9)})


@given(st.lists(st.tuples(amounts, st.booleans()), max_size=4), st.lists(amounts, min_size=1, max_size=3))
def test_request_is_the_peak_over_the_pods_life(init: list[tuple[Json, bool]], main: list[Json]) -> None:
    """At each moment run the sidecars started so far, and either one init container or all main ones."""
    got = of(
        *(container(**one) for one in main),
        initContainers=[container(always=always, **one) for one, always in init],
    )
    for resource, unit in (("cpu", 1000), ("memory", 1)):
        moments = []
        sidecars = 0
        for one, always in init:
            amount = one.get(resource, 0)
            moments.append(sidecars + amount)
            sidecars += amount if always else 0
        moments.append(sidecars + sum(one.get(resource, 0) for one in main))
        assert got.requests.get(resource, 0) == max(moments) * unit
