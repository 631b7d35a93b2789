"""`Wishes`: the requests that the search has to satisfy for a pod. They may differ by node.

A node that offers an extended resource provides it itself. On other nodes, devices of a class take its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import numpy as np
from berth_sdk.json.writer import write_json
from berth_sdk.slices import Work
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_plugins.dynamic_resources.attempt import Attempt, Json
from berth_plugins.dynamic_resources.extended import requests_for
from berth_plugins.dynamic_resources.requests import requests_of
from berth_plugins.dynamic_resources.search import ClaimToAllocate

EXTENDED_NAME: Final = "<extended-resources>"
"""The name of a claim that does not exist yet. The API server accepts no such name."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Claims to allocate. `key`: equal for pods with equal requests."""

    key: str
    claims: tuple[ClaimToAllocate, ...]
    mappings: tuple[Json, ...] = ()


class Wishes:
    """The wishes of one pod for the rows of `nodes`. `unfit`: rows without a resource that nothing else can
    provide; None: the pod asks for no extended resource.
    """

    def __init__(self, attempt: Attempt, nodes: NodeTable, claims: tuple[ClaimToAllocate, ...]) -> None:
        self._attempt = attempt
        self._claims = claims
        self._count = len(nodes)
        self._codes: NDArray[np.int64] | None = None
        self.unfit: NDArray[np.intp] | None = None
        extended = attempt.extended
        self._served = sorted(extended.served) if extended is not None else []
        if extended is None:
            return
        codes = np.zeros(len(nodes), dtype=np.int64)
        for i, resource in enumerate(self._served):
            codes |= (nodes.allocatable(resource) <= 0).astype(np.int64) << i
        for resource in extended.others:
            codes[nodes.allocatable(resource) <= 0] = _UNFIT
        self._codes = codes
        self.unfit = np.flatnonzero(codes == _UNFIT)

    def of_rows(self) -> Work[list[tuple[NDArray[np.intp], Wish]]]:
        """Return the rows by their wish, without rows that have no wish. Yields after each claim."""
        found: list[tuple[NDArray[np.intp], Wish]] = []
        if self._codes is None:
            wish = yield from self._made(0)
            if wish is not None:
                found.append((np.arange(self._count, dtype=np.intp), wish))
            return found
        for code in np.unique(self._codes).tolist():
            wish = yield from self._made(code)
            if wish is not None:
                found.append((np.flatnonzero(self._codes == code), wish))
        return found

    def _made(self, code: int) -> Work[Wish | None]:
        if code == _UNFIT:
            return None
        served = {name for i, name in enumerate(self._served) if code >> i & 1}
        claims = self._claims
        mappings: tuple[Json, ...] = ()
        if served and self._attempt.extended is not None:
            classes: Mapping[str, str] = self._attempt.extended.served
            requests, found = requests_for(self._attempt.pod, {name: classes[name] for name in served})
            spec: Mapping[str, Any] = {"devices": {"requests": requests}}
            key = f"{self._attempt.pod.namespace}/{EXTENDED_NAME}"
            claims = (*claims, ClaimToAllocate(key, spec, requests_of(spec)))
            mappings = tuple(found)
        if not claims:
            return None
        # The mappings follow from the names of the requests and of the containers.
        # A pod may name one claim very often.
        specs = {id(claim): claim.spec for claim in claims}
        places = {key: i for i, key in enumerate(specs)}
        order = [places[id(claim)] for claim in claims]
        # A specification may have 300 KB of parameters, and a pod hundreds of claims.
        digests = []
        for one in specs.values():
            digests.append(sha256(write_json(one, sort_keys=True)).hexdigest())
            yield
        key = write_json([digests, order, mappings]).decode(errors="surrogateescape")
        return Wish(key, claims, mappings)


_UNFIT: Final = -1
