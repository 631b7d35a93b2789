"""Files, folders and standard input are loaded; every problem has file, document, line and path."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from berth_host.errors.manifests import ManifestError, ManifestProblem
from berth_host.model.clock import ManualClock
from berth_sdk.kube_object import ObjectRef
from berth_sim.cluster.server import ApiServer
from berth_sim.manifests.loading import Loaded, load
from support.manifest_objects import node_object, pod_object, workload_object


@pytest.fixture
def server() -> ApiServer:
    return ApiServer(ManualClock(1_800_000_000))


def write(path: Path, *objects: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump_all(objects, sort_keys=False))
    return str(path)


def loaded(server: ApiServer, *paths: str | Path, stdin: str = "") -> Loaded:
    return load([str(path) for path in paths], server, lambda: stdin)


def problems(server: ApiServer, *paths: str | Path, stdin: str = "") -> tuple[ManifestProblem, ...]:
    with pytest.raises(ManifestError) as caught:
        loaded(server, *paths, stdin=stdin)
    return caught.value.problems


def test_files_folders_and_standard_input_are_read(server: ApiServer, tmp_path: Path) -> None:
    one = write(tmp_path / "one.yaml", node_object("a"), pod_object("p1"))
    write(tmp_path / "folder/deep/two.yml", pod_object("p2"))
    (tmp_path / "folder/three.json").write_text(json.dumps(pod_object("p3")))
    (tmp_path / "folder/notes.txt").write_text("not a manifest")
    (tmp_path / "folder/.hidden.yaml").write_text("also: not")
    got = loaded(server, one, tmp_path / "folder", "-", stdin=json.dumps(pod_object("p4")))
    assert got.pod_keys == ("default/p1", "default/p2", "default/p3", "default/p4")
    assert server.get("nodes", ObjectRef(name="a")) is not None


def test_file_that_is_named_twice_is_read_once(server: ApiServer, tmp_path: Path) -> None:
    path = write(tmp_path / "one.yaml", pod_object("p1"))
    assert loaded(server, path, tmp_path).pod_keys == ("default/p1",)


def test_standard_input_that_is_named_twice_is_refused(server: ApiServer) -> None:
    (problem,) = problems(server, "-", "-", stdin=json.dumps(pod_object("p")))
    assert problem.file == "standard input"
    assert "name it once" in problem.problem


def test_the_last_of_a_repeated_key_counts_with_a_warning(server: ApiServer) -> None:
    text = json.dumps(pod_object("p")).replace('"name": "p"', '"name": "first", "name": "p"')
    got = loaded(server, "-", stdin=text)
    assert got.pod_keys == ("default/p",)
    assert got.warnings == (
        "standard input: document 1: key 'name' appears twice: the last one counts; remove the other",
    )


def test_unquoted_boolean_word_as_a_label_is_refused_as_by_an_api_server(server: ApiServer) -> None:
    text = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {spot: y}}\n"
    text += "spec: {containers: [{name: c, image: i}]}"
    (problem,) = problems(server, "-", stdin=text)
    assert (problem.line, problem.path) == (3, "metadata.labels.spot")


def test_lists_are_taken_apart(server: ApiServer, tmp_path: Path) -> None:
    bare = {key: value for key, value in node_object("a").items() if key not in ("apiVersion", "kind")}
    inner = {"apiVersion": "v1", "kind": "NodeList", "items": [bare]}
    outer = {"apiVersion": "v1", "kind": "List", "items": [inner, pod_object("p1")]}
    got = loaded(server, write(tmp_path / "list.yaml", outer))
    assert got.pod_keys == ("default/p1",)
    assert server.get("nodes", ObjectRef(name="a")) is not None


def test_empty_lists_and_documents_are_fine(server: ApiServer) -> None:
    text = "---\n---\napiVersion: v1\nkind: PodList\nitems: []\n---\n# nothing\n"
    assert loaded(server, "-", stdin=text).pod_keys == ()


def test_object_that_others_rely_on_may_come_later_in_the_input(server: ApiServer, tmp_path: Path) -> None:
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 9,
    }
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"a": "b"}}}
    pod = pod_object("p1", namespace="shop", priorityClassName="high")
    loaded(server, write(tmp_path / "a.yaml", pod, priority, namespace))
    stored = server.get("pods", ObjectRef(namespace="shop", name="p1"))
    assert stored is not None
    assert stored.get("spec.priority") == 9
    assert server.list("namespaces")[0].get("metadata.labels.a") == "b"


def test_two_objects_of_one_uid_are_a_problem(server: ApiServer, tmp_path: Path) -> None:
    copies = [pod_object(name, metadata={"uid": "u1"}) for name in ("p1", "p2")]
    (problem,) = problems(server, write(tmp_path / "a.yaml", *copies))
    assert (problem.path, problem.document) == ("metadata.uid", 2)
    assert problem.problem == "'u1' is the uid of Pod default/p1 too: remove it"


def test_finished_pods_are_left_out_and_counted(server: ApiServer, tmp_path: Path) -> None:
    over = [pod_object(phase.lower()) | {"status": {"phase": phase}} for phase in ("Succeeded", "Failed")]
    got = loaded(server, write(tmp_path / "a.yaml", pod_object("p1"), *over))
    assert (got.pod_keys, got.finished_count) == (("default/p1",), 2)


def test_workloads_become_pods_with_their_owner(server: ApiServer, tmp_path: Path) -> None:
    kinds = ("Deployment", "ReplicaSet", "StatefulSet")
    objects = [workload_object(kind, kind.lower(), replicas=2) for kind in kinds]
    job = workload_object("Job", "job", parallelism=2)
    got = loaded(server, write(tmp_path / "a.yaml", pod_object("alone"), *objects, job))
    assert len(got.pod_keys) == 9
    assert got.owners == {
        f"default/{kind.lower()}-{i}": f"{kind}/default/{kind.lower()}"
        for kind in (*kinds, "Job")
        for i in range(2)
    }
    (replica_set,) = [obj for obj in server.list("apps/replicasets") if obj.ref.name != "replicaset"]
    pod = server.get("pods", ObjectRef(namespace="default", name="deployment-0"))
    assert pod is not None
    assert pod.get("metadata.ownerReferences")[0]["uid"] == replica_set.ref.uid


def test_dump_of_a_cluster_is_not_expanded_twice(server: ApiServer, tmp_path: Path) -> None:
    def owned(obj: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
        owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"u-{name}", "controller": True}
        return obj | {"metadata": obj["metadata"] | {"ownerReferences": [owner]}}

    deployment = workload_object("Deployment", "web", replicas=3)
    replica_set = owned(workload_object("ReplicaSet", "web-7d", replicas=3), "Deployment", "web")
    pods = [owned(pod_object(f"web-7d-{i}"), "ReplicaSet", "web-7d") for i in ("x", "y")]
    got = loaded(server, write(tmp_path / "a.yaml", deployment, replica_set, *pods))
    assert got.pod_keys == ("default/web-7d-0", "default/web-7d-x", "default/web-7d-y")
    assert got.owners == {"default/web-7d-0": "ReplicaSet/default/web-7d"}


def test_claims_of_a_stateful_set_are_made_unless_they_are_there(server: ApiServer, tmp_path: Path) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    template = {"metadata": {"name": "data"}, "spec": spec}
    stateful = workload_object("StatefulSet", "db", replicas=2, volumeClaimTemplates=[template])
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data-db-0", "labels": {"mine": "yes"}},
        "spec": spec,
    }
    loaded(server, write(tmp_path / "a.yaml", stateful, claim))
    claims = {obj.ref.name: obj.get("metadata.labels.mine") for obj in server.list("persistentvolumeclaims")}
    assert claims == {"data-db-0": "yes", "data-db-1": None}


def test_object_that_is_left_out_is_named(server: ApiServer) -> None:
    maps = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"m{i}", "namespace": "x"}}
        for i in range(5)
    ]
    daemon = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"}}
    config = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    text = yaml.safe_dump_all([*maps, daemon, config])
    assert loaded(server, "-", stdin=text).warnings == (
        "left out ConfigMap x/m0, x/m1, x/m2 and 2 more: scheduling does not read this kind",
        "left out DaemonSet agent: its pods follow nodes, and are not simulated",
        "left out KubeSchedulerConfiguration standard input document 7:"
        " a configuration is given with --config",
    )


@pytest.mark.parametrize(("kind", "meant"), [("pod", "Pod"), ("POD", "Pod"), ("deploymnet", "Deployment")])
def test_kind_that_is_misspelt_is_not_said_to_be_unread(server: ApiServer, kind: str, meant: str) -> None:
    found = loaded(server, "-", stdin=f"apiVersion: v1\nkind: {kind}\nmetadata: {{name: a}}\n")
    assert found.warnings == (f"left out {kind} a: there is no such kind; did you mean {meant}?",)
    assert f"{kind} a is not a kind: did you mean {meant}?" in found.gaps


def test_kind_of_another_group_that_has_the_name_of_a_known_one_is_left_out(server: ApiServer) -> None:
    service = {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": "web"}}
    found = loaded(server, "-", stdin=yaml.safe_dump(service))
    assert found.warnings == ("left out Service.serving.knative.dev web: scheduling does not read this kind",)
    assert found.gaps == ("the input has neither a pod nor a node",)


def test_null_in_a_map_of_texts_is_empty_and_of_quantities_zero_as_for_kubectl(server: ApiServer) -> None:
    text = """\
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {node-role.kubernetes.io/worker: }}
---
apiVersion: v1
kind: Pod
metadata: {name: a, labels: {x: }, annotations: {note: }}
spec:
  nodeSelector: {disk: }
  tolerations:
  containers: [{name: main, image: img, args: [~], resources: {requests: {cpu: }}}]
"""
    assert loaded(server, "-", stdin=text).warnings == ()
    (node,), (pod,) = server.list("nodes"), server.list("pods")
    assert node.get("metadata.labels") == {"node-role.kubernetes.io/worker": ""}
    assert pod.get("metadata.labels") == {"x": ""}
    assert pod.get("metadata.annotations") == {"note": ""}
    assert pod.get("spec.nodeSelector") == {"disk": ""}
    (container,) = pod.get("spec.containers")
    assert (container["args"], container["resources"]) == ([""], {"requests": {"cpu": "0"}})


def test_null_labels_in_an_update_are_empty_too(server: ApiServer) -> None:
    loaded(server, "-", stdin=yaml.safe_dump(node_object("a")))
    (node,) = server.list("nodes")
    changed = {**node.parsed, "metadata": {**node.parsed["metadata"], "labels": {"x": None}}}
    assert server.update(changed).get("metadata.labels") == {"x": ""}


@pytest.mark.parametrize("level", ["privileged", "baseline", "restricted"])
def test_namespace_whose_pod_security_is_not_run_is_named(server: ApiServer, level: str) -> None:
    labels = {"pod-security.kubernetes.io/enforce": level}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "locked", "labels": labels}}
    warnings = loaded(server, "-", stdin=yaml.safe_dump(namespace)).warnings
    if level == "privileged":
        assert warnings == ()
    else:
        (warning,) = warnings
        assert warning.startswith(
            "admission by PodSecurity is not run: pods that namespace locked would refuse"
        )


def test_object_with_very_many_problems_is_refused_in_linear_time() -> None:
    def seconds(count: int) -> float:
        keys = "".join(f"  token{number}: x\n" for number in range(count))
        text = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec:\n  containers: []\n{keys}"
        started = time.process_time()
        assert len(problems(ApiServer(ManualClock(0)), "-", stdin=text)) == count
        return time.process_time() - started

    seconds(200)
    short = seconds(1000)
    # In squares it would be 64 times as much.
    assert seconds(8000) < 8 * 5 * short


BAD = """\
apiVersion: v1
kind: Pod
metadata: {name: good}
spec: {containers: [{name: a}]}
---
apiVersion: v1
kind: Pod
metadata: {name: bad}
spec:
  containers:
  - name: a
    resources:
      requests:
        cpu: 2 cores
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 5
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      schedulerNam: gone
      containers: [{name: a}]
---
apiVersion: apps/v1beta2
kind: Deployment
metadata: {name: old}
---
- just a list
---
kind: Pod
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: good}
  spec: {containers: [{name: a}]}
"""


def test_every_problem_has_file_document_line_path_and_cure(server: ApiServer, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(BAD)
    found = problems(server, path)
    assert [(item.document, item.line, item.path) for item in found] == [
        (2, 14, "spec.containers[0].resources.requests.cpu"),
        (3, 25, "spec.template.spec.schedulerNam"),
        (4, 28, "apiVersion"),
        (5, 32, ""),
        (6, 34, "apiVersion"),
        (7, 41, "items[0].metadata.name"),
    ]
    assert {item.file for item in found} == {str(path)}
    assert str(found[0]).startswith(f"{path}:14 (document 2): spec.containers[0].resources.requests.cpu: ")
    assert "use apps/v1" in found[2].problem
    assert (
        found[5].problem
        == f"Pod default/good appears twice, first in {path} document 1: remove or rename one"
    )


def test_faults_of_a_workloads_pods_are_reported_once_and_at_its_template(
    server: ApiServer, tmp_path: Path
) -> None:
    # Only with the label that the Deployment's ReplicaSet adds is the key named twice.
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"pod-template-hash": "7d"}},
        "matchLabelKeys": ["pod-template-hash"],
    }
    template = {"topologySpreadConstraints": [constraint]}
    path = write(tmp_path / "a.yaml", workload_object("Deployment", "web", template=template, replicas=2))
    (found,) = problems(server, path)
    assert found.path == "spec.template.spec.topologySpreadConstraints[0].matchLabelKeys[0]"
    assert "exists in both matchLabelKeys and labelSelector" in found.problem


def test_problems_of_several_files_come_in_their_order(server: ApiServer, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: [\n")
    (tmp_path / "b.yaml").write_text("kind: Pod\n")
    found = problems(server, tmp_path / "missing.yaml", tmp_path / "b.yaml", tmp_path / "a.yaml")
    assert [Path(item.file).name for item in found] == ["missing.yaml", "b.yaml", "a.yaml"]
    assert "cannot be read" in found[0].problem
    assert found[2].problem.startswith("is not YAML")
    assert found[2].document == 1


def test_folder_without_manifests_is_a_problem(server: ApiServer, tmp_path: Path) -> None:
    (problem,) = problems(server, tmp_path)
    assert "a folder needs files that end in .yaml, .yml, .json" in problem.problem


def test_text_that_is_not_utf_8_is_a_problem(server: ApiServer, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"kind: P\xffd\n")
    (problem,) = problems(server, tmp_path / "a.yaml")
    assert problem.problem == "is not UTF-8 text (byte 7): save it as UTF-8"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_with_a_byte_order_mark_is_read_as_kubectl_reads_it(
    server: ApiServer, tmp_path: Path, encoding: str
) -> None:
    text = "\ufeff" + yaml.safe_dump(pod_object("web")).replace("\n", "\r\n")
    (tmp_path / "powershell.yaml").write_bytes(text.encode(encoding))
    assert loaded(server, tmp_path / "powershell.yaml").pod_keys == ("default/web",)


def test_folder_that_links_lead_to_again_is_read_once(server: ApiServer, tmp_path: Path) -> None:
    write(tmp_path / "deep/a.yaml", pod_object("p1"))
    for name in ("deep/up", "deep/here", "round"):
        (tmp_path / name).symlink_to(tmp_path, target_is_directory=True)
    assert loaded(server, tmp_path).pod_keys == ("default/p1",)


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (OSError(9, "it is closed"), "cannot be read: it is closed"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"), "is not UTF-8 text (byte 0): save it as UTF-8"),
    ],
)
def test_standard_input_that_cannot_be_read_is_a_problem(
    server: ApiServer, error: Exception, problem: str
) -> None:
    def read_stdin() -> str:
        raise error

    with pytest.raises(ManifestError) as caught:
        load(["-"], server, read_stdin)
    assert [(found.file, found.problem) for found in caught.value.problems] == [("standard input", problem)]


@pytest.mark.parametrize("value", ["a string", 7, ["a"], {"items": 3, "kind": "List", "apiVersion": "v1"}])
def test_document_that_is_no_object_is_a_problem(server: ApiServer, value: Any) -> None:
    (problem,) = problems(server, "-", stdin=yaml.safe_dump(value))
    assert problem.file == "standard input"
    assert problem.document == 1


def test_objects_of_a_cluster_come_first_and_workloads_of_them_make_no_pods(server: ApiServer) -> None:
    workload = workload_object("ReplicaSet", "web", replicas=3)
    newer = pod_object("newer", newField=[1], resourceClaims=[{"name": "c", "shape": {"x": 1}}])
    newer["status"] = {"phase": "Running", "newerStatus": 1}
    loaded = load([], server, lambda: "", [workload, newer, node_object("n1")])
    assert loaded.pod_keys == ("default/newer",)
    stored = server.get("pods", ObjectRef(namespace="default", name="newer"))
    assert stored is not None
    assert stored.get("spec.resourceClaims") == [{"name": "c"}]
    assert (stored.get("spec.newField"), stored.get("status.newerStatus")) == (None, 1)
    assert loaded.warnings == (
        "the cluster has fields that this version of berth does not know, and leaves out:"
        " PodResourceClaim.shape, PodSpec.newField",
    )


def test_problem_with_an_object_of_a_cluster_names_the_object(server: ApiServer) -> None:
    with pytest.raises(ManifestError, match=r"the cluster \(document 1\): Pod x/a.spec.containers"):
        load([], server, lambda: "", [pod_object("a", namespace="x", containers=[])])
