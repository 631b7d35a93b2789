"""KubeSchedulerConfiguration v1alpha1 to v1beta3 and flat lists: what they mean in v1, what is said."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.errors import ConfigurationError
from berth_host.config.loading import load_configuration
from berth_host.errors import HostError
from berth_host.older_config.conversion import Converter

MINE = frozenset({"preFilter", "filter", "preScore", "score", "reserve", "permit", "preBind", "postBind"})
GROUP = "kubescheduler.config.k8s.io"


def text_of(version: str, text: str) -> str:
    return f"apiVersion: {GROUP}/{version}\nkind: KubeSchedulerConfiguration\n{text}"


def load(version: str, text: str) -> LoadedConfiguration:
    return load_configuration(
        text_of(version, text), source="f.yaml", registered={"Mine": MINE, "Other": MINE}, older=Converter
    )


def refused(version: str, text: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        load(version, text)
    return caught.value


def names(loaded: LoadedConfiguration, point: str, profile: int = 0) -> list[str]:
    return [plugin.name for plugin in loaded.profiles[profile].plugins_at(point)]


def weights(loaded: LoadedConfiguration, profile: int = 0) -> dict[str, int]:
    return {plugin.name: plugin.weight for plugin in loaded.profiles[profile].plugins_at("score")}


def args(loaded: LoadedConfiguration, plugin: str) -> dict[str, Any]:
    found = loaded.profiles[0].plugin_args[plugin]
    assert isinstance(found, dict)
    return found


def said(loaded: LoadedConfiguration) -> str:
    return "\n".join(loaded.warnings)


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2", "v1beta1", "v1beta2", "v1beta3"])
def test_an_empty_file_of_every_version_is_the_default_configuration_of_its_time(version: str) -> None:
    loaded = load(version, "")
    assert loaded.converted_from == version
    now = load_configuration(text_of("v1", ""), source="f")
    assert loaded.scheduler == now.scheduler
    assert names(loaded, "filter") == [plugin.name for plugin in now.profiles[0].plugins_at("filter")]
    affinity = 2 if version == "v1beta3" else 1
    assert weights(loaded)["NodeAffinity"] == weights(loaded)["InterPodAffinity"] == affinity
    assert f"{version} becomes {GROUP}/v1" in said(loaded)


def test_v1beta3_changes_its_version_and_nothing_else() -> None:
    text = (
        "percentageOfNodesToScore: 30\nprofiles:\n- schedulerName: a\n"
        "  plugins: {multiPoint: {enabled: [{name: Mine, weight: 3}]}, score: {disabled: [{name: '*'}]}}\n"
        "  pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}]\n"
    )
    loaded, now = load("v1beta3", text), load("v1", text)
    assert loaded.profiles == now.profiles
    assert loaded.scheduler_json == now.scheduler_json
    assert len(loaded.warnings) == len(now.warnings) + 1


def test_arguments_with_the_version_of_the_file_have_v1_after_it() -> None:
    given = f"{{apiVersion: {GROUP}/v1beta3, kind: InterPodAffinityArgs, hardPodAffinityWeight: 5}}"
    loaded = load("v1beta3", f"profiles: [{{pluginConfig: [{{name: InterPodAffinity, args: {given}}}]}}]")
    assert args(loaded, "InterPodAffinity")["hardPodAffinityWeight"] == 5
    assert args(loaded, "InterPodAffinity")["apiVersion"] == f"{GROUP}/v1"


def test_older_default_weights_give_way_to_weights_of_the_file() -> None:
    plugins = "{score: {enabled: [{name: NodeAffinity, weight: 9}], disabled: [{name: InterPodAffinity}]}}"
    found = weights(load("v1beta2", f"profiles: [{{plugins: {plugins}}}]"))
    assert found["NodeAffinity"] == 9
    assert found["TaintToleration"] == 1
    assert "InterPodAffinity" not in found


@pytest.mark.parametrize(
    ("enabled", "strategy", "weight"),
    [
        ("NodeResourcesMostAllocated, weight: 5", "MostAllocated", 5),
        ("NodeResourcesLeastAllocated, weight: 4", "LeastAllocated", 4),
        ("NodeResourcesMostAllocated", "MostAllocated", 1),
    ],
)
def test_scoring_plugins_become_strategies_of_fit(enabled: str, strategy: str, weight: int) -> None:
    name = enabled.partition(",")[0]
    loaded = load(
        "v1beta1",
        "profiles:\n- plugins:\n    score:\n      disabled: [{name: '*'}]\n"
        f"      enabled: [{{name: {enabled}}}]\n"
        f"  pluginConfig: [{{name: {name}, args: {{resources: [{{name: cpu, weight: 3}}]}}}}]\n",
    )
    assert weights(loaded) == {"NodeResourcesFit": weight}
    found = args(loaded, "NodeResourcesFit")["scoringStrategy"]
    assert found == {"type": strategy, "resources": [{"name": "cpu", "weight": 3}]}


def test_ratio_plugin_brings_its_shape_and_fits_other_arguments_stay() -> None:
    loaded = load(
        "v1beta1",
        "profiles:\n- plugins: {score: {enabled: [{name: RequestedToCapacityRatio}],"
        " disabled: [{name: NodeResourcesLeastAllocated}]}}\n"
        "  pluginConfig:\n"
        "  - {name: RequestedToCapacityRatio, args: {shape: [{utilization: 0, score: 10}]}}\n"
        "  - {name: NodeResourcesFit, args: {ignoredResources: [example.com/a]}}\n",
    )
    found = args(loaded, "NodeResourcesFit")
    assert found["ignoredResources"] == ["example.com/a"]
    assert found["scoringStrategy"]["type"] == "RequestedToCapacityRatio"
    assert found["scoringStrategy"]["requestedToCapacityRatio"]["shape"] == [{"utilization": 0, "score": 10}]
    assert weights(loaded)["NodeResourcesFit"] == 1


def test_ratio_plugin_without_a_shape_is_an_error() -> None:
    error = refused(
        "v1beta1", "profiles: [{plugins: {score: {enabled: [{name: RequestedToCapacityRatio}]}}}]"
    )
    assert "needs a shape" in str(error)


def test_disabling_least_allocated_disables_the_score_of_fit_only() -> None:
    loaded = load(
        "v1beta1", "profiles: [{plugins: {score: {disabled: [{name: NodeResourcesLeastAllocated}]}}}]"
    )
    assert "NodeResourcesFit" not in weights(loaded)
    assert "NodeResourcesFit" in names(loaded, "filter")


def test_second_scoring_plugin_is_dropped_with_a_warning() -> None:
    loaded = load(
        "v1beta1", "profiles: [{plugins: {score: {enabled: [{name: NodeResourcesMostAllocated}]}}}]"
    )
    assert "NodeResourcesLeastAllocated, on by default, is dropped" in said(loaded)
    assert args(loaded, "NodeResourcesFit")["scoringStrategy"]["type"] == "MostAllocated"


def test_resources_without_a_weight_are_dropped_from_the_strategy() -> None:
    loaded = load(
        "v1beta1",
        "profiles:\n- pluginConfig:\n  - name: NodeResourcesLeastAllocated\n"
        "    args: {resources: [{name: cpu, weight: 2}, {name: memory}]}\n",
    )
    found = args(loaded, "NodeResourcesFit")["scoringStrategy"]["resources"]
    assert found == [{"name": "cpu", "weight": 2}]
    assert "resource memory is dropped" in said(loaded)


def test_plugin_that_its_version_does_not_have_is_refused_and_its_successor_named() -> None:
    error = refused(
        "v1beta2", "profiles:\n- plugins:\n    score: {enabled: [{name: NodeResourcesMostAllocated}]}\n"
    )
    assert error.line == 5
    assert "gone since v1beta2: use NodeResourcesFit" in str(error)


def test_warning_about_a_disabled_removed_plugin_names_the_plugin_to_disable() -> None:
    loaded = load(
        "v1beta3", "profiles: [{plugins: {score: {disabled: [{name: NodeResourcesLeastAllocated}]}}}]"
    )
    assert "NodeResourcesFit" in weights(loaded)
    assert "disable NodeResourcesFit" in said(loaded)
    # What named nothing then names nothing now: it would be warned of in every file that is saved.
    assert "score" not in loaded.profiles[0].merged_plugins
    again = load_configuration(json.dumps(loaded.document), source="g", older=Converter)
    assert again.warnings == ()


def test_selector_spread_is_pod_topology_spread_once_with_the_highest_weight() -> None:
    loaded = load(
        "v1beta2",
        "profiles:\n- plugins:\n    preScore: {enabled: [{name: SelectorSpread}]}\n"
        "    score: {enabled: [{name: PodTopologySpread, weight: 3}, {name: SelectorSpread, weight: 5}]}\n",
    )
    assert weights(loaded)["PodTopologySpread"] == 5
    assert names(loaded, "preScore").count("PodTopologySpread") == 1
    assert "PodTopologySpread and SelectorSpread are one plugin" in said(loaded)


def test_limits_of_in_tree_volumes_become_one_plugin() -> None:
    plugins = "{filter: {enabled: [{name: EBSLimits}, {name: CinderLimits}], disabled: [{name: '*'}]}}"
    loaded = load("v1beta3", f"profiles: [{{plugins: {plugins}}}]")
    assert names(loaded, "filter") == ["NodeVolumeLimits"]


def test_node_label_becomes_an_added_affinity() -> None:
    loaded = load(
        "v1beta1",
        "profiles:\n- plugins: {filter: {enabled: [{name: NodeLabel}]}}\n"
        "  pluginConfig: [{name: NodeLabel, args: {presentLabels: [zone], absentLabels: [old]}}]\n",
    )
    term = args(loaded, "NodeAffinity")["addedAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [one["operator"] for one in term["nodeSelectorTerms"][0]["matchExpressions"]] == [
        "Exists",
        "DoesNotExist",
    ]


@pytest.mark.parametrize(
    ("point", "kept", "dropped"), [("filter", "required", "Preference"), ("score", "preferred", "Labels")]
)
def test_rules_of_node_label_count_only_at_the_points_where_it_is_enabled(
    point: str, kept: str, dropped: str
) -> None:
    loaded = load(
        "v1beta1",
        f"profiles:\n- plugins: {{{point}: {{enabled: [{{name: NodeLabel}}]}}}}\n"
        "  pluginConfig: [{name: NodeLabel, args: {presentLabels: [zone], absentLabels: [old],\n"
        "    presentLabelsPreference: [ssd], absentLabelsPreference: [slow]}}]\n",
    )
    assert list(args(loaded, "NodeAffinity")["addedAffinity"]) == [
        f"{kept}DuringSchedulingIgnoredDuringExecution"
    ]
    lines = [one for one in loaded.warnings if "is dropped: NodeLabel is not enabled at" in one]
    assert len(lines) == 2
    assert all(dropped in one for one in lines)


@pytest.mark.parametrize(
    ("version", "plugins", "weight"),
    [
        pytest.param("v1beta1", "{score: {enabled: [{name: SelectorSpread, weight: 1}]}}", 2, id="lighter"),
        pytest.param("v1beta1", "{score: {enabled: [{name: SelectorSpread, weight: 5}]}}", 5, id="heavier"),
        pytest.param("v1beta3", "{multiPoint: {enabled: [{name: SelectorSpread}]}}", 2, id="multiPoint"),
        pytest.param(
            "v1beta3",
            "{multiPoint: {enabled: [{name: PodTopologySpread, weight: 7}]},"
            " score: {enabled: [{name: SelectorSpread, weight: 3}]}}",
            7,
            id="weight of multiPoint",
        ),
        pytest.param(
            "v1beta1",
            "{score: {enabled: [{name: SelectorSpread, weight: 1}], disabled: [{name: '*'}]}}",
            1,
            id="off by default",
        ),
    ],
)
def test_a_plugin_that_joins_a_default_one_does_not_lower_its_weight(
    version: str, plugins: str, weight: int
) -> None:
    loaded = load(version, f"profiles: [{{plugins: {plugins}}}]")
    assert weights(loaded)["PodTopologySpread"] == weight
    assert ("are one plugin: the highest weight counts" in said(loaded)) is (weight != 1)


def test_disabled_plugins_and_dropped_arguments_are_explained() -> None:
    loaded = load(
        "v1beta1",
        "profiles:\n- plugins: {score: {disabled: [{name: SelectorSpread}],\n"
        "    enabled: [{name: NodeResourcesMostAllocated, weight: 2}, {name: RequestedToCapacityRatio}]}}\n"
        "  pluginConfig:\n"
        "  - {name: RequestedToCapacityRatio, args: {shape: [{utilization: 0, score: 0}]}}\n",
    )
    assert "defaultingType: List in the arguments of PodTopologySpread turns that off" in said(loaded)
    assert "arguments of RequestedToCapacityRatio are dropped: the profile does not score by it" in said(
        loaded
    )


def test_points_that_v1beta2_did_not_read_are_dropped_with_a_warning() -> None:
    loaded = load(
        "v1beta2",
        "profiles: [{plugins: {multiPoint: {disabled: [{name: '*'}]},"
        " preEnqueue: {enabled: [{name: Mine}]}}}]",
    )
    assert names(loaded, "filter")
    assert "Mine" not in names(loaded, "preEnqueue")
    for point in ("multiPoint", "preEnqueue"):
        assert f"profiles[0].plugins.{point}: dropped: v1beta2 had the field" in said(loaded)


@pytest.mark.parametrize("plugin", ["ServiceAffinity", "NodePreferAvoidPods"])
def test_plugins_without_an_equivalent_are_dropped_with_a_warning(plugin: str) -> None:
    text = f"profiles: [{{plugins: {{score: {{enabled: [{{name: {plugin}}}]}}}}}}]"
    assert f"plugin {plugin} is dropped (gone since v1beta2)" in said(load("v1beta1", text))


def test_addresses_are_dropped_and_older_locks_become_leases() -> None:
    loaded = load(
        "v1beta1",
        "healthzBindAddress: 0.0.0.0:10251\nmetricsBindAddress: ''\n"
        "leaderElection: {resourceLock: endpointsleases, resourceName: x}\n",
    )
    assert loaded.scheduler.leader_election.resource_lock == "leases"
    assert loaded.scheduler.leader_election.resource_name == "x"
    assert "healthzBindAddress is dropped" in said(loaded)
    assert "metricsBindAddress is dropped" in said(loaded)
    assert "the lock on endpointsleases becomes leases" in said(loaded)


def test_constraints_without_a_defaulting_type_get_the_type_list() -> None:
    text = (
        "profiles: [{pluginConfig: [{name: PodTopologySpread, args: {defaultConstraints: "
        "[{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]}}]}]"
    )
    assert args(load("v1beta1", text), "PodTopologySpread")["defaultingType"] == "List"
    assert refused("v1beta2", text).kind == "validation"


def test_extender_of_v1beta1_is_converted_in_either_spelling() -> None:
    text = (
        "extenders: [{urlPrefix: 'http://x', filterVerb: f, enableHttps: true, tlsConfig: {insecure: true}}]"
    )
    assert load("v1beta1", text).scheduler.extenders[0].enable_https
    now = load("v1beta1", text.replace("enableHttps", "enableHTTPS"))
    assert now.scheduler.extenders[0].enable_https
    both = refused("v1beta1", text.replace("enableHttps: true", "enableHttps: true, enableHTTPS: true"))
    assert "one field" in str(both)


ALPHA1 = """schedulerName: mine
algorithmSource: {provider: DefaultProvider}
hardPodAffinitySymmetricWeight: 7
bindTimeoutSeconds: 30
disablePreemption: true
leaderElection: {lockObjectNamespace: ns, lockObjectName: name}
plugins:
  postFilter: {enabled: [{name: Mine}]}
  normalizeScore: {enabled: [{name: Mine}, {name: Other}]}
  score: {enabled: [{name: Mine, weight: 2}]}
  reserve: {enabled: [{name: Mine}]}
  unreserve: {enabled: [{name: Other}, {name: Mine}], disabled: [{name: Third}]}
pluginConfig:
- {name: Mine, args: any text}
"""


def test_v1alpha1_becomes_one_profile_with_the_points_of_v1() -> None:
    loaded = load("v1alpha1", ALPHA1)
    assert loaded.profiles[0].scheduler_name == "mine"
    assert names(loaded, "preScore")[-1] == "Mine"
    assert "Mine" not in names(loaded, "postFilter")
    assert names(loaded, "reserve")[-2:] == ["Mine", "Other"]
    assert weights(loaded)["Mine"] == 2
    assert "Other" not in weights(loaded)
    assert "DefaultPreemption" not in loaded.profiles[0].plugin_names
    assert args(loaded, "VolumeBinding")["bindTimeoutSeconds"] == 30
    assert args(loaded, "InterPodAffinity")["hardPodAffinityWeight"] == 7
    assert loaded.profiles[0].plugin_args["Mine"] == "any text"
    election = loaded.scheduler.leader_election
    assert (election.resource_namespace, election.resource_name) == ("ns", "name")
    text = said(loaded)
    for part in (
        *("postFilter becomes preScore", "normalizeScore becomes score", "unreserve becomes reserve"),
        *("Other is dropped: it is not enabled at score", "plugin Other is enabled at reserve"),
        *("Third is dropped", "DefaultPreemption in multiPoint.disabled"),
    ):
        assert part in text


def test_autoscaler_provider_becomes_the_strategy_most_allocated() -> None:
    loaded = load("v1alpha1", "algorithmSource: {provider: ClusterAutoscalerProvider}")
    assert args(loaded, "NodeResourcesFit")["scoringStrategy"]["type"] == "MostAllocated"


@pytest.mark.parametrize(
    ("plugins", "strategy", "weight"),
    [
        ("{score: {disabled: [{name: NodeResourcesMostAllocated}]}}", None, 0),
        ("{score: {disabled: [{name: NodeResourcesLeastAllocated}]}}", "MostAllocated", 1),
        ("{score: [{name: NodeResourcesLeastAllocated, weight: 2}]}", "LeastAllocated", 2),
        (
            "{score: {disabled: [{name: NodeResourcesMostAllocated}],"
            " enabled: [{name: NodeResourcesMostAllocated, weight: 5}]}}",
            "MostAllocated",
            5,
        ),
        (
            "{score: {disabled: [{name: NodeResourcesMostAllocated}],"
            " enabled: [{name: NodeResourcesLeastAllocated, weight: 3}]}}",
            "LeastAllocated",
            3,
        ),
    ],
)
def test_plugins_beside_the_autoscaler_provider_change_its_own_list(
    plugins: str, strategy: str | None, weight: int
) -> None:
    loaded = load("v1alpha1", f"algorithmSource: {{provider: ClusterAutoscalerProvider}}\nplugins: {plugins}")
    assert weights(loaded).get("NodeResourcesFit", 0) == weight
    if strategy is not None:
        assert args(loaded, "NodeResourcesFit")["scoringStrategy"]["type"] == strategy


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{policy: {file: {path: /gone/p.json}}}", "cannot read the policy: No such file"),
        (
            "{policy: {configMap: {namespace: a, name: b}}}",
            "kubectl -n a get configmap b -o 'jsonpath={.data.policy\\.cfg}' > policy.cfg",
        ),
        ("{policy: {configMap: {namespace: a, name: b}}}", "berth scheduler reads the ConfigMap itself"),
        ("{policy: {configMap: {name: b}}}", "the ConfigMap's namespace is missing: add it"),
        ("{policy: {configMap: {}}}", "the ConfigMap's namespace and name is missing: add it"),
        ("{policy: {}}", "name the policy's file"),
        ("{provider: Other}", 'no provider "Other"'),
    ],
)
def test_source_that_cannot_be_read_is_an_error_with_a_cure(source: str, text: str) -> None:
    assert text in str(refused("v1alpha1", f"algorithmSource: {source}"))


POLICY = (
    '{"kind": "Policy", "apiVersion": "v1", "predicates": [{"name": "CheckVolumeBinding"}],'
    ' "priorities": [{"name": "MostRequestedPriority", "weight": 5}],'
    ' "extenders": [{"urlPrefix": "http://127.0.0.1:1", "filterVerb": "f"}]MORE}'
)


def test_policy_in_a_file_is_read_with_the_rest_of_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "policy.cfg"
    file.write_text(POLICY.replace("MORE", ""))
    alone = load_configuration(file.read_text(), source="p", older=Converter)
    loaded = load(
        "v1alpha1",
        f"schedulerName: mine\nbindTimeoutSeconds: 7\nhardPodAffinitySymmetricWeight: 9\n"
        f"disablePreemption: true\nalgorithmSource: {{policy: {{file: {{path: {file}}}}}}}",
    )
    assert loaded.profiles[0].scheduler_name == "mine"
    for point in ("filter", "score"):
        assert names(loaded, point) == names(alone, point)
    assert weights(loaded) == weights(alone)
    assert "DefaultPreemption" not in names(loaded, "postFilter")
    assert args(loaded, "NodeResourcesFit")["scoringStrategy"]["type"] == "MostAllocated"
    assert args(loaded, "VolumeBinding")["bindTimeoutSeconds"] == 7
    assert loaded.scheduler.extenders == alone.scheduler.extenders
    assert f"{file}: line 1: priorities[0]" in said(loaded)


def from_config_map(data: dict[str, str] | HostError, more: str = "") -> LoadedConfiguration:
    """Return a configuration whose policy is in a ConfigMap with this data, or that cannot be read."""

    def read(namespace: str, name: str, kubeconfig: str) -> dict[str, str]:
        assert (namespace, name, kubeconfig) == ("kube-system", "policy", "/etc/k.conf")
        if isinstance(data, HostError):
            raise data
        return data

    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1alpha1\nkind: KubeSchedulerConfiguration\n"
        "clientConnection: {kubeconfig: /etc/k.conf}\n"
        f"algorithmSource: {{policy: {{configMap: {{namespace: kube-system, name: policy}}}}}}\n{more}"
    )
    return load_configuration(text, source="f", older=lambda: Converter(read))


def test_policy_in_a_config_map_means_what_it_means_in_a_file() -> None:
    text = POLICY.replace("MORE", "")
    alone = load_configuration(text, source="p", older=Converter)
    loaded = from_config_map({"policy.cfg": text, "other": "x"})
    for point in ("filter", "score"):
        assert names(loaded, point) == names(alone, point)
    assert weights(loaded) == weights(alone)
    assert loaded.scheduler.extenders == alone.scheduler.extenders
    assert "ConfigMap kube-system/policy: line 1: priorities[0]" in said(loaded)


@pytest.mark.parametrize(
    ("data", "more", "problem"),
    [
        (
            {"policy.json": "{}"},
            "",
            "ConfigMap kube-system/policy has no key policy.cfg (it has policy.json)",
        ),
        ({}, "", "has no key policy.cfg (it has nothing)"),
        ({"policy.cfg": "kind: Other"}, "", "this is no Policy"),
        (HostError("it is not there"), "", "ConfigMap kube-system/policy: it is not there"),
        ({"policy.cfg": '{"kind": "Policy"}'}, "plugins: {}\n", "kube-scheduler 1.18"),
        ({"policy.cfg": '{"kind": "Policy"}'}, "pluginConfig: [{name: NodeAffinity}]\n", "beside a policy"),
    ],
)
def test_policy_that_its_config_map_does_not_have_is_refused(
    data: dict[str, str] | HostError, more: str, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(problem)):
        from_config_map(data, more)


def test_empty_arguments_beside_a_policy_are_accepted() -> None:
    assert from_config_map({"policy.cfg": '{"kind": "Policy"}'}, "pluginConfig: []\n").profiles


@pytest.mark.parametrize(("own", "wanted"), [(', "hardPodAffinitySymmetricWeight": 4', 4), ("", 9)])
def test_symmetric_weight_of_a_policy_takes_precedence_over_the_configuration(
    own: str, wanted: int, tmp_path: Path
) -> None:
    file = tmp_path / "policy.cfg"
    file.write_text('{"kind": "Policy"' + own + "}")
    loaded = load(
        "v1alpha1",
        f"hardPodAffinitySymmetricWeight: 9\nalgorithmSource: {{policy: {{file: {{path: {file}}}}}}}",
    )
    assert args(loaded, "InterPodAffinity")["hardPodAffinityWeight"] == wanted


@pytest.mark.parametrize(
    ("text", "more", "problem"),
    [
        ("{", "", "policy.cfg"),
        ("kind: Other", "", "this is no Policy"),
        ('{"kind": "Policy", "predicates": [{"name": "Nonsense"}]}', "", "Nonsense"),
        ('{"kind": "Policy", "predicats": []}', "", "predicats"),
        ('{"kind": "Policy"}', "plugins: {score: [{name: NodeAffinity}]}\n", "beside a policy"),
    ],
)
def test_bad_policy_is_refused(text: str, more: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.cfg"
    file.write_text(text)
    error = refused("v1alpha1", f"{more}algorithmSource: {{policy: {{file: {{path: {file}}}}}}}")
    assert problem in str(error)


def test_bare_lists_replace_the_defaults_of_their_points_alone() -> None:
    text = """{"plugins": {"filter": [{"name": "Mine"}], "score": [{"name": "Mine", "weight": 30}]}}"""
    loaded = load_configuration(text, source="f", registered={"Mine": MINE}, older=Converter)
    assert loaded.converted_from == "flat lists"
    assert names(loaded, "filter") == ["Mine"]
    assert weights(loaded) == {"Mine": 30}
    assert "VolumeBinding" in names(loaded, "reserve")
    assert said(loaded).count("the list replaces the default plugins") == 2


def test_a_bare_list_at_pre_filter_names_the_plugins_that_go_unprepared() -> None:
    loaded = load("v1alpha1", "plugins: {preFilter: [{name: NodePorts}]}")
    (warning,) = [text for text in loaded.warnings if "without their preFilter" in text]
    assert "NodeResourcesFit" in warning
    assert "NodePorts" not in warning
    both = load("v1alpha1", "plugins: {preFilter: [{name: NodePorts}], filter: [{name: NodePorts}]}")
    assert "without their preFilter" not in said(both)


def test_bare_lists_are_read_in_a_v1alpha1_file_too() -> None:
    assert names(load("v1alpha1", "plugins: {permit: [{name: Mine}]}"), "permit") == ["Mine"]


def test_an_unregistered_plugin_is_named_with_the_cure_and_what_was_converted() -> None:
    error = refused("v1alpha1", "plugins: {reserve: {enabled: [{name: Foo}]}}")
    assert error.kind == "profile"
    assert '"Foo" does not exist' in str(error)
    assert "--plugin Foo=reserve" in str(error)
    assert any("v1alpha1 becomes" in warning for warning in error.warnings)


@pytest.mark.parametrize(
    ("version", "text", "field"),
    [
        ("v1beta3", "healthzBindAddress: x", 'unknown field "healthzBindAddress"'),
        (
            "v1beta2",
            "profiles: [{plugins: {multiPont: {}}}]",
            'unknown field "profiles[0].plugins.multiPont"',
        ),
        ("v1beta3", "profiles: [{percentageOfNodesToScore: 3}]", "profiles[0].percentageOfNodesToScore"),
        ("v1beta1", "plugins: {}", 'unknown field "plugins"'),
        ("v1alpha1", "profiles: []", 'unknown field "profiles"'),
        ("v1alpha2", "profiles: [{plugins: {postFilter: {}}}]", "profiles[0].plugins.postFilter"),
        (
            "v1beta1",
            "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {}}}]}]",
            "scoring",
        ),
        ("v1beta2", "profiles: 3", "profiles: expected a list"),
        ("v1beta1", "profiles: [{plugins: {score: [{name: a}]}}]", "score: expected an object"),
        ("v1beta2", "parallelism: 1\nparallelism: 2", 'key "parallelism" already set'),
        ("v1alpha1", "plugins: {score: 7}", "plugins.score: expected an object"),
        ("v1beta2", "extenders: [{httpTimeout: 5}]", "extenders[0].httpTimeout"),
        ("v1beta1", "extenders: [{httpTimeout: 5 minutes}]", "extenders[0].httpTimeout"),
        (
            "v1beta2",
            f"profiles: [{{pluginConfig: [{{name: NodeAffinity, args: {{apiVersion: {GROUP}/v1}}}}]}}]",
            "profiles[0].pluginConfig[0].args",
        ),
    ],
)
def test_fields_that_a_version_does_not_have_are_errors(version: str, text: str, field: str) -> None:
    error = refused(version, text)
    assert error.kind == "decode"
    assert field in str(error)
    assert error.line is not None


def test_conversion_is_off_by_default_and_refuses_as_kube_scheduler_does() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(text_of("v1beta3", ""), source="f")
    assert caught.value.kind == "decode"
    assert 'no kind "KubeSchedulerConfiguration" is registered for version' in str(caught.value)
