"""`pod_in`: the pod of a file, for `kubectl berth fit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from berth_sim.manifests import pod_file


def pod_in(path: str, read_stdin: Callable[[], str]) -> dict[str, Any]:
    """Return the only pod of a file; see `berth_sim.manifests.pod_file.pod_in`. Raises ManifestError."""
    return pod_file.pod_in(path, read_stdin)
