"""A pod -> a digest that all pods with the same scheduling wishes share.

Equal pods share columns and kept answers by this digest. The digest covers the facts by which a plugin may
judge a pod: namespace, labels, annotations, priority, the controller that owns the pod, the spec without the
node name, and the claims that were made for the pod. Where the object is not known, the summary takes the
place of the spec. The digests of the two forms always differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

from berth_sdk.pod import Pod

_DIGEST_BYTES: Final = 16
# The API server's admission gives each pod a token volume with a random name. The volume does not limit where
# the pod can run, but would make all pods different.
_TOKEN_VOLUME: Final = "kube-api-access-"


def signature(pod: Pod) -> bytes:
    """Return 16 bytes that are equal for pods that every plugin must treat alike, and differ for others.

    >>> web = Pod(name="web-1", labels={"app": "web"}, requests={"cpu": 500})
    >>> signature(web) == signature(Pod(name="web-2", labels={"app": "web"}, requests={"cpu": 500}))
    True
    >>> signature(web) == signature(Pod(name="web-1", labels={"app": "db"}, requests={"cpu": 500}))
    False
    """
    known = pod._signature
    if known is None:
        known = _digest(pod)
        # The record is frozen for other code; a value derived from its fields may be stored in it.
        object.__setattr__(pod, "_signature", known)
    return known


def wishes(pod: Pod) -> bytes:
    """Return `signature` and the nodes that the pod's spec and status name.

    The signature for a class that declares `depends_on` and has no `sign` method or fields.
    """
    if pod.node_name or pod.nominated_node:
        return signature(pod) + f"{pod.node_name}/{pod.nominated_node}".encode()
    return signature(pod)


def of_spec(pod: Pod) -> str:
    """Return a text that is equal for pods with equal specs, the node name left out. "" without the object.

    The text is longer than a digest, but needs no computing: it is made once for all these pods. For caches
    with specs as keys.
    """
    return _text_of_spec(pod) if pod.is_whole else ""


def spec_wishes(pod: Pod) -> str:
    """Return the text of `of_spec`; for a pod without its object, a text of the summary's fields."""
    return _text_of_spec(pod) if pod.is_whole else repr(_summary_wishes(pod))


def _digest(pod: Pod) -> bytes:
    owner = pod.owner
    wishes = _own_claims(pod) if pod.is_whole else _summary_wishes(pod)
    document = (
        pod.namespace,
        sorted(pod.labels.items()),
        sorted(pod.annotations.items()),
        pod.priority,
        # The uid alone does not suffice: a manifest written by hand may leave it out.
        (owner.uid, owner.name, owner.kind, owner.api_version) if owner else "",
        not pod.is_whole,
        wishes,
    )
    # `repr` of strings, numbers, lists and maps is exact and the fastest form. The maps of a spec keep the
    # order in which they were written, which is the same for all pods of a controller.
    text = f"{document!r}{_text_of_spec(pod)}" if pod.is_whole else repr(document)
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()


def _text_of_spec(pod: Pod) -> str:
    """Return the text of the pod's spec, made once for all pods that have the same spec."""
    read = pod.shared_spec
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
    """Return the claims made for this pod alone. Pods of one controller have the same template but different
    claims.
    """
    return pod.claims, pod.generated_claims if pod.spec.get("resourceClaims") else ()


def _container_wishes(container: Mapping[str, Any]) -> Mapping[str, Any]:
    mounts = container.get("volumeMounts")
    if not mounts:
        return container
    kept = [mount for mount in mounts if not is_token_volume(mount.get("name"))]
    return {**container, "volumeMounts": kept}


def is_token_volume(name: Any) -> bool:
    """Return True if a volume of this name holds the token of the pod's service account."""
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
        pod.group_key,
    )
