"""Write node_sets.json: sets of nodes as messages, and the indices or names that they stand for.

    python proto/write_vectors.py node_sets

The expected sets are written here by hand. `tests/contract/test_vectors.py` reads each with host and SDK.
"""

from __future__ import annotations

from typing import Any

from berth_sdk.plugin.v1 import common_pb2 as pb
from vectors.writing import written

NAMES = {0: "n0", 1: "n1", 2: "n2", 7: "n7", 8: "n8", 9: "n9", 16: "n16", 63: "n63"}
ALL = sorted(NAMES)


def document() -> dict[str, Any]:
    """Return the content of node_sets.json."""
    return {
        "source": "NodeSet in common.proto; written by proto/write_vectors.py",
        "snapshot": [{"index": index, "name": name} for index, name in sorted(NAMES.items())],
        "bitmaps": [
            {"name": name, "indices": indices, "hex": bitmap.hex()} for name, indices, bitmap in _bitmaps()
        ],
        "sets": [
            {
                "name": name,
                "set": written(message),
                "within": within,
                "indices": indices,
                "names": [NAMES[index] for index in indices],
            }
            for name, message, within, indices in _sets()
        ],
    }


def _bitmaps() -> list[tuple[str, list[int], bytes]]:
    return [
        ("no node", [], b""),
        ("the first node is the lowest bit of the first byte", [0], b"\x01"),
        ("the eighth node is the highest bit of the first byte", [7], b"\x80"),
        ("the ninth node begins the second byte", [8], b"\x00\x01"),
        ("several bytes", [0, 1, 9, 16], b"\x03\x02\x01"),
        ("zero bytes at the end say nothing", [2], b"\x04\x00\x00"),
        ("a zero byte in the middle", [0, 63], b"\x01" + bytes(6) + b"\x80"),
    ]


def _sets() -> list[tuple[str, pb.NodeSet, list[int], list[int]]]:
    """Return name, message, what "all" means (the snapshot, or the candidates), and the nodes of the set."""
    some = [0, 2, 8, 16]
    return [
        ("nothing set: the empty set", pb.NodeSet(), ALL, []),
        ("all nodes of the snapshot", pb.NodeSet(complement=True), ALL, ALL),
        ("all candidates", pb.NodeSet(complement=True), some, some),
        ("a bitmap", pb.NodeSet(bitmap=b"\x05\x01"), ALL, [0, 2, 8]),
        (
            "a bitmap's complement in the snapshot",
            pb.NodeSet(complement=True, bitmap=b"\x86\x03"),
            ALL,
            [0, 16, 63],
        ),
        (
            "a bitmap's complement among candidates",
            pb.NodeSet(complement=True, bitmap=b"\x01"),
            some,
            [2, 8, 16],
        ),
        ("zero bytes at the end", pb.NodeSet(bitmap=b"\x04" + bytes(9)), ALL, [2]),
        ("names, in any order", pb.NodeSet(names=["n16", "n0"]), ALL, [0, 16]),
        (
            "the complement of names among candidates",
            pb.NodeSet(complement=True, names=["n8"]),
            some,
            [0, 2, 16],
        ),
        ("a bitmap of one far node", pb.NodeSet(bitmap=bytes(7) + b"\x80"), ALL, [63]),
    ]
