"""A pod -> a digest that all pods with the same scheduling wishes share.

Equal pods share columns and kept answers by this digest. The digest covers the facts by which a plugin may
judge a pod: namespace, labels, annotations, priority, the controller that owns the pod, the spec without the
node name, and the claims that were made for the pod. Where the object is not known, the summary takes the
place of the spec. The digests of the two forms always differ.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

from berth_sdk.pod import Pod
from berth_sdk.spec_reads import ALL_OF_SPEC

_DIGEST_BYTES: Final = 16


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
        return repr(ALL_OF_SPEC.part(pod.spec))
    if read.wishes is None:
        read.wishes = repr(read.reads.part(pod.spec))
    return read.wishes


def _own_claims(pod: Pod) -> tuple[Any, ...]:
    """Return the claims made for this pod alone. Pods of one controller have the same template but different
    claims.
    """
    own = pod.claims, pod.generated_claims if pod.spec.get("resourceClaims") else ()
    # The claims of a group belong to its members. Where plugins declare what they read, the text of the spec
    # does not name the group.
    return (*own, pod.group_key) if pod.group_key else own


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
