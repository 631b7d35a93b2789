"""The chart of deploy/helm, rendered by the real helm: values -> manifests.

Used by tests/deploy, by the tests of tests/cluster that run what the chart says, and by the tool that makes
the plain manifests. helm is one of the programs of `make envtest`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml
from berth_bench.versus.real_servers import program
from support.places import ROOT

Json = dict[str, Any]
CHART: Final = ROOT / "deploy/helm/berth"
VALUES: Final = ROOT / "deploy/values"
MANIFESTS: Final = ROOT / "deploy/manifests"


class ChartError(Exception):
    """helm refuses the values; the text is what it said."""


def values_files() -> list[Path]:
    """Return the values files of the repository, each of which has its plain manifests."""
    return sorted(VALUES.glob("*.yaml"))


def rendered_text(
    *files: Path,
    values: Mapping[str, Any] | None = None,
    name: str = "berth",
    namespace: str = "kube-system",
    hooks: bool = False,
) -> str:
    """Return what `helm template` prints; `values` beat the files'. `hooks`: also the pod of `helm test`.

    Raises ChartError.
    """
    line = [str(program("helm")), "template", name, str(CHART), "--namespace", namespace]
    if not hooks:
        line.append("--no-hooks")
    for file in files:
        line += ["--values", str(file)]
    if values is not None:
        line += ["--values", "-"]
    said = "" if values is None else yaml.safe_dump(dict(values))
    return _printed(tuple(line), said, tuple(file.read_text() for file in files))


@cache
def _printed(line: tuple[str, ...], said: str, _files: tuple[str, ...]) -> str:
    """Run helm, once for the same line and the same files. Raises ChartError."""
    done = subprocess.run(line, input=said, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise ChartError(done.stderr)
    return done.stdout


def rendered(*files: Path, **how: Any) -> list[Json]:
    """Return the manifests, in helm's order; `how` as for `rendered_text`. Raises ChartError."""
    return documents(rendered_text(*files, **how))


def documents(text: str) -> list[Json]:
    """Return the manifests in a text."""
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]


def of_kind(manifests: Sequence[Json], kind: str) -> list[Json]:
    """Those of one kind."""
    return [one for one in manifests if one["kind"] == kind]


def the(manifests: Sequence[Json], kind: str) -> Json:
    """Return the only one of its kind. Raises ValueError when there are none, or more."""
    (found,) = of_kind(manifests, kind)
    return found


def containers(deployment: Json) -> Iterator[Json]:
    """All containers of a Deployment, in the order in which they start."""
    spec = deployment["spec"]["template"]["spec"]
    yield from spec.get("initContainers", ())
    yield from spec["containers"]
