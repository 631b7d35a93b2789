"""Policies: which plugins run for which predicates and priorities, with what weights and arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest
from berth_host.config.configuration import LoadedConfiguration, ResolvedProfile
from berth_host.config.default_plugins import DEFAULT_PLUGINS_BY_NAME
from berth_host.config.errors import ConfigurationError
from berth_host.config.loading import load_configuration
from berth_host.older_config.conversion import Converter
from berth_host.older_config.table import ARGUMENTS, PREDICATES, PRIORITIES, Row
from hypothesis import given
from hypothesis import strategies as st

EVERY_PREDICATE = [row.name for row in PREDICATES]
EVERY_PRIORITY = [row.name for row in PRIORITIES]
SHAPE = {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}


def load(policy: dict[str, Any]) -> LoadedConfiguration:
    return load_configuration(json.dumps(policy), source="policy.json", older=Converter)


def profile_of(policy: dict[str, Any]) -> ResolvedProfile:
    return load({"kind": "Policy", "apiVersion": "v1", **policy}).profiles[0]


def names_at(profile: ResolvedProfile, point: str) -> set[str]:
    return {plugin.name for plugin in profile.plugins_at(point)}


def weights(profile: ResolvedProfile) -> dict[str, int]:
    return {plugin.name: plugin.weight for plugin in profile.plugins_at("score")}


def test_only_the_plugins_that_a_policy_lists_filter_and_score() -> None:
    profile = profile_of(
        {
            "predicates": [{"name": "PodFitsResources"}, {"name": "HostName"}],
            "priorities": [{"name": "MostRequestedPriority", "weight": 4}],
        }
    )
    assert names_at(profile, "filter") == {
        *("NodeResourcesFit", "NodeName"),
        *("TaintToleration", "NodeUnschedulable"),  # every policy had them
        *("DynamicResources", "NodeDeclaredFeatures"),  # no policy knew them
    }
    assert names_at(profile, "preFilter") == names_at(profile, "filter")
    assert weights(profile) == {"NodeResourcesFit": 4, "DynamicResources": 2}
    assert "VolumeBinding" not in names_at(profile, "reserve") | names_at(profile, "preBind")
    args = profile.plugin_args["NodeResourcesFit"]
    assert isinstance(args, dict)
    assert args["scoringStrategy"]["type"] == "MostAllocated"  # type: ignore[index, call-overload]


def test_policy_keeps_default_plugins_that_policies_could_not_name() -> None:
    profile = profile_of({"predicates": [], "priorities": []})
    assert names_at(profile, "queueSort") == {"PrioritySort"}
    assert names_at(profile, "bind") == {"DefaultBinder"}
    assert "DefaultPreemption" in names_at(profile, "postFilter")
    assert "SchedulingGates" in names_at(profile, "preEnqueue")


def test_absent_lists_are_the_defaults_with_the_older_weights() -> None:
    profile = profile_of({})
    assert {"VolumeZone", "InterPodAffinity", "PodTopologySpread"} <= names_at(profile, "filter")
    assert "VolumeBinding" in names_at(profile, "preBind")
    found = weights(profile)
    assert (found["TaintToleration"], found["NodeAffinity"], found["InterPodAffinity"]) == (1, 1, 1)
    assert (found["PodTopologySpread"], found["NodeResourcesFit"]) == (2, 1)


def test_a_plugin_that_only_scores_does_not_filter() -> None:
    profile = profile_of(
        {"predicates": [], "priorities": [{"name": "InterPodAffinityPriority", "weight": 7}]}
    )
    assert "InterPodAffinity" not in names_at(profile, "filter") | names_at(profile, "preFilter")
    assert "InterPodAffinity" in names_at(profile, "preScore")
    assert weights(profile)["InterPodAffinity"] == 7


def test_a_plugin_that_only_filters_does_not_score() -> None:
    profile = profile_of({"predicates": [{"name": "GeneralPredicates"}], "priorities": []})
    assert {"NodeResourcesFit", "NodeName", "NodePorts", "NodeAffinity"} <= names_at(profile, "filter")
    assert not {"NodeResourcesFit", "NodeAffinity"} & (
        names_at(profile, "score") | names_at(profile, "preScore")
    )


def test_labels_that_nodes_must_have_become_an_added_affinity() -> None:
    loaded = load(
        {
            "predicates": [
                {"name": "Zoned", "argument": {"labelsPresence": {"labels": ["zone"], "presence": True}}},
                {"name": "NotOld", "argument": {"labelsPresence": {"labels": ["old", "slow"]}}},
            ],
            "priorities": [
                {
                    "name": "Fast",
                    "weight": 3,
                    "argument": {"labelPreference": {"label": "ssd", "presence": True}},
                }
            ],
        }
    )
    args = loaded.profiles[0].plugin_args["NodeAffinity"]
    assert isinstance(args, dict)
    assert args["addedAffinity"] == {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": "zone", "operator": "Exists"},
                        {"key": "old", "operator": "DoesNotExist"},
                        {"key": "slow", "operator": "DoesNotExist"},
                    ]
                }
            ]
        },
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": "ssd", "operator": "Exists"}]}}
        ],
    }
    assert weights(loaded.profiles[0])["NodeAffinity"] == 3
    assert any("also checks the selectors of pods" in warning for warning in loaded.warnings)


def test_a_built_in_name_is_kept_and_its_argument_dropped_with_a_warning() -> None:
    loaded = load(
        {
            "predicates": [
                {
                    "name": "PodFitsResources",
                    "argument": {"labelsPresence": {"labels": ["ssd"], "presence": True}},
                }
            ],
            "priorities": [
                {
                    "name": "ImageLocalityPriority",
                    "weight": 2,
                    "argument": {"labelPreference": {"label": "ssd", "presence": True}},
                }
            ],
        }
    )
    profile = loaded.profiles[0]
    assert "NodeResourcesFit" in names_at(profile, "filter")
    assert "NodeAffinity" not in names_at(profile, "filter") | names_at(profile, "score")
    assert weights(profile) == {"ImageLocality": 2, "DynamicResources": 2}
    said = "\n".join(loaded.warnings)
    assert "labelsPresence is dropped: PodFitsResources is built in" in said
    assert "labelPreference is dropped: ImageLocalityPriority is built in" in said


def test_labels_of_different_weights_keep_their_proportions() -> None:
    liked = [("a", 2), ("b", 6), ("c", 2)]
    priorities: list[dict[str, Any]] = [
        {"name": key, "weight": weight, "argument": {"labelPreference": {"label": key, "presence": True}}}
        for key, weight in liked
    ]
    loaded = load({"priorities": [{"name": "NodeAffinityPriority", "weight": 9}, *priorities]})
    args: Any = loaded.profiles[0].plugin_args["NodeAffinity"]
    terms = args["addedAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [term["weight"] for term in terms] == [1, 3, 1]
    assert weights(loaded.profiles[0])["NodeAffinity"] == 10


def test_weights_of_labels_fit_into_a_term() -> None:
    priorities = [
        {"name": key, "weight": weight, "argument": {"labelPreference": {"label": key, "presence": True}}}
        for key, weight in [("a", 1), ("b", 10_001)]
    ]
    args: Any = profile_of({"priorities": priorities}).plugin_args["NodeAffinity"]
    terms = args["addedAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [term["weight"] for term in terms] == [1, 100]


def test_a_second_ratio_is_dropped_by_name() -> None:
    other = {"shape": [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]}
    loaded = load(
        {
            "priorities": [
                {"name": name, "weight": 1, "argument": {"requestedToCapacityRatioArguments": shape}}
                for name, shape in [("Packed", SHAPE), ("Spread", other)]
            ]
        }
    )
    args: Any = loaded.profiles[0].plugin_args["NodeResourcesFit"]
    assert args["scoringStrategy"]["requestedToCapacityRatio"] == SHAPE
    assert any("RequestedToCapacityRatio of Packed; the other is dropped" in w for w in loaded.warnings)


def test_symmetric_weight_of_zero_is_dropped_with_a_warning() -> None:
    loaded = load({"kind": "Policy", "apiVersion": "v1", "hardPodAffinitySymmetricWeight": 0})
    assert any("hardPodAffinitySymmetricWeight: dropped: 0 meant" in one for one in loaded.warnings)


def test_ratio_priority_keeps_its_shape_and_resources() -> None:
    argument = {
        "requestedToCapacityRatioArguments": SHAPE | {"resources": [{"name": "example.com/gpu", "weight": 5}]}
    }
    profile = profile_of({"priorities": [{"name": "Packed", "weight": 2, "argument": argument}]})
    args = profile.plugin_args["NodeResourcesFit"]
    assert isinstance(args, dict)
    assert args["scoringStrategy"] == {
        "type": "RequestedToCapacityRatio",
        "resources": [{"name": "example.com/gpu", "weight": 5}],
        "requestedToCapacityRatio": SHAPE,
    }


def test_of_two_strategies_the_heavier_one_is_kept_with_a_warning() -> None:
    loaded = load(
        {
            "priorities": [
                {"name": "LeastRequestedPriority", "weight": 1},
                {"name": "MostRequestedPriority", "weight": 3},
            ]
        }
    )
    args = loaded.profiles[0].plugin_args["NodeResourcesFit"]
    assert isinstance(args, dict)
    assert args["scoringStrategy"]["type"] == "MostAllocated"  # type: ignore[index, call-overload]
    assert weights(loaded.profiles[0])["NodeResourcesFit"] == 3
    assert any(
        "one scoringStrategy: MostAllocated of MostRequestedPriority" in warning
        for warning in loaded.warnings
    )


@pytest.mark.parametrize(
    ("priority", "defaulting"), [("SelectorSpreadPriority", "System"), ("EvenPodsSpreadPriority", "List")]
)
def test_spreading_of_services_is_the_system_default(priority: str, defaulting: str) -> None:
    profile = profile_of({"priorities": [{"name": priority, "weight": 2}]})
    args = profile.plugin_args["PodTopologySpread"]
    assert isinstance(args, dict)
    assert args["defaultingType"] == defaulting


def test_extenders_and_the_symmetric_weight_are_carried_over() -> None:
    loaded = load(
        {
            "hardPodAffinitySymmetricWeight": 10,
            "alwaysCheckAllPredicates": True,
            "extenders": [
                {
                    "urlPrefix": "http://127.0.0.1:9/",
                    "filterVerb": "f",
                    "enableHttps": True,
                    "httpTimeout": 2_500_000_000,
                    "managedResources": [{"name": "example.com/x", "ignoredByScheduler": True}],
                    "tlsConfig": {"insecure": True},
                }
            ],
        }
    )
    (extender,) = loaded.scheduler.extenders
    assert (extender.enable_https, extender.http_timeout_s) == (True, 2.5)
    args = loaded.profiles[0].plugin_args["InterPodAffinity"]
    assert isinstance(args, dict)
    assert args["hardPodAffinityWeight"] == 10
    said = "\n".join(loaded.warnings)
    for word in ("enableHTTPS", "2.5s", "alwaysCheckAllPredicates is dropped", "hardPodAffinityWeight"):
        assert word in said


def test_version_of_an_extender_is_dropped_with_a_warning() -> None:
    extender = {"urlPrefix": "http://127.0.0.1:9/", "apiVersion": "v1beta1", "filterVerb": "f"}
    loaded = load({"extenders": [extender]})
    assert [one.url_prefix for one in loaded.scheduler.extenders] == ["http://127.0.0.1:9/"]
    assert "field extenders[].apiVersion is dropped" in "\n".join(loaded.warnings)


def test_rule_without_an_equivalent_is_dropped_with_a_warning() -> None:
    loaded = load(
        {
            "predicates": [{"name": "Same", "argument": {"serviceAffinity": {"labels": ["rack"]}}}],
            "priorities": [
                {"name": "EqualPriority", "weight": 1},
                {"name": "NodePreferAvoidPodsPriority", "weight": 10000},
                {"name": "Apart", "weight": 1, "argument": {"serviceAntiAffinity": {"label": "rack"}}},
            ],
        }
    )
    assert sum("is dropped (gone since" in warning for warning in loaded.warnings) == 4
    assert weights(loaded.profiles[0]) == {"DynamicResources": 2}


@pytest.mark.parametrize(
    ("policy", "field", "text"),
    [
        (
            {"predicates": [{"name": "PodFitsResource"}]},
            "predicates[0].name",
            'did you mean "PodFitsResources"',
        ),
        ({"priorities": [{"name": "X", "weight": 1}]}, "priorities[0].name", 'no priority "X"'),
        ({"priorities": [{"name": "EqualPriority"}]}, "priorities[0].weight", "positive weight"),
        (
            {"priorities": [{"name": "EqualPriority", "weight": 2**31}]},
            "priorities[0].weight",
            "of at most 2147483647",
        ),
        (
            {
                "priorities": [
                    {"name": key, "weight": 2**30, "argument": {"labelPreference": {"label": key}}}
                    for key in ("a", "b")
                ]
            },
            "priorities[1].weight",
            "add up to 2147483648",
        ),
        ({"predicates": [{"name": "labelsPresence"}]}, "predicates[0].name", "no predicate"),
        (
            {"priorities": [{"name": "RequestedToCapacityRatioPriority", "weight": 1}]},
            "priorities[0].argument",
            "with a shape",
        ),
        (
            {
                "predicates": [
                    {
                        "name": "Two",
                        "argument": {"labelsPresence": {"labels": []}, "serviceAffinity": {"labels": []}},
                    }
                ]
            },
            "predicates[0].argument",
            "exactly one field, labelsPresence or serviceAffinity; here are 2",
        ),
        (
            {"priorities": [{"name": "EqualPriority", "weight": 1, "argument": {}}]},
            "priorities[0].argument",
            "here are 0",
        ),
    ],
)
def test_unknown_names_and_missing_values_are_errors_with_their_field(
    policy: dict[str, Any], field: str, text: str
) -> None:
    with pytest.raises(ConfigurationError, match=text.replace("[", r"\[")) as caught:
        load(policy)
    assert (caught.value.kind, [finding.field for finding in caught.value.errors]) == ("validation", [field])


def test_unknown_fields_are_errors_as_in_strict_decoding() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load({"predicates": [{"nam": "HostName"}], "priorities": [{"name": 3}], "extender": []})
    text = str(caught.value)
    assert caught.value.kind == "decode"
    assert 'unknown field "predicates[0].nam" (did you mean "name"?)' in text
    assert "priorities[0].name: expected a string" in text
    assert 'unknown field "extender" (did you mean "extenders"?)' in text


PREDICATE_ARGUMENTS = st.sampled_from(
    [{"labelsPresence": {"labels": ["a"], "presence": True}}, {"serviceAffinity": {"labels": ["b"]}}]
)
PRIORITY_ARGUMENTS = st.sampled_from(
    [
        {"labelPreference": {"label": "a", "presence": False}},
        {"serviceAntiAffinity": {"label": "b"}},
        {"requestedToCapacityRatioArguments": SHAPE},
    ]
)
WEIGHTS = st.integers(1, 1000)
PREDICATE_LISTS = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(EVERY_PREDICATE)})
    | st.fixed_dictionaries({"name": st.text(), "argument": PREDICATE_ARGUMENTS})
)
PRIORITY_LISTS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from([n for n in EVERY_PRIORITY if n != "RequestedToCapacityRatioPriority"]),
            "weight": WEIGHTS,
        }
    )
    | st.fixed_dictionaries({"name": st.text(), "weight": WEIGHTS, "argument": PRIORITY_ARGUMENTS})
)
EXTENDERS = st.lists(
    st.fixed_dictionaries(
        {"urlPrefix": st.just("http://127.0.0.1:1")},
        optional={
            "enableHttps": st.booleans(),
            "httpTimeout": st.integers(1, 10**12),
            "managedResources": st.just([{"name": "example.com/x", "ignoredByScheduler": True}]),
        },
    ),
    max_size=1,
)
POLICIES = st.fixed_dictionaries(
    {"kind": st.just("Policy"), "apiVersion": st.just("v1")},
    optional={
        "predicates": PREDICATE_LISTS,
        "priorities": PRIORITY_LISTS,
        "extenders": EXTENDERS,
        "hardPodAffinitySymmetricWeight": st.integers(0, 100),
    },
)


@given(policy=POLICIES)
def test_any_policy_of_known_names_becomes_a_good_v1_file_that_stays_as_it_is(policy: dict[str, Any]) -> None:
    loaded = load(policy)
    again = load(dict(loaded.document))
    assert again.converted_from is None
    assert again.document == loaded.document
    assert again.profiles == loaded.profiles
    listed = [*policy.get("predicates", []), *policy.get("priorities", [])]
    for one in listed:
        assert any(str(one["name"]) in warning for warning in loaded.warnings)


@pytest.mark.parametrize("row", [*PREDICATES, *PRIORITIES, *ARGUMENTS], ids=lambda row: row.name)
def test_every_plugin_of_a_row_has_the_point_that_the_row_needs(row: Row) -> None:
    point = "filter" if row.subject == "predicate" else "score"
    for name in row.becomes:
        assert point in DEFAULT_PLUGINS_BY_NAME[name].points
