"""Reads Kubernetes objects from texts, each with its origin.

Called by `loading.load`. Lists are split into their items. Kinds and versions are checked. The names of
objects of unknown kinds are kept, for a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

from berth_host.cluster.memory.kinds import BY_KIND
from berth_host.cluster.memory.manifests.documents import DocumentError, documents_of, line_of
from berth_host.cluster.memory.manifests.files import Source
from berth_host.errors.manifests import ManifestProblem

_NOT_RUN: Final = "admission by webhooks and policies is not run: pods are as they are written"
_GROUPS: Final = "groups of pods are not read: their pods are scheduled one by one"
_HINTS: Final[Mapping[str, str]] = {
    "MutatingAdmissionPolicy": _NOT_RUN,
    "MutatingAdmissionPolicyBinding": _NOT_RUN,
    "MutatingWebhookConfiguration": _NOT_RUN,
    "ValidatingAdmissionPolicy": _NOT_RUN,
    "ValidatingAdmissionPolicyBinding": _NOT_RUN,
    "ValidatingWebhookConfiguration": _NOT_RUN,
    "PodGroup": _GROUPS,
    "Workload": _GROUPS,
    "DeviceTaintRule": "taints by rules are not read: give them in the ResourceSlice",
    "DaemonSet": "its pods follow nodes, and are not simulated",
    "CronJob": "it makes no pods until its time comes: give the Job itself",
    "KubeSchedulerConfiguration": "a configuration is given with --config",
    "BerthConfiguration": "a configuration is given with --config",
}
_SHOWN_NAMES: Final = 3
_NEAR: Final = 0.8
"""The similarity (0 to 1) from which on a kind counts as a misspelling: Pods, Deploymnet, node."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The place of an object in the input. `prefix`: its path in the document, such as `items[3]`."""

    source: Source
    document: int
    prefix: str = ""

    def problem(self, path: str, text: str) -> ManifestProblem:
        """Return a problem with one of the object's fields, with its line."""
        full = ".".join(part for part in (self.prefix, path) if part)
        return ManifestProblem(
            file=self.source.name,
            document=self.document,
            line=line_of(self.source.text, self.document, full),
            path=full,
            problem=text,
        )

    def __str__(self) -> str:
        return f"{self.source.name} document {self.document}" + (f" {self.prefix}" if self.prefix else "")


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object as written in the input."""

    origin: Origin
    obj: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The object's kind."""
        return str(self.obj["kind"])


@dataclass(slots=True)
class Reading:
    """The contents of the texts.

    `left_out`: the names of objects of kinds that are not read, by kind. `repeated`: a sentence for each
    repeated key.
    """

    manifests: list[Manifest] = field(default_factory=list)
    problems: list[ManifestProblem] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=dict)
    repeated: list[str] = field(default_factory=list)

    @property
    def misspelt(self) -> list[str]:
        """One sentence per unknown kind whose name is similar to a known one."""
        return [
            f"{_names_text(kind, names)} is not a kind: did you mean {near}?"
            for kind, names in sorted(self.left_out.items())
            if (near := _near_kind(kind))
        ]

    @property
    def warnings(self) -> list[str]:
        """One sentence per repeated key, and one per kind that was left out."""
        return self.repeated + [_left_out_text(kind, names) for kind, names in sorted(self.left_out.items())]


def read(sources: Sequence[Source]) -> Reading:
    """Read all objects of all texts."""
    reading = Reading()
    for source in sources:
        number = 0
        try:
            for number, (document, repeated) in enumerate(documents_of(source.text), start=1):
                reading.repeated += [_repeated_text(source, number, key, line) for key, line in repeated]
                if document is not None:
                    _take(reading, Origin(source, number), document)
        except DocumentError as err:
            reading.problems.append(
                ManifestProblem(file=source.name, document=number + 1, line=err.line, problem=err.problem)
            )
    return reading


def _repeated_text(source: Source, document: int, key: str, line: int) -> str:
    where = f"line {line}" if line else f"document {document}"
    return f"{source.name}: {where}: key {key!r} is there twice: the last one counts; remove the other"


def _take(reading: Reading, origin: Origin, obj: Any) -> None:
    if not isinstance(obj, dict):
        text = "is not a Kubernetes object: a map with apiVersion, kind and metadata"
        reading.problems.append(origin.problem("", text))
        return
    kind = obj.get("kind")
    if isinstance(kind, str) and kind.endswith("List") and "items" in obj:
        for item_origin, item in _items(reading, origin, obj):
            _take(reading, item_origin, item)
        return
    problem = _kind_problem(obj)
    foreign = "" if problem is not None else _foreign_name(obj)
    if problem is None and not foreign:
        problem = _version_problem(obj)
    if problem is not None:
        reading.problems.append(origin.problem(*problem))
    elif kind in BY_KIND and not foreign:
        reading.manifests.append(Manifest(origin, obj))
    else:
        metadata = obj.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        names = [str(metadata[key]) for key in ("namespace", "name") if metadata.get(key)]
        reading.left_out.setdefault(foreign or str(kind), []).append("/".join(names) or str(origin))


def _items(reading: Reading, origin: Origin, obj: Mapping[str, Any]) -> Iterator[tuple[Origin, Any]]:
    items = obj["items"]
    prefix = f"{origin.prefix}.items" if origin.prefix else "items"
    if not isinstance(items, list):
        if items is not None:
            reading.problems.append(origin.problem("items", "must be a list of objects"))
        return
    # Items of a typed list (NodeList) do not repeat the list's kind.
    item_kind = str(obj["kind"]).removesuffix("List")
    implied = {"apiVersion": obj.get("apiVersion"), "kind": item_kind} if item_kind else {}
    for i, item in enumerate(items):
        yield (
            Origin(origin.source, origin.document, f"{prefix}[{i}]"),
            implied | item if isinstance(item, dict) else item,
        )


def _kind_problem(obj: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return path and text of a problem with apiVersion or kind; None without one."""
    for key in ("apiVersion", "kind"):
        value = obj.get(key)
        if not isinstance(value, str) or not value:
            return key, "is required, such as apiVersion: v1 and kind: Pod"
    return None


def _foreign_name(obj: Mapping[str, Any]) -> str:
    """Return kubectl's name for a kind of a group outside Kubernetes, such as Service.serving.knative.dev.

    Empty for kinds of Kubernetes' own groups.
    """
    kind, (group, slash, _) = obj["kind"], obj["apiVersion"].partition("/")
    is_foreign = bool(slash) and "." in group and not group.endswith("k8s.io") and kind not in _HINTS
    return f"{kind}.{group}" if is_foreign else ""


def _version_problem(obj: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return path and text of a problem with the apiVersion of a known kind; None without one."""
    known = BY_KIND.get(obj["kind"])
    if known is not None and known.api_version != obj["apiVersion"]:
        return "apiVersion", f"{obj['apiVersion']!r} has no {known.kind} here: use {known.api_version}"
    return None


def _left_out_text(kind: str, names: list[str]) -> str:
    near = _near_kind(kind)
    unread = f"there is no such kind; did you mean {near}?" if near else "scheduling does not read this kind"
    return f"left out {_names_text(kind, names)}: {_HINTS.get(kind, unread)}"


def _near_kind(kind: str) -> str:
    """Return the known kind with a similar name, ignoring case (pod, Pods, Deploymnet); "" for none."""
    if kind in _HINTS:
        return ""
    by_lower = {known.lower(): known for known in BY_KIND}
    near = get_close_matches(kind.lower(), by_lower, n=1, cutoff=_NEAR)
    return by_lower[near[0]] if near else ""


def _names_text(kind: str, names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN_NAMES])
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return f"{kind} {shown}{more}"
