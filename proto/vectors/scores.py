"""Write scores.json: Scores as messages, and what they come to after each normalization.

    python proto/write_vectors.py scores

`final` is what the host's own code computes; null: a violation. `tests/contract/test_vectors.py` compares the
SDK's code with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from berth_host.rpc.scores import normalize
from berth_sdk.extension_points import ScoreNormalization
from berth_sdk.plugin.v1 import scheduling_pb2 as pb
from vectors.writing import written

NODES = ["n0", "n1", "n2", "n3"]


def document() -> dict[str, Any]:
    """Return the content of scores.json."""
    return {
        "source": "Scores and ScoreNormalization; written by proto/write_vectors.py",
        "forms": [
            {"name": name, "candidates": NODES, "message": written(message), "scores": scores}
            for name, message, scores in _forms()
        ],
        "violations": [
            {"name": name, "candidates": NODES, "message": written(message), "why": why}
            for name, message, why in _violations()
        ],
        "normalizations": [_normalized(name, raw) for name, raw in _raws()],
    }


def _named(*pairs: tuple[str, int]) -> pb.Scores:
    return pb.Scores(named=[pb.NamedScore(node=node, score=score) for node, score in pairs])


def _forms() -> list[tuple[str, pb.Scores, list[int]]]:
    return [
        ("dense", pb.Scores(dense=[0, 50, 100, 7]), [0, 50, 100, 7]),
        (
            "dense, negative and large",
            pb.Scores(dense=[-1, 2**40, -(2**63), 2**63 - 1]),
            [-1, 2**40, -(2**63), 2**63 - 1],
        ),
        ("small: one byte for each", pb.Scores(small=bytes([0, 50, 100, 255])), [0, 50, 100, 255]),
        ("small: only zeros", pb.Scores(small=bytes(4)), [0, 0, 0, 0]),
        ("dense: only zeros", pb.Scores(dense=[0, 0, 0, 0]), [0, 0, 0, 0]),
        ("named, in any order", _named(("n2", 30), ("n0", 10), ("n3", 0), ("n1", -20)), [10, -20, 30, 0]),
    ]


def _violations() -> list[tuple[str, pb.Scores, str]]:
    return [
        ("none", pb.Scores(), "no score for four candidates"),
        ("too short", pb.Scores(dense=[1, 2, 3]), "three scores for four candidates"),
        ("too long", pb.Scores(small=bytes(5)), "five scores for four candidates"),
        (
            "two forms",
            pb.Scores(dense=[1, 2, 3, 4], small=bytes(4)),
            "exactly one of the three forms is used",
        ),
        ("a name missing", _named(("n0", 1), ("n1", 1), ("n2", 1)), "n3 has no score"),
        (
            "a name twice",
            _named(("n0", 1), ("n1", 1), ("n2", 1), ("n2", 1)),
            "n2 has two scores, n3 has none",
        ),
        ("an unknown name", _named(("n0", 1), ("n1", 1), ("n2", 1), ("x", 1)), "x is no candidate"),
    ]


def _raws() -> list[tuple[str, list[int]]]:
    return [
        ("in the range", [0, 50, 100, 7]),
        ("above the range", [0, 1, 3, 1000]),
        ("fractions are cut off", [1, 2, 3, 7]),
        ("all equal", [5, 5, 5, 5]),
        ("all zero", [0, 0, 0, 0]),
        ("some negative", [-10, 0, 10, 20]),
        ("all negative", [-3, -2, -1, -4]),
        ("one node", [42]),
        ("division before multiplication", [0, 29, 57, 100]),
        ("seconds of several days", [0, 86400, 123456, 604800]),
    ]


def _normalized(name: str, raw: list[int]) -> dict[str, Any]:
    scores = np.array(raw, dtype=np.int64)
    final = {
        f"SCORE_NORMALIZATION_{how.name}": normalize(how, scores).tolist()
        for how in (
            ScoreNormalization.HOST_MAX,
            ScoreNormalization.HOST_MAX_REVERSED,
            ScoreNormalization.HOST_MIN_MAX,
        )
    }
    as_is = raw if all(0 <= score <= 100 for score in raw) else None
    for kind in ("PLUGIN", "NONE", "UNSPECIFIED"):
        final[f"SCORE_NORMALIZATION_{kind}"] = as_is  # None: a violation, as a score is outside 0..100
    violating = {
        how: None for how, values in final.items() if values and not all(0 <= v <= 100 for v in values)
    }
    return {
        "name": name,
        "raw": raw,
        "message": written(pb.Scores(dense=raw)),
        "final": {**final, **violating},
    }
