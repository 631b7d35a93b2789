"""A pod -> a digest that pods with the same scheduling wishes share.

Used to share columns between equal pods. Covers the facts by which a plugin may judge a pod: namespace,
labels, annotations, priority, the controller that owns it, the spec without the node it is on, and the claims
that were made for it. Where the
object is not known, the summary stands in for the spec; the two forms never meet, because their digests
differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

from berth_sdk.pod import Pod

_DIGEST_BYTES: Final = 16
# The API server's admission gives each pod a token volume with a random name; it says nothing about
# where the pod can run, and would make every pod unlike its siblings.
_TOKEN_VOLUME: Final = "kube-api-access-"


def signature(pod: Pod) -> bytes:
    """16 bytes that are equal for pods that every plugin must treat alike, and differ for others.

    >>> web = Pod(name="web-1", labels={"app": "web"}, requests={"cpu": 500})
    >>> signature(web) == signature(Pod(name="web-2", labels={"app": "web"}, requests={"cpu": 500}))
    True
    >>> signature(web) == signature(Pod(name="web-1", labels={"app": "db"}, requests={"cpu": 500}))
    False
    """
    known = pod._signature
    if known is None:
        known = _digest(pod)
        # The record is frozen for other code; values derived from its fields may be kept beside them.
        object.__setattr__(pod, "_signature", known)
    return known


def wishes(pod: Pod) -> bytes:
    """As `signature`, and the nodes that spec and status name beside it: the signature for a class that
    declares `depends_on` and signs nothing itself.
    """
    if pod.node_name or pod.nominated_node:
        return signature(pod) + f"{pod.node_name}/{pod.nominated_node}".encode()
    return signature(pod)


def of_spec(pod: Pod) -> str:
    """Equal for pods with equal specs but for the node; written once for all of them. "" without the object.

    Longer than a digest, and found at once: for a memory that is looked up by specs.
    """
    return _text_of_spec(pod) if pod.is_whole else ""


def spec_wishes(pod: Pod) -> str:
    """As `of_spec`; for a pod without its object, the summary's fields in place of the spec."""
    return _text_of_spec(pod) if pod.is_whole else repr(_summary_wishes(pod))


def _digest(pod: Pod) -> bytes:
    owner = pod.owner
    wishes = _own_claims(pod) if pod.is_whole else _summary_wishes(pod)
    document = (
        pod.namespace,
        sorted(pod.labels.items()),
        sorted(pod.annotations.items()),
        pod.priority,
        # Not by its uid alone: a manifest written by hand may leave that out.
        (owner.uid, owner.name, owner.kind, owner.api_version) if owner else "",
        not pod.is_whole,
        wishes,
    )
    # `repr` of strings, numbers, lists and maps says each of them exactly, and costs least. The maps
    # of a spec keep the order in which they were written: siblings have the same.
    text = f"{document!r}{_text_of_spec(pod)}" if pod.is_whole else repr(document)
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()


def _text_of_spec(pod: Pod) -> str:
    """Written once for all pods that have the same spec."""
    read = pod._read
    if read is None:
        return repr(_spec_wishes(pod.spec))
    if read.wishes is None:
        read.wishes = repr(_spec_wishes(pod.spec))
    return read.wishes


def _spec_wishes(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    wishes = {key: value for key, value in spec.items() if key not in ("nodeName", "volumes")}
    wishes["volumes"] = [
        volume for volume in spec.get("volumes") or () if not is_token_volume(volume.get("name"))
    ]
    for key in ("containers", "initContainers", "ephemeralContainers"):
        if key in wishes:
            wishes[key] = [_container_wishes(container) for container in wishes[key] or ()]
    return wishes


def _own_claims(pod: Pod) -> tuple[Any, ...]:
    """Claims made for this pod alone: siblings have the same template in their spec, and a claim each."""
    return pod.claims, pod.generated_claims if pod.spec.get("resourceClaims") else ()


def _container_wishes(container: Mapping[str, Any]) -> Mapping[str, Any]:
    mounts = container.get("volumeMounts")
    if not mounts:
        return container
    kept = [mount for mount in mounts if not is_token_volume(mount.get("name"))]
    return {**container, "volumeMounts": kept}


def is_token_volume(name: Any) -> bool:
    """Whether a volume of this name holds the token of the pod's service account."""
    return isinstance(name, str) and name.startswith(_TOKEN_VOLUME)


def _summary_wishes(pod: Pod) -> tuple[Any, ...]:
    # Sorted: a map that came over the wire has no order.
    return (
        sorted(pod.requests.items()),
        sorted(pod.non_zero_requests.items()),
        sorted(pod.score_requests.items()),
        sorted(pod.node_selector.items()),
        pod.tolerations,
        pod.scheduler_name,
        pod.scheduling_gates,
        pod.host_ports,
        pod.images,
        pod.claims,
        pod.never_preempts,
    )
