"""A file with one pod, or one workload -> the manifest of the pod, for `fit`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from berth_host.errors.manifests import ManifestError, ManifestProblem

from berth_sim.manifests.files import STDIN, STDIN_NAME, sources_of
from berth_sim.manifests.loading import Manifest, read


def pod_in(path: str, read_stdin: Callable[[], str]) -> dict[str, Any]:
    """Return the only pod of a file, or a pod of its only workload's template. Raises ManifestError.

    `path` "-": the text that `read_stdin` returns. Other objects of the file are left out.
    """
    sources, problems = sources_of([path], read_stdin)
    reading = read(sources)
    problems += reading.problems
    found = [pod for manifest in reading.manifests if (pod := _pod_of(manifest)) is not None]
    if not problems and len(found) != 1:
        what = "no pod and no workload" if not found else f"{len(found)} pods and workloads"
        text = f"has {what}: name a file with one Pod, Deployment, StatefulSet, ReplicaSet or Job"
        name = STDIN_NAME if path == STDIN else path
        problems = [ManifestProblem(file=name, document=0, line=0, path="", problem=text)]
    if problems:
        raise ManifestError(problems)
    return found[0]


def _pod_of(manifest: Manifest) -> dict[str, Any] | None:
    if manifest.kind == "Pod":
        return dict(manifest.obj)
    spec, metadata = manifest.obj.get("spec"), manifest.obj.get("metadata")
    template = spec.get("template") if isinstance(spec, Mapping) else None
    if not isinstance(template, Mapping) or not isinstance(metadata, Mapping):
        return None
    own = template.get("metadata")
    named = {key: metadata[key] for key in ("name", "namespace") if key in metadata}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**(own if isinstance(own, Mapping) else {}), **named},
        "spec": template.get("spec"),
    }
