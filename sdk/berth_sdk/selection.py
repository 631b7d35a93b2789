"""`StateSelection`: the parts of the cluster state that several needs ask for together.

The host sends a served instance the selection of all its plugins. The SDK shows each plugin the selection of
its own needs, in process and served (`berth_sdk.limits`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from berth_sdk.needs import Need, NeedKind

Prefixes = tuple[str, ...] | None
"""Prefixes of the label or annotation keys to keep. None: all keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSelection:
    """Everything that any of several needs asks for. Hashable.

    `node_object`, `pod_object` and the values of `resources`: fields to drop; None: not wanted.
    """

    node_summary: bool = False
    node_labels: Prefixes = ()
    node_annotations: tuple[str, ...] = ()
    images: bool = False
    node_object: tuple[str, ...] | None = None
    pods: bool = False
    pod_labels: Prefixes = ()
    pod_annotations: tuple[str, ...] = ()
    pod_object: tuple[str, ...] | None = None
    resources: tuple[tuple[str, tuple[str, ...]], ...] = field(default=())

    @staticmethod
    def of(needs: Iterable[Need]) -> StateSelection:
        """Everything that any of `needs` asks for. A field is dropped only if no need asks for it."""
        by_kind: dict[tuple[NeedKind, str], list[Need]] = {}
        for need in needs:
            key = (need.kind, need.resource if need.kind is NeedKind.OBJECT else "")
            by_kind.setdefault(key, []).append(need)
        nodes = by_kind.get((NeedKind.NODE_SUMMARY, ""), [])
        node_objects = by_kind.get((NeedKind.NODE_OBJECT, ""), [])
        pods = by_kind.get((NeedKind.POD_SUMMARY, ""), [])
        pod_objects = by_kind.get((NeedKind.POD_OBJECT, ""), [])
        return StateSelection(
            node_summary=bool(nodes),
            node_labels=_labels(nodes),
            node_annotations=_annotations(nodes),
            images=any(need.images for need in nodes),
            node_object=_dropped(node_objects) if node_objects else None,
            pods=bool(pods or pod_objects),
            # A plugin that asks for whole pods alone must still find labels in the pods' records.
            pod_labels=_labels(pods or pod_objects),
            pod_annotations=_annotations(pods),
            pod_object=_dropped(pod_objects) if pod_objects else None,
            resources=tuple(
                sorted(
                    (resource, _dropped(found))
                    for (kind, resource), found in by_kind.items()
                    if kind is NeedKind.OBJECT
                )
            ),
        )


def _labels(needs: Sequence[Need]) -> Prefixes:
    if any("" in need.label_prefixes for need in needs):
        return None
    return tuple(sorted({prefix for need in needs for prefix in need.label_prefixes}))


def _annotations(needs: Sequence[Need]) -> tuple[str, ...]:
    return tuple(sorted({prefix for need in needs for prefix in need.annotation_prefixes}))


def _dropped(needs: Sequence[Need]) -> tuple[str, ...]:
    paths = {path for need in needs for path in need.drop_fields}
    return tuple(sorted(path for path in paths if all(_drops(need, path) for need in needs)))


def _drops(need: Need, path: str) -> bool:
    return any(path == dropped or path.startswith(f"{dropped}.") for dropped in need.drop_fields)
