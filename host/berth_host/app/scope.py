"""BerthConfiguration's `scope` -> which pods a plugin is asked about. Called by `clients`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.selectors import LabelSelector

from berth_host.cache.objects import ObjectStores
from berth_host.config.berth.configuration import PluginScope


def scope_of(scope: PluginScope, objects: ObjectStores) -> Callable[[Pod], bool] | None:
    """The test; None where every pod is in scope. All that is given must hold."""
    tests: list[Callable[[Pod], bool]] = []
    if scope.namespace_selector is not None:
        namespaces = LabelSelector.of(scope.namespace_selector)
        tests.append(lambda pod: namespaces.matches(_namespace_labels(objects, pod.namespace)))
    if scope.pod_selector is not None:
        pods = LabelSelector.of(scope.pod_selector)
        tests.append(lambda pod: pods.matches(pod.labels))
    if scope.resources:
        wanted = frozenset(scope.resources)
        tests.append(lambda pod: not wanted.isdisjoint(pod.requests))
    if not tests:
        return None
    return lambda pod: all(test(pod) for test in tests)


def _namespace_labels(objects: ObjectStores, name: str) -> Mapping[str, str]:
    namespace: KubeObject | None = objects.get("Namespace", name)
    # A namespace that no object describes still has the label that the API server gives every one.
    default = {"kubernetes.io/metadata.name": name}
    return default if namespace is None else default | dict(namespace.get("metadata.labels", {}))
