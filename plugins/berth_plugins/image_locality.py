"""ImageLocality: prefers nodes that hold the pod's images already. Called at Score.

Source: `pkg/scheduler/framework/plugins/imagelocality/image_locality.go`, v1.37.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.events import EventInterest
from berth_sdk.extension_points import Answer, DependsOn, Plugin, ScoreNormalization
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.slices import Work, in_slices
from berth_sdk.status import MAX_NODE_SCORE
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_plugins.args.gates import IMAGE_VOLUMES, is_on
from berth_plugins.objects.of_events import spec_of

_MIB: Final = 1024 * 1024
LEAST_BYTES: Final = 23 * _MIB
MOST_BYTES_PER_IMAGE: Final = 1000 * _MIB


class ImageLocality(Plugin):
    """Scores the bytes of the pod's images that a node holds, each scaled by the share of nodes that hold the
    image. The scaling keeps pods from crowding the only node with their image.
    """

    needs: Sequence[Need] = (
        Need.whole_pod(("containers.image", "initContainers.image", "volumes")),
        Need.nodes(images=True),
    )
    normalization: ScoreNormalization | None = ScoreNormalization.NONE
    depends_on: DependsOn | None = DependsOn.NODES
    events: Sequence[EventInterest] | None = ()

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._counts_volumes = is_on(args, IMAGE_VOLUMES, default=True)

    def sign_spec(self, pod: Pod) -> Hashable:
        """Return the images and how many of them count."""
        return pod.images, self._image_count(spec_of(pod))

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[NDArray[np.int64]]:
        """Return int64[n], 0..100."""
        return in_slices(self._score_nodes(pod, nodes))

    def _score_nodes(self, pod: Pod, nodes: NodeTable) -> Work[NDArray[np.int64]]:
        count = self._image_count(spec_of(pod))
        total = np.zeros(len(nodes), dtype=np.int64)
        found = False
        snapshot_size = float(nodes.snapshot_size)
        for image, uses in Counter(normalized_name(image) for image in pod.images).items():
            if not nodes.has_image(image):
                continue
            yield
            holders, size_bytes = nodes.image(image)
            if size_bytes:
                found = True
                scaled = float(size_bytes) * (holders / snapshot_size)
                total += scaled.astype(np.int64) * uses
        if not found and count:
            return total  # below the minimum that counts, on every node
        return _scaled(total, MOST_BYTES_PER_IMAGE * count)

    def _image_count(self, spec: Mapping[str, Any]) -> int:
        containers = len(spec.get("initContainers") or ()) + len(spec.get("containers") or ())
        if not self._counts_volumes:
            return containers
        return containers + sum(volume.get("image") is not None for volume in spec.get("volumes") or ())


def normalized_name(image: str) -> str:
    """Return the name under which a node lists the image. An image without tag or digest is the latest.

    >>> normalized_name("registry:5000/web"), normalized_name("web:v1")
    ('registry:5000/web:latest', 'web:v1')
    """
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


def _scaled(total: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    # In upstream's order of comparisons: without images `most` is below `LEAST_BYTES`.
    clamped = np.where(total < LEAST_BYTES, LEAST_BYTES, np.minimum(total, most))
    return (clamped - LEAST_BYTES) * MAX_NODE_SCORE // (most - LEAST_BYTES)
