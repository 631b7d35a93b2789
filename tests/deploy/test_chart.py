"""The manifests that the chart renders, one mechanism per test, and the values that it refuses."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from berth_bench.versus.real_servers import program
from berth_host.cli import configuration
from berth_host.cli.scheduler.flag_kinds import gate_values
from berth_host.cli.scheduler.parsing import parse
from berth_host.config.berth.configuration import BerthPlugin, HandleListener, PluginScope, TlsFiles
from berth_host.config.berth.points import POINT_RULES
from berth_host.config.decoding.go_types import json_fields
from berth_host.config.decoding.types_v1 import (
    ClientConnection,
    KubeSchedulerConfiguration,
    LeaderElection,
    ManagedResource,
    PluginsV1,
    ProfileV1,
)
from docs.pages import DOCS, Page
from support import chart
from support.chart import Json, containers, of_kind, rendered, the
from support.endpoints import BAD_ENDPOINTS, GOOD_ENDPOINTS

SIDECAR: Json = {
    "name": "GpuShare",
    "required": True,
    "container": {"image": "gpu:1", "command": ["berth-sdk", "serve", "GpuShare"], "name": "gpus"},
}
each_file = pytest.mark.parametrize(
    "values", [pytest.param(path, id=path.stem) for path in chart.values_files()]
)


def scheduler_yaml(manifests: list[Json]) -> str:
    text: str = the(manifests, "ConfigMap")["data"]["scheduler.yaml"]
    return text


def pod_of(manifests: list[Json]) -> Json:
    spec: Json = the(manifests, "Deployment")["spec"]["template"]["spec"]
    return spec


def test_shadow_is_one_replica_with_the_right_to_read_alone() -> None:
    groups = {"kubernetes": True, "coscheduling": True}
    manifests = rendered(values={"shadow": True, "podGroups": groups})
    deployment = the(manifests, "Deployment")
    assert deployment["spec"]["replicas"] == 1
    assert "--shadow" in pod_of(manifests)["containers"][0]["args"]
    assert "leaderElect: false" in scheduler_yaml(manifests)
    assert not [one for one in of_kind(manifests, "Role") if "lease" in one["metadata"]["name"]]
    rules = [rule for role in of_kind(manifests, "ClusterRole") for rule in role["rules"]]
    writing = {
        resource
        for rule in rules
        for resource in rule.get("resources", ())
        if set(rule["verbs"]) - {"get", "list", "watch"}
    }
    assert writing == {"tokenreviews", "subjectaccessreviews"}
    # What it reads is what a scheduler reads.
    reads = {(rule["apiGroups"][0], one) for rule in rules for one in rule.get("resources", ())}
    whole = [
        rule
        for role in of_kind(rendered(values={"podGroups": groups}), "ClusterRole")
        for rule in role["rules"]
        if {"list", "watch"} <= set(rule["verbs"])
    ]
    assert {(rule["apiGroups"][0], one) for rule in whole for one in rule.get("resources", ())} <= reads


@each_file
def test_berth_accepts_the_configuration(values: Path, tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text(scheduler_yaml(rendered(values)))
    loaded = configuration.load(str(path), {})
    assert loaded.scheduler.leader_election.leader_elect


@each_file
def test_helm_lint_finds_no_error(values: Path) -> None:
    line = [str(program("helm")), "lint", "--strict", "--quiet", str(chart.CHART), "--values", str(values)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


@each_file
def test_selectors_find_the_pods(values: Path) -> None:
    manifests = rendered(values)
    deployment = the(manifests, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    selectors = [
        deployment["spec"]["selector"]["matchLabels"],
        the(manifests, "Service")["spec"]["selector"],
        the(manifests, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        the(manifests, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ]
    for selector in selectors:
        assert selector.items() <= labels.items()
    for monitor in of_kind(manifests, "ServiceMonitor"):
        service = the(manifests, "Service")["metadata"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service["labels"].items()
        assert monitor["spec"]["namespaceSelector"]["matchNames"] == [service["namespace"]]


def test_a_plugin_runs_in_a_sidecar_that_listens_where_the_host_dials() -> None:
    tracing = {"endpoint": "otel-collector.monitoring:4317", "samplingRatePerMillion": 10000}
    manifests = rendered(values={"plugins": [SIDECAR], "cycleBudget": "2s", "tracing": tracing})
    own = list(yaml.safe_load_all(scheduler_yaml(manifests)))[1]
    assert own["cycleBudget"] == "2s"
    assert own["tracing"] == tracing
    (entry,) = own["plugins"]
    assert entry == {
        "name": "GpuShare",
        "required": True,
        "endpoint": "unix:///run/berth/plugins/gpus/plugin.sock",
    }
    folders, sidecar = pod_of(manifests)["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    endpoint = {"name": "BERTH_PLUGIN_ENDPOINT", "value": "unix:///run/berth/plugins/gpus/plugin.sock"}
    assert endpoint in sidecar["env"]
    (scheduler,) = pod_of(manifests)["containers"]
    for container in (folders, scheduler):
        assert {"name": "berth", "mountPath": "/run/berth"} in container["volumeMounts"]


def test_each_sidecar_sees_its_own_folder_alone_and_the_hosts_read_only() -> None:
    other = {"name": "Other", "container": {"image": "i"}}
    manifests = rendered(values={"plugins": [SIDECAR, other]})
    folders, *sidecars = pod_of(manifests)["initContainers"]
    for sidecar, name in zip(sidecars, ("gpus", "other"), strict=True):
        assert [mount for mount in sidecar["volumeMounts"] if mount["name"] == "berth"] == [
            {"name": "berth", "mountPath": f"/run/berth/plugins/{name}", "subPath": f"plugins/{name}"},
            {"name": "berth", "mountPath": "/run/berth/host", "subPath": "host", "readOnly": True},
        ]
        assert "runAsUser" not in sidecar["securityContext"]
    # The container that makes the folders makes those that are mounted, before any sidecar starts.
    assert '"host", "plugins", "plugins/gpus", "plugins/other"' in folders["args"][0]


def test_sidecar_may_have_a_user_of_its_own_that_the_host_allows() -> None:
    own = {**SIDECAR, "user": 65540, "allowedUIDs": [7]}
    other = {
        "name": "Other",
        "user": 65541,
        "container": {"image": "i", "securityContext": {"privileged": False}},
    }
    manifests = rendered(values={"plugins": [own, other]})
    _, first, second = pod_of(manifests)["initContainers"]
    assert first["securityContext"]["runAsUser"] == 65540
    assert first["securityContext"]["readOnlyRootFilesystem"]
    assert second["securityContext"] == {"privileged": False, "runAsUser": 65541}
    plugins = list(yaml.safe_load_all(scheduler_yaml(manifests)))[1]["plugins"]
    assert [one["allowedUIDs"] for one in plugins] == [[7, 65540], [65541]]
    assert all("user" not in one for one in plugins)


@pytest.mark.parametrize(
    "plugin",
    [{"name": "A", "user": 0, "container": {"image": "i"}}, {"name": "A", "user": 7, "command": ["x"]}],
)
def test_user_that_makes_no_sense_is_refused(plugin: Json) -> None:
    with pytest.raises(chart.ChartError, match="user"):
        rendered(values={"plugins": [plugin]})


def test_fields_of_a_container_go_into_the_sidecar() -> None:
    more: Json = {
        "env": [{"name": "A", "value": "b"}],
        "resources": {"limits": {"memory": "9Gi"}},
        "volumeMounts": [{"name": "models", "mountPath": "/models"}],
        "startupProbe": {"exec": {"command": ["true"]}},
        "securityContext": {"readOnlyRootFilesystem": False},
    }
    plugin = {**SIDECAR, "container": {**SIDECAR["container"], **more}}
    sidecar = pod_of(rendered(values={"plugins": [plugin]}))["initContainers"][1]
    assert more["env"][0] in sidecar["env"]
    assert more["volumeMounts"][0] in sidecar["volumeMounts"]
    for key in ("resources", "startupProbe", "securityContext"):
        assert sidecar[key] == more[key]


@pytest.mark.parametrize(
    ("plugin", "container"),
    [
        ("GpuShare", "gpu-share"),
        ("gpu_share.v2", "gpu-share-v2"),
        pytest.param(f"{'ab' * 15}C{'d' * 32}", f"{'ab' * 15}-c{'d' * 31}", id="too long with its dash"),
        ("7", "7"),
    ],
)
def test_the_name_of_a_sidecar_is_made_of_the_plugins(plugin: str, container: str) -> None:
    made = {"name": plugin, "container": {"image": "gpu:1"}}
    name = pod_of(rendered(values={"plugins": [made]}))["initContainers"][1]["name"]
    assert name == container


def test_plugins_without_a_container_get_none() -> None:
    plugins = [{"name": "A", "inProcess": "m:A"}, {"name": "B", "command": ["b"]}]
    manifests = rendered(values={"plugins": plugins})
    own = list(yaml.safe_load_all(scheduler_yaml(manifests)))[1]
    assert own["plugins"] == plugins
    assert [container["name"] for container in pod_of(manifests)["initContainers"]] == ["folders"]


def test_only_the_scheduler_container_has_the_token() -> None:
    manifests = rendered(values={"plugins": [SIDECAR]})
    pod = pod_of(manifests)
    assert pod["automountServiceAccountToken"] is False
    with_token = [
        container["name"]
        for container in containers(the(manifests, "Deployment"))
        if any(mount["name"] == "token" for mount in container["volumeMounts"])
    ]
    assert with_token == ["scheduler"]


@each_file
def test_no_container_is_root_or_writes_to_its_image(values: Path) -> None:
    manifests = rendered(values)
    assert pod_of(manifests)["securityContext"]["runAsNonRoot"] is True
    for container in containers(the(manifests, "Deployment")):
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] is True
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}


def test_release_name_with_dots_or_a_long_one_becomes_a_valid_service_name() -> None:
    assert the(rendered(name="team-a.berth"), "Service")["metadata"]["name"] == "team-a-berth"
    long = the(rendered(name="r" * 53, values={"nameOverride": "n" * 20}), "Service")["metadata"]["name"]
    assert long == f"{'r' * 53}-{'n' * 9}"


def test_names_that_are_numbers_stay_names() -> None:
    manifests = rendered(name="1", namespace="2", values={"nameOverride": "3"})
    service = the(manifests, "Service")
    assert service["metadata"]["name"] == "1-3"
    assert service["metadata"]["namespace"] == "2"
    assert service["spec"]["selector"]["app.kubernetes.io/instance"] == "1"
    assert service["spec"]["selector"]["app.kubernetes.io/name"] == "3"


def test_helm_test_is_a_pod_that_the_releases_scheduler_places() -> None:
    profiles = [{"schedulerName": "mine"}, {"schedulerName": "other"}]
    values = {"config": {"profiles": profiles}}
    manifests = rendered(values=values, hooks=True)
    pod = the(manifests, "Pod")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert pod["spec"]["schedulerName"] == "mine"
    assert pod["spec"]["volumes"][0]["configMap"]["name"] == the(manifests, "ConfigMap")["metadata"]["name"]
    selector = the(manifests, "Service")["spec"]["selector"]
    assert not selector.items() <= pod["metadata"]["labels"].items()
    assert of_kind(rendered(values=values), "Pod") == []


def test_two_releases_share_no_object_name() -> None:
    def names(name: str, namespace: str) -> set[tuple[str, str, str]]:
        return {
            (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"])
            for one in rendered(name=name, namespace=namespace, values=READ_BY_SOME)
        }

    first = names("berth", "a")
    assert len(first) > 10
    assert not first & names("berth", "b")
    assert not first & names("second", "a")


READERS = [{"kind": "User", "name": "prometheus"}]
DEVELOPERS: Json = {"kind": "Group", "name": "developers"}
READ_BY_SOME: Json = {"metrics": {"readers": READERS}, "answers": {"readers": [DEVELOPERS]}}


def test_the_rights_to_the_lease_are_those_that_the_configuration_needs() -> None:
    manifests = rendered(
        values={"config": {"leaderElection": {"resourceName": "mine", "resourceNamespace": "there"}}}
    )
    role = next(one for one in of_kind(manifests, "Role") if one["metadata"]["name"].endswith("-lease"))
    assert role["metadata"]["namespace"] == "there"
    assert ["mine"] in [rule.get("resourceNames") for rule in role["rules"]]
    config = yaml.safe_load(scheduler_yaml(manifests))
    assert config["leaderElection"]["resourceName"] == "mine"


def test_without_leader_election_there_is_no_lease_and_no_second_replica() -> None:
    off: Json = {"config": {"leaderElection": {"leaderElect": False}}}
    with pytest.raises(chart.ChartError, match="replicaCount above 1 needs leader election"):
        rendered(values=off)
    manifests = rendered(values={**off, "replicaCount": 1})
    assert of_kind(manifests, "Role") == []
    assert the(manifests, "Deployment")["spec"]["strategy"] == {"type": "Recreate"}


def test_a_changed_configuration_restarts_the_pods() -> None:
    def checksum(**values: Any) -> str:
        template = the(rendered(values=values), "Deployment")["spec"]["template"]
        found: str = template["metadata"]["annotations"]["config.berth.io/checksum"]
        return found

    before = checksum()
    assert checksum() == before
    assert checksum(config={"podMaxBackoffSeconds": 20}) != before
    assert checksum(cycleBudget="2s") != before


def test_more_rules_are_added_and_readers_may_read_metrics() -> None:
    rule = {"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["list", "watch"]}
    manifests = rendered(values={"rbac": {"extraRules": [rule]}, "metrics": {"readers": READERS}})
    roles = {one["metadata"]["name"]: one["rules"] for one in of_kind(manifests, "ClusterRole")}
    assert rule in roles["kube-system:berth"]
    assert "/metrics" in roles["kube-system:berth:metrics-reader"][0]["nonResourceURLs"]


KUBERNETES_GROUPS = {
    ("list", "podgroups.scheduling.k8s.io"),
    ("watch", "podgroups.scheduling.k8s.io"),
    ("patch", "podgroups/status.scheduling.k8s.io"),
    ("list", "compositepodgroups.scheduling.k8s.io"),
    ("watch", "compositepodgroups.scheduling.k8s.io"),
    ("patch", "compositepodgroups/status.scheduling.k8s.io"),
}
COSCHEDULING_GROUPS = {
    ("get", "podgroups.scheduling.x-k8s.io"),
    ("list", "podgroups.scheduling.x-k8s.io"),
    ("watch", "podgroups.scheduling.x-k8s.io"),
    ("patch", "podgroups.scheduling.x-k8s.io"),
    ("patch", "podgroups/status.scheduling.x-k8s.io"),
}


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("values", "rights", "gates"),
    [
        pytest.param({}, set(), [], id="neither"),
        pytest.param({"kubernetes": True}, KUBERNETES_GROUPS, ["GenericWorkload=true"], id="kubernetes"),
        pytest.param({"coscheduling": True}, COSCHEDULING_GROUPS, [], id="coscheduling"),
        pytest.param(
            {"kubernetes": True, "coscheduling": True},
            KUBERNETES_GROUPS | COSCHEDULING_GROUPS,
            ["GenericWorkload=true"],
            id="both",
        ),
    ],
)
def test_pod_groups_bring_their_gate_and_exactly_their_rights(
    values: Json, rights: set[tuple[str, str]], gates: list[str]
) -> None:
    manifests = rendered(values={"podGroups": values})
    (role,) = [one for one in of_kind(manifests, "ClusterRole") if one["metadata"]["name"].endswith(":berth")]
    found = {
        (verb, f"{resource}.{group}")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if "podgroups" in resource
    }
    assert found == rights
    (scheduler,) = pod_of(manifests)["containers"]
    flag = "--feature-gates="
    assert [one.removeprefix(flag) for one in scheduler["args"] if one.startswith(flag)] == gates


def test_gate_of_pod_groups_stands_beside_gates_of_the_values() -> None:
    more = ["-v=2", "--feature-gates=TopologyAwareWorkloadScheduling=true"]
    (scheduler,) = pod_of(rendered(values={"podGroups": {"kubernetes": True}, "extraArgs": more}))[
        "containers"
    ]
    flags = parse(scheduler["args"][1:])
    assert gate_values(flags.texts("feature-gates")) == {
        "GenericWorkload": True,
        "TopologyAwareWorkloadScheduling": True,
    }


def test_only_the_scheduler_has_rights_by_default() -> None:
    subjects = [(one["kind"], subject["kind"]) for one in rendered() for subject in one.get("subjects", [])]
    assert {kind for _, kind in subjects} == {"ServiceAccount"}


@pytest.mark.parametrize("enabled", [True, False])
def test_page_is_served_to_the_readers_of_answers_when_it_is_on(enabled: bool) -> None:
    manifests = rendered(values={"answers": {"readers": [DEVELOPERS]}, "ui": {"enabled": enabled}})
    role = next(
        one for one in manifests if one["kind"] == "ClusterRole" and "answers" in one["metadata"]["name"]
    )
    rights = {right for rule in role["rules"] for right in granted(rule)}
    assert ({("get", "/ui"), ("get", "/ui/*")} <= rights) is enabled
    assert ("--ui" in pod_of(manifests)["containers"][0]["args"]) is enabled


@pytest.mark.parametrize("enabled", [True, False])
def test_query_service_has_its_port_everywhere_when_it_is_on(enabled: bool) -> None:
    values = {"answers": {"readers": [DEVELOPERS]}, "query": {"enabled": enabled, "port": 12345}}
    manifests = rendered(values=values)
    role = next(
        one for one in manifests if one["kind"] == "ClusterRole" and "answers" in one["metadata"]["name"]
    )
    rights = {right for rule in role["rules"] for right in granted(rule)}
    assert (("post", "/berth/v1/simulate") in rights) is enabled
    (scheduler,) = pod_of(manifests)["containers"]
    assert ("--query-secure-port=12345" in scheduler["args"]) is enabled
    assert ({"name": "query", "containerPort": 12345} in scheduler["ports"]) is enabled
    service = next(one for one in manifests if one["kind"] == "Service")
    assert ({"name": "query", "port": 12345, "targetPort": "query"} in service["spec"]["ports"]) is enabled
    policy = next(one for one in manifests if one["kind"] == "NetworkPolicy")
    assert ({"port": "query", "protocol": "TCP"} in policy["spec"]["ingress"][0]["ports"]) is enabled


@pytest.mark.parametrize(
    ("lease", "is_beside"),
    [
        pytest.param({}, True, id="lease beside the pods"),
        pytest.param({"resourceNamespace": "there"}, False, id="lease elsewhere"),
        pytest.param({"leaderElect": False}, False, id="no lease"),
    ],
)
def test_group_gets_the_rights_that_kubectl_berth_needs(lease: Json, is_beside: bool) -> None:
    values = {
        "answers": {"readers": [DEVELOPERS]},
        "config": {"leaderElection": lease},
        "replicaCount": 1,
    }
    manifests = rendered(name="team-a", namespace="shop", values=values)
    bound = [one for one in manifests if DEVELOPERS in one.get("subjects", [])]
    assert {one["kind"]: one["roleRef"]["name"] for one in bound} == {
        "ClusterRoleBinding": "shop:team-a-berth:answers-reader",
        "RoleBinding": "team-a-berth-answers-reader",
    }
    rules = {
        one["kind"]: {right for rule in one["rules"] for right in granted(rule)}
        for one in manifests
        if one["metadata"]["name"].endswith("answers-reader") and "rules" in one
    }
    pods = set() if is_beside else {("list", "pods")}
    assert (
        rules["ClusterRole"]
        == {
            ("get", "/berth/v1/*"),
            ("post", "/berth/v1/fit"),
            ("list", "leases"),
        }
        | pods
    )
    assert rules["Role"] == {
        ("get", "leases"),
        ("get", "pods"),
        ("list", "pods"),
        ("get", "pods/portforward"),
        ("create", "pods/portforward"),
    }
    (role,) = [one for one in of_kind(manifests, "Role") if one["metadata"]["name"].endswith("-reader")]
    assert role["metadata"]["namespace"] == "shop"


def granted(rule: Json) -> set[tuple[str, str]]:
    """Return the rights of a rule: verb, and resource or path."""
    things = rule.get("nonResourceURLs", []) + rule.get("resources", [])
    return {(verb, thing) for verb in rule["verbs"] for thing in things}


def test_on_the_host_network_an_old_pod_ends_first() -> None:
    """Two pods with one port do not fit on a node."""
    deployment = the(rendered(values={"hostNetwork": True}), "Deployment")
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert deployment["spec"]["template"]["spec"]["hostNetwork"] is True
    assert "strategy" not in the(rendered(), "Deployment")["spec"]


def test_only_scheduler_uses_another_port_than_kube_scheduler() -> None:
    (scheduler,) = pod_of(rendered(chart.VALUES / "only-scheduler.yaml"))["containers"]
    assert scheduler["ports"] == [{"name": "https", "containerPort": 10269}]
    assert "--secure-port=10269" in scheduler["args"]


def test_digest_takes_precedence_over_the_tag() -> None:
    digest = f"sha256:{'a' * 64}"
    image = {"repository": "r/berth", "tag": "v1", "digest": digest}
    (scheduler,) = pod_of(rendered(values={"image": image}))["containers"]
    assert scheduler["image"] == f"r/berth@{digest}"


def test_network_policy_has_sources_and_destinations() -> None:
    who: list[Json] = [{"namespaceSelector": {}}]
    where: list[Json] = [{"ports": [{"port": 6443}]}]
    policy = the(rendered(values={"networkPolicy": {"from": who, "egress": where}}), "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"][0]["from"] == [{"podSelector": {}}, *who]
    assert policy["egress"] == where
    assert the(rendered(), "NetworkPolicy")["spec"]["policyTypes"] == ["Ingress"]


@pytest.mark.parametrize("query", [False, True])
@pytest.mark.parametrize("handle", ["", "0.0.0.0:10270"])
def test_network_policy_opens_no_port_to_everybody(handle: str, query: bool) -> None:
    tls = {"caFile": "/a", "certFile": "/b", "keyFile": "/c"}
    values: Json = {
        "query": {"enabled": query},
        "handle": {"bindAddress": handle, "tls": tls if handle else {}},
    }
    (rule,) = the(rendered(values=values), "NetworkPolicy")["spec"]["ingress"]
    assert rule["from"] == [{"podSelector": {}}]


def test_only_scheduler_listens_where_no_other_machine_reaches_it() -> None:
    (path,) = (path for path in chart.values_files() if path.name == "only-scheduler.yaml")
    pod = pod_of(chart.rendered(path))
    assert pod["hostNetwork"] is True
    (scheduler,) = pod["containers"]
    assert "--bind-address=127.0.0.1" in scheduler["args"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert scheduler[probe]["httpGet"]["host"] == "127.0.0.1"
    (all_addresses,) = pod_of(rendered(values={"bindAddress": "0.0.0.0"}))["containers"]
    assert "host" not in all_addresses["livenessProbe"]["httpGet"]
    (usual,) = pod_of(rendered())["containers"]
    assert not any(one.startswith("--bind-address") for one in usual["args"])
    assert "host" not in usual["livenessProbe"]["httpGet"]


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("values", "said"),
    [
        pytest.param({"replicas": 3}, "replicas", id="unknown value"),
        pytest.param(
            {"config": {"podMaxBackoff": 3}}, "podMaxBackoff", id="unknown field of the configuration"
        ),
        pytest.param({"config": {"leaderElection": {"leaderElect": "no"}}}, "leaderElect", id="no boolean"),
        pytest.param({"plugins": [{**SIDECAR, "name": "Gpu/Share"}]}, "name", id="name of a plugin"),
        pytest.param({"plugins": [{**SIDECAR, "points": {"fliter": {}}}]}, "fliter", id="unknown point"),
        pytest.param({"plugins": [SIDECAR, SIDECAR]}, "two plugins are called GpuShare", id="one name twice"),
        pytest.param(
            {"plugins": [{"name": name, "container": {"image": "x"}} for name in ("GpuShare", "gpu_share")]},
            "gpu_share would be called gpu-share",
            id="two plugins, one socket",
        ),
        pytest.param(
            {"plugins": [{"name": "Scheduler", "container": {"image": "x"}}]},
            "would be called scheduler",
            id="the scheduler's container",
        ),
        pytest.param({"image": {"repository": "r/berth:v1"}}, "repository", id="tag in the repository"),
        pytest.param({"extraArgs": ["--config=/x"]}, "extraArgs", id="a flag of the chart"),
        pytest.param({"env": [{"name": "TMPDIR", "value": "/x"}]}, "env", id="a variable of the chart"),
        pytest.param(
            {"extraVolumes": [{"name": "token", "emptyDir": {}}]}, "extraVolumes", id="a volume of the chart"
        ),
        pytest.param({"podLabels": {"app.kubernetes.io/name": "x"}}, "podLabels", id="a label of the chart"),
        pytest.param({"podAnnotations": {"a": True}}, "podAnnotations", id="no string"),
        pytest.param({"podDisruptionBudget": {"maxUnavailable": "x"}}, "maxUnavailable", id="no percentage"),
        pytest.param({"resources": {"limit": {"cpu": 1}}}, "limit", id="unknown field of resources"),
        pytest.param({"serviceAccount": {"create": False}}, "serviceAccount.name is due", id="whose account"),
        pytest.param(
            {"metrics": {"readers": [{"kind": "ServiceAccount", "name": "x"}]}}, "namespace", id="reader"
        ),
        pytest.param({"answers": {"readers": ["developers"]}}, "readers", id="reader that is no subject"),
        pytest.param({"answers": {"reader": []}}, "reader", id="unknown field of answers"),
        pytest.param({"rbac": {"extraRules": [{"verbs": ["list"]}]}}, "resources", id="half a rule"),
        pytest.param({"podGroups": {"kubernetes": "yes"}}, "kubernetes", id="pod groups by a word"),
        pytest.param({"podGroups": {"kueue": True}}, "kueue", id="pod groups of another kind"),
        pytest.param({"replicaCount": "two"}, "replicaCount", id="not a number"),
        pytest.param({"config": {"profiles": []}}, "profiles", id="no profile"),
        pytest.param({"config": {"clientConnection": {"kubeconfig": "/x"}}}, "config", id="a kubeconfig"),
        pytest.param({"plugins": [{"name": "A"}]}, "plugins/0", id="plugin without a place"),
        pytest.param(
            {"plugins": [{**SIDECAR, "endpoint": "unix:///x"}]}, "plugins/0", id="plugin in two places"
        ),
        pytest.param(
            {"plugins": [{**SIDECAR, "deadline": "1s"}]}, "deadline", id="unknown field of a plugin"
        ),
        pytest.param({"plugins": [{"name": "A", "container": {}}]}, "image", id="sidecar without an image"),
        pytest.param(
            {"plugins": [{**SIDECAR, "points": {"filter": {"policy": "Maybe"}}}]}, "policy", id="policy"
        ),
        pytest.param({"cycleBudget": "1 second"}, "cycleBudget", id="no duration"),
        pytest.param({"image": {"digest": "sha256:1"}}, "digest", id="no digest"),
        pytest.param({"securePort": 443}, "securePort", id="port of root"),
        pytest.param({"query": {"port": 80}}, "port", id="query port of root"),
        pytest.param({"handle": {"bindAddress": "0.0.0.0:10270"}}, "caFile", id="handle in plaintext"),
        pytest.param({"handle": {"tls": {"caFile": "/ca"}}}, "caFile", id="handle that listens nowhere"),
        pytest.param({"handle": {"bindAdress": "x"}}, "bindAdress", id="misspelt"),
        pytest.param({"bindAddress": "127.0.0.1"}, "bindAddress 127.0.0.1", id="no probe gets there"),
    ],
)
def test_wrong_values_are_refused(values: Json, said: str) -> None:
    with pytest.raises(chart.ChartError, match=said):
        rendered(values=values)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("endpoint", BAD_ENDPOINTS)
def test_an_endpoint_that_the_host_refuses_is_refused_by_the_chart_too(endpoint: str) -> None:
    why = "unix:///absolute/path|host:port|at most 107 bytes|1 to 65535"
    with pytest.raises(chart.ChartError, match=f"the endpoint of plugin A is .*(?:{why})"):
        rendered(values={"plugins": [{"name": "A", "endpoint": endpoint}]})


@pytest.mark.parametrize("endpoint", GOOD_ENDPOINTS)
def test_an_endpoint_that_the_host_takes_is_taken(endpoint: str) -> None:
    assert endpoint in scheduler_yaml(rendered(values={"plugins": [{"name": "A", "endpoint": endpoint}]}))


def test_the_endpoint_of_a_sidecar_is_the_charts_alone() -> None:
    env = [{"name": "BERTH_PLUGIN_ENDPOINT", "value": "unix:///x.sock"}]
    container = {**SIDECAR["container"], "env": env}
    said = (
        "GpuShare sets BERTH_PLUGIN_ENDPOINT, .* unix:///run/berth/plugins/gpus/plugin.sock, .* leave it out"
    )
    with pytest.raises(chart.ChartError, match=said):
        rendered(values={"plugins": [{**SIDECAR, "container": container}]})


def test_the_schema_knows_every_value_and_no_other() -> None:
    schema = json.loads((chart.CHART / "values.schema.json").read_text())
    values = yaml.safe_load((chart.CHART / "values.yaml").read_text())

    others = ("config", "affinity")  # whose keys are another document's

    def described(node: Json, path: str = "") -> Iterator[str]:
        for key, inner in node.get("properties", {}).items():
            if inner.get("additionalProperties") is False and key not in others:
                yield from described(inner, f"{path}{key}.")
            else:
                yield f"{path}{key}"

    def given(node: Json, described: set[str], path: str = "") -> Iterator[str]:
        for key, inner in node.items():
            name = f"{path}{key}"
            if name in described or not isinstance(inner, dict):
                yield name
            else:
                yield from given(inner, described, f"{name}.")

    known = set(described(schema)) - {"global"}
    assert set(given(values, known)) == known


@pytest.mark.parametrize(
    ("place", "fields"),
    [
        pytest.param(["config"], KubeSchedulerConfiguration, id="configuration"),
        pytest.param(["config", "leaderElection"], LeaderElection, id="leader election"),
        pytest.param(["config", "clientConnection"], ClientConnection, id="client connection"),
        pytest.param(["config", "profiles", "items"], ProfileV1, id="profile"),
        pytest.param(["config", "profiles", "items", "plugins"], PluginsV1, id="points of a profile"),
        pytest.param(["plugins", "items"], BerthPlugin, id="plugin"),
        pytest.param(["plugins", "items", "points"], POINT_RULES, id="points of a plugin"),
        pytest.param(["plugins", "items", "scope"], PluginScope, id="scope"),
        pytest.param(
            ["plugins", "items", "managedResources", "items"], ManagedResource, id="managed resource"
        ),
        pytest.param(["plugins", "items", "tls"], TlsFiles, id="tls"),
        pytest.param(["handle"], HandleListener, id="handle"),
        pytest.param(["handle", "tls"], TlsFiles, id="tls of handle"),
    ],
)
def test_the_schema_knows_the_fields_of_berths_configuration(
    place: list[str], fields: type | Mapping[str, object]
) -> None:
    node = json.loads((chart.CHART / "values.schema.json").read_text())
    for step in place:
        node = node["items"] if step == "items" else node["properties"][step]
    assert node["additionalProperties"] is False
    of_the_chart = {"container", "user"} if fields is BerthPlugin else set()
    not_in_a_pod = {"kubeconfig"} if fields is ClientConnection else set()
    assert (
        set(node["properties"]) - of_the_chart
        == set(fields if isinstance(fields, Mapping) else json_fields(fields)) - not_in_a_pod
    )


HANDLE: Json = {
    "bindAddress": "0.0.0.0:10270",
    "tls": {"caFile": "/tls/ca", "certFile": "/tls/crt", "keyFile": "/tls/key", "serverName": "berth"},
}


def test_plugins_with_tls_reach_the_replica_that_attached_them(tmp_path: Path) -> None:
    manifests = rendered(values={"handle": HANDLE})
    path = tmp_path / "scheduler.yaml"
    path.write_text(scheduler_yaml(manifests))
    handle = configuration.load(str(path), {}).berth.handle
    assert handle is not None
    assert (handle.bind_address, handle.advertise_address) == ("0.0.0.0:10270", "")
    assert (handle.tls.ca_file, handle.tls.server_name) == ("/tls/ca", "berth")
    (scheduler,) = pod_of(manifests)["containers"]
    assert {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}} in scheduler["env"]
    assert {"name": "handle", "containerPort": 10270} in scheduler["ports"]
    opened = the(manifests, "NetworkPolicy")["spec"]["ingress"]
    ports = [{"port": name, "protocol": "TCP"} for name in ("https", "handle")]
    assert opened == [{"ports": ports, "from": [{"podSelector": {}}]}]


def test_without_handle_no_port_is_open_for_plugins() -> None:
    manifests = rendered()
    (scheduler,) = pod_of(manifests)["containers"]
    assert [port["name"] for port in scheduler["ports"]] == ["https"]
    assert len(the(manifests, "NetworkPolicy")["spec"]["ingress"]) == 1
    assert "handle" not in scheduler_yaml(manifests)


def test_pod_monitor_scrapes_the_scheduler_with_the_token_of_a_secret() -> None:
    with pytest.raises(chart.ChartError, match=r"credentials\.name is due"):
        rendered(values={"metrics": {"podMonitor": {"enabled": True}}})
    manifests = rendered(values={"metrics": {"podMonitor": {"enabled": True, "credentials": {"name": "t"}}}})
    monitor = the(manifests, "PodMonitor")["spec"]
    labels = the(manifests, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    endpoints = monitor["podMetricsEndpoints"]
    assert [one["path"] for one in endpoints] == ["/metrics", "/metrics/resources"]
    assert all(one["authorization"]["credentials"] == {"name": "t", "key": "token"} for one in endpoints)
    ports = [port["name"] for port in pod_of(manifests)["containers"][0]["ports"]]
    assert all(one["port"] in ports for one in endpoints)


def test_values_of_the_page_about_sidecars_make_that_sidecar() -> None:
    page = Page(DOCS / "how-to" / "ship-a-sidecar.md")
    (block,) = [one for one in page.blocks if one.directives.get("file") == "sidecar-values.yaml"]
    manifests = rendered(values=yaml.safe_load(block.text))
    _, sidecar = pod_of(manifests)["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    (address,) = [one["value"] for one in sidecar["env"] if one["name"] == "BERTH_PLUGIN_ENDPOINT"]
    path = address.removeprefix("unix:").removeprefix("//")
    assert f"os.stat('{path}')" in sidecar["startupProbe"]["exec"]["command"][-1]
    assert "$BERTH_PLUGIN_ENDPOINT" in sidecar["livenessProbe"]["exec"]["command"][-1]
    assert sidecar["resources"]["limits"] == {"memory": "512Mi"}
    seconds = [int(cells[1]) for cells in _rows(page.text, "Part") if cells[1].isdecimal()]
    # The parts of the scheduler, and the rest of the sidecar's.
    assert sum(seconds) <= pod_of(manifests)["terminationGracePeriodSeconds"] == 70


def _rows(text: str, head: str) -> list[list[str]]:
    """Return the cells of the table whose first column has this head."""
    table = text.partition(f"| {head} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table]


def notes(folder: Path, namespace: str, values: Json) -> str:
    """Return what helm prints after an installation, which `helm template` leaves out."""
    copied = folder / "chart"
    shutil.copytree(chart.CHART, copied, dirs_exist_ok=True)
    (copied / "notes.txt").write_text((copied / "templates/NOTES.txt").read_text())
    (copied / "templates/notes.yaml").write_text(
        'notes: |\n{{ tpl (.Files.Get "notes.txt") . | indent 2 }}\n'
    )
    line = [str(program("helm")), "template", "berth", str(copied), "--namespace", namespace]
    line += ["--show-only", "templates/notes.yaml", "--values", "-"]
    done = subprocess.run(
        line, input=yaml.safe_dump(values), capture_output=True, text=True, timeout=60, check=True
    )
    found: str = yaml.safe_load(done.stdout)["notes"]
    return found


def test_notes_say_that_the_network_policy_keeps_prometheus_out(tmp_path: Path) -> None:
    listed: dict[str, Any] = {"networkPolicy": {"from": [{"namespaceSelector": {}}]}}
    token = {"name": "token"}
    for monitor in (
        {"serviceMonitor": {"enabled": True}},
        {"podMonitor": {"enabled": True, "credentials": token}},
    ):
        watched = {"metrics": monitor}
        assert "list it in\nnetworkPolicy.from" in notes(tmp_path, "berth-system", watched)
        for cure in (listed, {"networkPolicy": {"enabled": False}}, {"hostNetwork": True}):
            assert "WARNING" not in notes(tmp_path, "berth-system", {**watched, **cure})


def test_notes_warn_of_the_port_forward_that_readers_get(tmp_path: Path) -> None:
    readers = {"answers": {"readers": [{"kind": "Group", "name": "developers"}]}}
    assert "WARNING" not in notes(tmp_path, "berth-system", {})
    apart = notes(tmp_path, "berth-system", readers)
    assert "port-forward to every pod of the namespace berth-system" in apart
    assert "Keep other workloads out" in apart
    assert "pods of etcd, the API server" in notes(tmp_path, "kube-system", readers)
    assert "WARNING" not in notes(tmp_path, "kube-system", {**readers, "rbac": {"create": False}})
