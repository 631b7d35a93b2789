"""Invalid selectors, taints, ports and amounts are refused as by the API server; valid objects pass."""

from __future__ import annotations

from typing import Any

import pytest
from berth_sim.cluster.kinds import BY_KIND
from berth_sim.cluster.validation import problems_of
from support.manifest_objects import node_object, pod_object, workload_object

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def problems(obj: dict[str, Any]) -> list[str]:
    return [str(problem) for problem in problems_of(BY_KIND[obj["kind"]], obj)]


def node_affinity(requirement: dict[str, Any]) -> dict[str, Any]:
    terms = [{"matchExpressions": [requirement]}]
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}


def spread(**changes: Any) -> dict[str, Any]:
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [constraint | changes]}


def test_rich_pod_is_accepted() -> None:
    expressions = [
        {"key": "zone", "operator": "In", "values": ["a", "b"]},
        {"key": "cores", "operator": "Gt", "values": ["4"]},
        {"key": "gpu", "operator": "Exists"},
    ]
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n"]}]
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone", "namespaceSelector": {}}
    affinity = {
        "nodeAffinity": {
            REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": expressions, "matchFields": fields}]},
            PREFERRED: [{"weight": 100, "preference": {"matchExpressions": expressions[:1]}}],
        },
        "podAffinity": {REQUIRED: [term]},
        "podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": term}]},
    }
    pod = pod_object(
        "web",
        affinity=affinity,
        tolerations=[
            {"operator": "Exists"},
            {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5},
        ],
        nodeSelector={"kubernetes.io/os": "linux"},
        overhead={"cpu": 0.25},
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        **spread(minDomains=2, nodeTaintsPolicy="Honor", labelSelector={}),
    )
    assert problems(pod) == []


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"containers": []}, "spec.containers: is required", id="no containers"),
        pytest.param(
            {"containers": [{}]}, "spec.containers[0].name: is required", id="container without name"
        ),
        pytest.param(
            {"containers": [{"name": "a"}, {"name": "a"}]},
            "spec.containers[1].name: 'a' appears twice: remove or rename one",
            id="two containers of one name",
        ),
        pytest.param(
            {"priority": 2**31},
            f"spec.priority: must be {-(2**31)} to {2**31 - 1}, not {2**31}",
            id="priority beyond 32 bits",
        ),
        pytest.param(
            {"containers": [{"name": "a", "resources": {"limits": {"cpus": "2"}}}]},
            "spec.containers[0].resources.limits.cpus: 'cpus' is not a resource: use one of cpu, memory,"
            " ephemeral-storage or hugepages-SIZE, or a name with a domain",
            id="misspelt resource",
        ),
        pytest.param(
            node_affinity({"key": "a", "operator": "Inn", "values": ["b"]}),
            f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].operator:"
            " 'Inn' is not supported: use In, NotIn, Exists, DoesNotExist, Gt, Lt",
            id="unknown operator",
        ),
        pytest.param(
            node_affinity({"key": "a", "operator": "Exists", "values": ["b"]}),
            f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].values:"
            " must be empty with operator Exists: remove it, or use In",
            id="values that nobody reads",
        ),
        pytest.param(
            node_affinity({"key": "a", "operator": "Gt", "values": ["1", "2"]}),
            f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].values:"
            " must hold one integer with operator Gt, not 2 values",
            id="two numbers for Gt",
        ),
        pytest.param(
            {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}},
            f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms: is required",
            id="no terms",
        ),
        pytest.param(
            {
                "affinity": {
                    "podAffinity": {PREFERRED: [{"weight": 0, "podAffinityTerm": {"topologyKey": "z"}}]}
                }
            },
            f"spec.affinity.podAffinity.{PREFERRED}[0].weight: must be 1 to 100, not 0",
            id="weight",
        ),
        pytest.param(
            {"affinity": {"podAntiAffinity": {REQUIRED: [{"labelSelector": {}}]}}},
            f"spec.affinity.podAntiAffinity.{REQUIRED}[0].topologyKey: is required",
            id="no topology",
        ),
        pytest.param(
            {"tolerations": [{"value": "x"}]},
            "spec.tolerations[0].operator: must be Exists where the key is empty",
            id="toleration of nothing",
        ),
        pytest.param(
            {"tolerations": [{"key": "a", "effect": "NoRun"}]},
            "spec.tolerations[0].effect: 'NoRun' is not supported: use"
            " NoSchedule, PreferNoSchedule, NoExecute",
            id="effect",
        ),
        pytest.param(
            spread(maxSkew=0),
            "spec.topologySpreadConstraints[0].maxSkew: must be above zero, not 0",
            id="skew",
        ),
        pytest.param(
            spread(whenUnsatisfiable="Never"),
            "spec.topologySpreadConstraints[0].whenUnsatisfiable: 'Never' is not supported:"
            " use DoNotSchedule, ScheduleAnyway",
            id="what to do when it cannot be spread",
        ),
        pytest.param(
            {"containers": [{"name": "a", "ports": [{"containerPort": 70000}]}]},
            "spec.containers[0].ports[0].containerPort: must be 1 to 65535, not 70000",
            id="port",
        ),
        pytest.param(
            {
                "hostNetwork": True,
                "containers": [{"name": "a", "ports": [{"containerPort": 80, "hostPort": 81}]}],
            },
            "spec.containers[0].ports[0].hostPort: must equal containerPort while hostNetwork is true",
            id="host port on the host network",
        ),
        pytest.param(
            {"containers": [{"name": "a", "resources": {"requests": {"cpu": "-1"}}}]},
            "spec.containers[0].resources.requests.cpu: '-1' is below zero",
            id="negative amount",
        ),
        pytest.param(
            {"containers": [{"name": "a", "resources": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}}]},
            "spec.containers[0].resources.requests.cpu: 2 is above the limit 1: lower it, or raise the limit",
            id="request above its limit",
        ),
        pytest.param(
            {
                "containers": [
                    {
                        "name": "a",
                        "resources": {"requests": {"example.com/gpu": 1}, "limits": {"example.com/gpu": 2}},
                    }
                ]
            },
            "spec.containers[0].resources.requests.example.com/gpu: 1 must equal the limit 2:"
            " example.com/gpu cannot be overcommitted",
            id="extended resource below its limit",
        ),
        pytest.param(
            {"schedulingGates": [{"name": "a"}], "nodeName": "n"},
            "spec.nodeName: a pod with schedulingGates cannot be on a node: remove one",
            id="gated and placed",
        ),
        pytest.param(
            {"nodeSelector": {"a": "b c"}},
            "spec.nodeSelector.a: 'b c' is not a label value: use at most 63 letters, digits, '-',"
            " '_' and '.', beginning and ending with a letter or digit",
            id="label value",
        ),
    ],
)
def test_pod_spec_is_refused_with_field_and_cure(spec: dict[str, Any], want: str) -> None:
    assert problems(pod_object("web", **spec)) == [want]


CONSTRAINT = "spec.topologySpreadConstraints[0]"
TERM = f"spec.affinity.podAffinity.{REQUIRED}[0]"
WEIGHTED = f"spec.affinity.podAntiAffinity.{PREFERRED}[0].podAffinityTerm"


def with_label_keys(**fields: Any) -> dict[str, Any]:
    """A pod spec whose terms and constraint all have these keys and selector."""
    term = {"topologyKey": "zone"} | fields
    affinity = {
        "podAffinity": {REQUIRED: [term]},
        "podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": term}]},
    }
    known = {key: value for key, value in fields.items() if key != "mismatchLabelKeys"}
    return {"affinity": affinity, **spread(**known)}


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        pytest.param(
            {"labelSelector": {}, "matchLabelKeys": ["a", "/b"]},
            [
                f"{place}.matchLabelKeys[1]: '/b' is not a label key: the part before '/' must be a DNS name"
                for place in (TERM, WEIGHTED, CONSTRAINT)
            ],
            id="bad key",
        ),
        pytest.param(
            {"labelSelector": {}, "mismatchLabelKeys": ["a b", ""]},
            [
                f"{place}.mismatchLabelKeys{problem}"
                for place in (TERM, WEIGHTED)
                for problem in (
                    "[0]: 'a b' is not a label key: use at most 63 letters, digits, '-', '_' and '.',"
                    " beginning and ending with a letter or digit",
                    "[1]: is required",
                )
            ],
            id="bad key not to match",
        ),
        pytest.param(
            {"matchLabelKeys": ["a"], "mismatchLabelKeys": ["b"]},
            [
                f"{place}: must not be specified when labelSelector is not set"
                for place in (
                    f"{TERM}.matchLabelKeys",
                    f"{TERM}.mismatchLabelKeys",
                    f"{WEIGHTED}.matchLabelKeys",
                    f"{WEIGHTED}.mismatchLabelKeys",
                    f"{CONSTRAINT}.matchLabelKeys",
                )
            ],
            id="no selector",
        ),
        pytest.param(
            {"labelSelector": {}, "matchLabelKeys": ["a", "b"], "mismatchLabelKeys": ["b"]},
            [
                f"{place}.matchLabelKeys[1]:"
                " 'b' exists in both matchLabelKeys and mismatchLabelKeys: remove it from one"
                for place in (TERM, WEIGHTED)
            ],
            id="to match and not to match",
        ),
        pytest.param(
            {
                "labelSelector": {
                    "matchLabels": {"a": "1"},
                    "matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}],
                },
                "matchLabelKeys": ["a"],
            },
            [
                f"{place}.matchLabelKeys[0]:"
                " 'a' exists in both matchLabelKeys and labelSelector: remove it from one"
                for place in (TERM, WEIGHTED, CONSTRAINT)
            ],
            id="selected as well",
        ),
        pytest.param(
            {
                "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]},
                "matchLabelKeys": ["a"],
                "mismatchLabelKeys": ["b"],
            },
            [],
            id="as the API server stores it",
        ),
    ],
)
def test_label_keys_are_checked(fields: dict[str, Any], want: list[str]) -> None:
    assert problems(pod_object("web", **with_label_keys(**fields))) == want
    template = workload_object("Deployment", "web", template=with_label_keys(**fields))
    assert problems(template) == [f"spec.template.{problem}" for problem in want]


@pytest.mark.parametrize("name", ["Web", "web_1", "-web", "w" * 254, ""])
def test_name_that_is_no_dns_name_is_refused(name: str) -> None:
    (problem,) = problems(pod_object(name))
    assert problem.startswith("metadata.name: ")


def test_template_problems_have_the_template_in_their_path() -> None:
    workload = workload_object("Deployment", "web", template={"tolerations": [{"value": "x"}]})
    (problem,) = problems(workload)
    assert problem.startswith("spec.template.spec.tolerations[0].operator: ")


def test_selector_must_select_the_template() -> None:
    workload = workload_object("ReplicaSet", "web", selector={"matchLabels": {"app": "other"}})
    (problem,) = problems(workload)
    assert problem.startswith("spec.selector.matchLabels.app: does not select the template's own pods")


def test_negative_replicas_are_refused() -> None:
    (problem,) = problems(workload_object("StatefulSet", "web", replicas=-1))
    assert problem == "spec.replicas: must not be below zero, but is -1"


def test_taints_are_checked() -> None:
    node = node_object("a")
    node["spec"] = {"taints": [{"key": "a", "effect": "NoRun"}]}
    (problem,) = problems(node)
    assert problem.startswith("spec.taints[0].effect: 'NoRun' is not supported")


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        pytest.param(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}},
            },
            "spec.selector.matchExpressions[0].operator",
            id="label selectors have no Gt",
        ),
        pytest.param(
            {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}, "value", id="class without value"
        ),
        pytest.param(
            {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": -(2**31) - 1},
            "value",
            id="value beyond 32 bits",
        ),
        pytest.param(
            {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1_000_000_001},
            "value",
            id="value for the system alone",
        ),
        pytest.param(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "provisioner": "p",
                "volumeBindingMode": "x",
            },
            "volumeBindingMode",
            id="binding mode",
        ),
        pytest.param(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"cpu": "1"}}},
            },
            "spec.resources.requests.storage",
            id="claim of no size",
        ),
        pytest.param(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "spec": {"accessModes": ["Anybody"], "capacity": {"storage": "1Gi"}},
            },
            "spec.accessModes[0]",
            id="access mode",
        ),
    ],
)
def test_other_kinds_are_checked(obj: dict[str, Any], path: str) -> None:
    named = obj | {"metadata": {"name": "a"}}
    assert [problem.path for problem in problems_of(BY_KIND[obj["kind"]], named)] == [path]
