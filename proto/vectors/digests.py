"""Write digests.json: what a copy holds, and the counts and the sum that StateDelta says of it.

    python proto/write_vectors.py digests

The expected digests are computed here from lists of generations alone, without the code of host or SDK.
`tests/contract/test_vectors.py` brings the SDK's copy to each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from berth_sdk.plugin.v1 import common_pb2 as pb
from vectors.writing import written

EPOCH: Final = 7
MODULUS: Final = 2**53
LARGEST: Final = MODULUS - 1
CLAIMS: Final = "persistentvolumeclaims"


@dataclass(frozen=True)
class Step:
    """The content of one delta. `nodes`, `objects`: generations by index and by name.

    `gone`, `gone_objects`: what leaves before.
    """

    nodes: Mapping[int, int] = field(default_factory=dict)
    objects: Mapping[str, int] = field(default_factory=dict)
    gone: Sequence[int] = ()
    gone_objects: Sequence[str] = ()


def document() -> dict[str, Any]:
    """Return the content of digests.json."""
    return {
        "source": "StateDelta.node_count, object_count and generation_sum; written by proto/write_vectors.py",
        "cases": [_case(name, steps) for name, steps in _cases()],
    }


def _cases() -> list[tuple[str, list[Step]]]:
    """Return the deltas of each case. The first one is the full state."""
    return [
        ("the empty snapshot", [Step()]),
        ("one node", [Step({0: 5})]),
        ("generations are summed, indices are not", [Step({0: 5, 7: 6, 300: 9})]),
        ("a changed node counts as it is now", [Step({0: 5, 1: 6}), Step({0: 7})]),
        ("a node that is gone does not count", [Step({0: 5, 1: 6}), Step(gone=[1])]),
        ("an index that another node takes over", [Step({0: 5, 1: 6}), Step({1: 9}, gone=[1])]),
        ("the last node goes", [Step({3: 5}), Step(gone=[3])]),
        ("the largest generation", [Step({0: LARGEST})]),
        ("a sum of exactly the modulus is 0", [Step({0: LARGEST, 1: 1})]),
        ("a sum above the modulus", [Step({0: LARGEST, 1: LARGEST})]),
        (
            "a sum that a double cannot hold",
            [Step({0: LARGEST, 1: LARGEST, 2: LARGEST, 3: 2})],
        ),
        (
            "a sum that comes back below the modulus",
            [Step({0: LARGEST, 1: LARGEST - 2}), Step({2: 3}, gone=[1])],
        ),
        ("objects count in the sum, and by themselves", [Step({0: 5}, {"x": 6, "y": 7})]),
        ("a changed object counts as it is now", [Step({0: 5}, {"x": 6}), Step({}, {"x": 8})]),
        ("an object that is gone does not count", [Step({0: 5}, {"x": 6, "y": 7}), Step(gone_objects=["x"])]),
        ("objects without a node, above the modulus", [Step({}, {"x": LARGEST, "y": LARGEST})]),
    ]


def _case(name: str, steps: Sequence[Step]) -> dict[str, Any]:
    nodes: dict[int, int] = {}
    objects: dict[str, int] = {}
    rows: list[dict[str, Any]] = []
    made = pb.StateDelta()
    total = 0
    for number, step in enumerate(steps):
        new = set(step.nodes) - (set(nodes) - set(step.gone))
        for index in step.gone:
            del nodes[index]
        for key in step.gone_objects:
            del objects[key]
        nodes.update(step.nodes)
        objects.update(step.objects)
        total = sum([*nodes.values(), *objects.values()])
        digests = {
            "node_count": len(nodes),
            "object_count": len(objects),
            "generation_sum": total % MODULUS,
        }
        made = _delta(number, step, new)
        for key, value in digests.items():
            setattr(made, key, value)
        rows.append(
            {
                "delta": written(made),
                "nodes": [{"index": index, "generation": one} for index, one in sorted(nodes.items())],
                "objects": [{"name": key, "generation": one} for key, one in sorted(objects.items())],
                **digests,
            }
        )
    return {"name": name, "steps": rows, "wrong": _wrong(made, total)}


def _wrong(right: pb.StateDelta, total: int) -> list[dict[str, Any]]:
    """Return the last delta with one wrong digest each; a copy refuses every one of them."""
    rows = [
        ("node_count is one more", "node_count", right.node_count + 1),
        ("object_count is one more", "object_count", right.object_count + 1),
        ("generation_sum is one more", "generation_sum", (right.generation_sum + 1) % MODULUS),
    ]
    if right.node_count:
        rows.append(("node_count is one less", "node_count", right.node_count - 1))
    if total >= MODULUS:
        rows.append(("generation_sum without the modulus", "generation_sum", total))
    if total % MODULUS and float(total) % MODULUS != total % MODULUS:
        rows.append(("generation_sum of doubles", "generation_sum", int(float(total)) % MODULUS))
    found = []
    for why, key, value in rows:
        delta = pb.StateDelta()
        delta.CopyFrom(right)
        setattr(delta, key, value)
        found.append({"why": why, "delta": written(delta)})
    return found


def _delta(number: int, step: Step, new: set[int]) -> pb.StateDelta:
    """Return a delta without digests. `number`: of the step; 0 is the full state."""
    made = pb.StateDelta(target=pb.StateVersion(epoch=EPOCH, generation=number + 1), removed=step.gone)
    if number:
        made.base.CopyFrom(pb.StateVersion(epoch=EPOCH, generation=number))
    for index, generation in step.nodes.items():
        name = f"n{index}-{number}" if index in new else ""
        made.upserts.add(index=index, generation=generation, name=name)
    for key in step.gone_objects:
        made.objects.add(resource=CLAIMS, generation=number + 9, ref=_ref(key), removed=True)
    for key, generation in step.objects.items():
        raw = b'{"metadata":{"namespace":"default","name":"%s"}}' % key.encode()
        whole = pb.KubeObject(api_version="v1", kind="PersistentVolumeClaim", raw=raw)
        made.objects.add(resource=CLAIMS, generation=generation, ref=_ref(key), object=whole)
    return made


def _ref(name: str) -> pb.ObjectRef:
    return pb.ObjectRef(namespace="default", name=name, uid=f"uid-{name}")
