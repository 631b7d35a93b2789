"""multiPoint expansion: order, precedence, weights, and the errors of building a framework."""

from __future__ import annotations

import pytest
from berth_host.config.errors import ConfigurationError
from berth_host.config.loading import load_configuration

HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
REGISTERED = {
    "A": frozenset({"filter", "score"}),
    "B": frozenset({"filter", "score", "placementScore"}),
    "Generator": frozenset({"placementGenerate"}),
    "Nothing": frozenset[str](),
}
MINIMAL = "{name: PrioritySort}, {name: DefaultBinder}"


def plugins(text: str) -> dict[str, list[tuple[str, int]]]:
    """Return the plugins of a profile that has only what `text` and the minimum enable."""
    loaded = load_configuration(
        f"{HEADER}profiles:\n- plugins:\n    {text}", source="f.yaml", registered=REGISTERED
    )
    profile = loaded.profiles[0]
    return {point: [(p.name, p.weight) for p in listed] for point, listed in profile.plugins.items()}


def only(enabled: str, points: str = "") -> str:
    return f"multiPoint: {{disabled: [{{name: '*'}}], enabled: [{MINIMAL}, {enabled}]}}\n    {points}"


def failure(text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        plugins(text)
    assert caught.value.kind == "profile"
    assert caught.value.config is not None
    return caught.value.text


def test_overridden_come_first_then_multi_point_then_the_others() -> None:
    got = plugins(only("{name: A}, {name: NodeName}", "filter: {enabled: [{name: B}, {name: NodeName}]}"))
    assert got["filter"] == [("NodeName", 0), ("A", 0), ("B", 0)]


def test_weight_of_the_point_beats_multi_point_and_zero_means_one() -> None:
    got = plugins(only("{name: A, weight: 4}, {name: B}", "score: {enabled: [{name: A, weight: 9}]}"))
    assert got["score"] == [("A", 9), ("B", 1)]
    assert got["placementScore"] == [("B", 1)]


def test_point_that_disables_all_takes_nothing_from_multi_point() -> None:
    got = plugins(only("{name: A}", "score: {disabled: [{name: '*'}]}"))
    assert "score" not in got
    assert got["filter"] == [("A", 0)]


def test_plugin_without_any_point_is_harmless_at_multi_point() -> None:
    assert set(plugins(only("{name: Nothing}"))) == {"queueSort", "bind"}


def test_negative_weight_is_an_overflow_only_when_something_follows() -> None:
    assert plugins(only("{name: A, weight: -3}"))["score"] == [("A", -3)]
    assert "could overflow" in failure(only("{name: A, weight: -3}, {name: B}"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(only("{name: Nodename}"), 'PreFilterPlugin "Nodename" does not exist', id="multiPoint"),
        pytest.param(
            only("{name: A}", "filter: {enabled: [{name: '*'}]}"),
            'FilterPlugin "*" does not exist',
            id="star",
        ),
        pytest.param(
            only("{name: A}", "permit: {enabled: [{name: A}]}"),
            'plugin "A" does not extend PermitPlugin plugin',
            id="point it does not implement",
        ),
        pytest.param(
            only("{name: B}", "filter: {enabled: [{name: A}, {name: A}]}"),
            'plugin "A" already registered as "FilterPlugin"',
            id="twice at a point",
        ),
        pytest.param(only("{name: A}, {name: A}"), "already registered", id="twice at multiPoint"),
        pytest.param(
            "multiPoint: {disabled: [{name: '*'}]}",
            'only one queue sort plugin required for profile with scheduler name "default-scheduler", '
            "but got 0",
            id="nothing at all",
        ),
        pytest.param("bind: {disabled: [{name: '*'}]}", "at least one bind plugin is needed", id="no bind"),
    ],
)
def test_profile_that_cannot_be_built(text: str, message: str) -> None:
    assert message in failure(text)


def test_unknown_name_is_found_with_its_line_and_the_nearest_one() -> None:
    text = "multiPoint:\n      enabled:\n      - name: PrioritySort\n      - name: NodeAfinity\n"
    assert failure(text).startswith("f.yaml:8: profiles[0].plugins.multiPoint.enabled[NodeAfinity]: ")
    assert failure(text).endswith('(did you mean "NodeAffinity"?)')


def test_two_generators_of_placements_are_one_too_many() -> None:
    with pytest.raises(ConfigurationError, match="at most one placement generate plugin"):
        load_configuration(
            f"{HEADER}profiles:\n- plugins: {{multiPoint: {{enabled: [{{name: Generator}}]}}}}",
            source="f",
            registered=REGISTERED,
            feature_gates={"GenericWorkload": True, "TopologyAwareWorkloadScheduling": True},
        )
