"""Read files of scheduler_perf, and return the `Workload`s that a user chose.

Only the ops of the chosen workloads are read, so a file may contain others with unsupported parts. Source:
`test/integration/scheduler_perf/scheduler_perf.go` (testCase, Workload), v1.36.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from berth_host.errors.manifests import ManifestError, ManifestProblem
from berth_sim.manifests.documents import DocumentError, documents_of

from berth_bench import feature_mocks
from berth_bench.scheduler_perf.fields import Fields, Problems, raise_any
from berth_bench.scheduler_perf.ops import read_steps
from berth_bench.scheduler_perf.params import Params
from berth_bench.scheduler_perf.reading import CaseContext
from berth_bench.scheduler_perf.thresholds import threshold_of
from berth_bench.workload import CreatePods, RunPods, StopCollecting, Workload

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class _Found:
    """One workload of a file, whose ops are not read yet."""

    case: Fields
    workload: Fields

    @property
    def name(self) -> str:
        return f"{self.case.text('name')}/{self.workload.text('name')}"

    @property
    def problems(self) -> Problems:
        return self.case.problems

    @property
    def params(self) -> Mapping[str, Any]:
        found = self.workload.raw.get("params")
        return found if isinstance(found, dict) else {}

    @property
    def labels(self) -> frozenset[str]:
        return frozenset(self.case.texts("labels")) | frozenset(self.workload.texts("labels"))


def read_workloads(
    paths: Path | Sequence[Path],
    names: Sequence[str] = (),
    labels: str = "",
    *,
    signatures: bool = False,
    left_out: list[str] | None = None,
) -> list[Workload]:
    """Return the workloads with these `names` (`CASE/WORKLOAD`), in that order; without names all workloads
    of the files.

    `labels`: return only those with these labels (`performance,-short`: without `short`). `signatures`: give
    each pod of a template a label of its own, as scheduler_perf does since 1.37. `left_out`: without names,
    leave out each workload without a parameter that others of its case have, and append a sentence about
    it; None: refuse it. Raises ManifestError with all errors.
    """
    files = [_read(path) for path in ([paths] if isinstance(paths, Path) else paths)]
    problems = [own for own, _ in files]
    found = [item for own, documents in files for item in _find(own, documents)]
    raise_any(problems)
    chosen = _chosen(problems[0], found, names)
    if labels:
        chosen = [item for item in chosen if _has_labels(item.labels, labels)]
        if not chosen:
            problems[0].add("", f"no workload has the labels {labels}")
    if left_out is not None and not names:
        lacking = {item.name: lacks for item in chosen if (lacks := _lacking(item, found))}
        if len(lacking) < len(chosen):
            chosen = [item for item in chosen if item.name not in lacking]
            left_out += [
                f"{name} is left out: its file gives it no {', '.join(f'${one}' for one in lacks)}"
                for name, lacks in lacking.items()
            ]
    workloads = [_workload(item, signatures) for item in chosen]
    raise_any(problems)
    return workloads


def _read(path: Path) -> tuple[Problems, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as err:
        raise _failed(path, f"cannot be read: {err.strerror}") from err
    except UnicodeDecodeError as err:
        raise _failed(path, f"is not UTF-8 text (byte {err.start}): save it as UTF-8") from err
    try:
        documents = [document for document, _ in documents_of(text) if document is not None]
    except DocumentError as err:
        raise _failed(path, err.problem, err.line) from err
    if len(documents) != 1 or not isinstance(documents[0], list) or not documents[0]:
        raise _failed(path, "must be a list of test cases, as scheduler_perf's performance-config.yaml is")
    return Problems(path, text), documents[0]


def _failed(path: Path, problem: str, line: int = 0) -> ManifestError:
    return ManifestError([ManifestProblem(file=str(path), line=line, problem=problem)])


def _find(problems: Problems, documents: Sequence[Any]) -> Iterator[_Found]:
    seen: set[str] = set()
    for index, raw in enumerate(documents):
        case = Fields(problems, f"[{index}]", f"case {index}", raw)
        case.where = f"case {case.text('name', required=True)}"
        for path, value in case.children("workloads"):
            workload = Fields(problems, path, f"{case.where}, a workload", value)
            name = workload.text("name", required=True)
            workload.where = f"{case.where}, workload {name}"
            found = _Found(case, workload)
            if found.name in seen:
                workload.refuse("name", "appears twice: rename one")
            seen.add(found.name)
            yield found


def _chosen(problems: Problems, found: Sequence[_Found], names: Sequence[str]) -> list[_Found]:
    by_name = {item.name: item for item in found}
    for name in names:
        if name in by_name:
            continue
        case, slash, _ = name.partition("/")
        own = [known for known in by_name if known.partition("/")[0] == case]
        near = difflib.get_close_matches(name, own or by_name, n=_SHOWN, cutoff=0.3) or [*(own or by_name)]
        shown = ", ".join(near[:_SHOWN])
        lacking = "" if slash else " (CASE/WORKLOAD is wanted)"
        problems.add("", f"there is no workload {name}{lacking}: did you mean {shown}")
    return [by_name[name] for name in names if name in by_name] if names else list(found)


def _has_labels(labels: frozenset[str], wanted: str) -> bool:
    parts = [part.strip() for part in wanted.split(",") if part.strip()]
    return all((part[1:] not in labels) if part[0] == "-" else (part.lstrip("+") in labels) for part in parts)


def _lacking(item: _Found, found: Sequence[_Found]) -> list[str]:
    """Return the parameters that an op of the case needs, that the workload does not have, and that another
    workload of the case has: an omission in the file, not a misspelt op.
    """
    others = {name for one in found if one.case is item.case for name in one.params}
    return sorted((_needed(item.case.raw.get("workloadTemplate")) & others) - item.params.keys())


def _needed(value: Any) -> set[str]:
    """Return the names of all parameters in the ops that have no default."""
    if isinstance(value, dict):
        return {name for item in value.values() for name in _needed(item)}
    if isinstance(value, list):
        return {name for item in value for name in _needed(item)}
    return {value[1:]} if isinstance(value, str) and value.startswith("$") and "|" not in value else set()


def _workload(found: _Found, signatures: bool) -> Workload:
    case, own = found.case, found.workload
    raw_params = own.any("params") or {}
    if not isinstance(raw_params, dict):
        own.refuse("params", "must be a map")
        raw_params = {}
    params = Params(found.name, raw_params)
    default_pod = case.text("defaultPodTemplatePath")
    context = CaseContext(
        problems=found.problems,
        title=case.where,
        params=params,
        default_pod=default_pod,
        signatures=signatures,
    )
    items = case.children("workloadTemplate")
    if not items:
        case.refuse("workloadTemplate", "is required")
    steps = tuple(read_steps(context, items))
    gates = case.gates() | own.gates()
    features = _declared_features(own, params) if gates.get(feature_mocks.PLUGIN) else ()
    notes: list[str] = []
    if params.unused:
        notes.append(f"parameters that no op uses: {', '.join(params.unused)}")
    threshold = threshold_of(case, own, notes)
    config = case.text("schedulerConfigPath")
    remote = case.texts("remotePlugins") + own.texts("remotePlugins")
    if case.any("metricsCollectorConfig") is not None:
        notes.append("metricsCollectorConfig is ignored: the figures are always the same")
    if not any(
        isinstance(step.op, (StopCollecting, RunPods))
        or (isinstance(step.op, CreatePods) and step.op.collects_metrics)
        for step in steps
    ):
        notes.append("no op collects metrics: nothing is measured")
    case.done(also=("name", "workloads", "labels"))
    own.done(also=("labels",))
    return Workload(
        name=found.name,
        steps=steps,
        threshold=threshold,
        config=str(context.folder / config) if config else "",
        notes=tuple(notes),
        source=str(found.problems.path),
        feature_gates=gates,
        declared_features=features,
        remote=remote,
    )


def _declared_features(own: Fields, params: Params) -> tuple[str, ...]:
    """Return the features that the nodes declare: if the gate is on, the workload has a parameter with their
    number.
    """
    count = params.of_the_workload(feature_mocks.PARAMETER)
    if count is None:
        return ()
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        own.refuse("params", f"{feature_mocks.PARAMETER} must be a whole number, and is {count!r:.60}")
        return ()
    return feature_mocks.names(count)
