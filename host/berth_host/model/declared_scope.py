"""The scope that a plugin declares -> the test whether a pod is inside.

Called by the plugin's client. Source: the contract's identity.proto (PodScope).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.scope import Scope
from berth_sdk.selectors import LabelSelector

from berth_host.model.wanted_resources import wants_one_of

FindObject: TypeAlias = Callable[[str, str, str], KubeObject | None]
"""(kind, name, namespace) -> the object; None: the host does not know it."""
Test: TypeAlias = Callable[[Pod], bool]


def scope_test(scope: Sequence[Scope], find: FindObject) -> Test:
    """Return the test of a declared scope: a pod is inside if it meets all conditions of one of the terms.

    `find`: looks up the pod's claims. A claim that is not known counts as one of the classes.
    """
    terms = [list(_tests(term, find)) for term in scope]
    return lambda pod: any(all(test(pod) for test in tests) for tests in terms)


def _tests(term: Scope, find: FindObject) -> Iterator[Test]:
    if term.label_selector:
        labels = LabelSelector.parse(term.label_selector)
        yield lambda pod: labels.matches(pod.labels)
    if term.annotation_keys:
        keys = frozenset(term.annotation_keys)
        yield lambda pod: not keys.isdisjoint(pod.annotations)
    if term.namespaces:
        namespaces = frozenset(term.namespaces)
        yield lambda pod: pod.namespace in namespaces
    if term.resources:
        yield wants_one_of(term.resources)
    if term.device_classes:
        yield _of_classes(frozenset(term.device_classes), lambda pod: _device_classes(pod, find))
    if term.storage_classes:
        yield _of_classes(frozenset(term.storage_classes), lambda pod: _storage_classes(pod, find))


def _of_classes(wanted: frozenset[str], classes: Callable[[Pod], Iterator[str | None]]) -> Test:
    return lambda pod: any(name is None or name in wanted for name in classes(pod))


def _device_classes(pod: Pod, find: FindObject) -> Iterator[str | None]:
    """Yield the device classes of the pod's ResourceClaims; None for a claim that is not known."""
    entries = pod.spec.get("resourceClaims") or ()
    if not entries:
        return
    made = dict(pod.generated_claims)
    for entry in entries:
        name = entry.get("resourceClaimName") or made.get(entry.get("name", ""))
        if name == "":  # nothing had to be made for the entry
            continue
        claim = None if name is None else find("ResourceClaim", name, pod.namespace)
        if claim is None:
            yield None
            continue
        for request in claim.get("spec.devices.requests") or ():
            for one in (request.get("exactly") or {}, *(request.get("firstAvailable") or ())):
                if one.get("deviceClassName"):
                    yield one["deviceClassName"]


def _storage_classes(pod: Pod, find: FindObject) -> Iterator[str | None]:
    """Yield the storage classes of the pod's PersistentVolumeClaims; None for a claim that is not known."""
    for name in pod.claims:
        claim = find("PersistentVolumeClaim", name, pod.namespace)
        if claim is None:
            yield None
        else:
            yield claim.get("spec.storageClassName") or ""
