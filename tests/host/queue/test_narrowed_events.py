"""Plugins say which waiting pods an event may help: only their hints are called."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass, field

import pytest
from berth_host.metrics.scheduler_metrics import SchedulerMetrics
from berth_host.queue.events import QueueEvent, assigned_pod_deleted
from berth_host.queue.interfaces import HintQuestion, QueueConfig, QueueObserver
from berth_host.queue.registrations import LEAVES_SCOPE, Registration
from berth_host.queue.reports import QueueMetrics, SortReports
from berth_sdk.events import ASSIGNED_POD, TARGET_POD, ActionType, ClusterEvent
from berth_sdk.extension_points import Concerned
from berth_sdk.pod import Pod
from berth_sdk.runtime.plugin_runtime import Narrowing
from support.queue_parts import Plugins, QueueBench, a_pod

GONE = Registration(resource="Pod", action=int(ActionType.DELETE), ask=True)
ANY_POD = Registration(resource="Pod", action=int(ActionType.ALL), ask=True)
APPS = ("web", "db", "web")


@dataclass
class Narrows:
    """A plugin whose rejected pods wait for an app. `asked`: the pods that its hint was called for."""

    keys: Concerned
    asked: list[str] = field(default_factory=list)
    called: int = 0

    def hint(self, question: HintQuestion) -> bool:
        self.asked.append(question.pod.name)
        return False

    def of_event(self, event: ClusterEvent) -> Concerned:
        self.called += 1
        return self.keys

    def keys_of(self, pod: Pod) -> Collection[Hashable] | None:
        return [pod.labels["app"]] if "app" in pod.labels else None

    def bench(self, *registrations: Registration, every_plugin: bool = False) -> QueueBench:
        return QueueBench(
            Plugins(
                registrations={"Fit": registrations or [GONE]},
                hint=self.hint,
                signs={"Fit": lambda pod: tuple(pod.labels.items())},
                narrows={"Fit": Narrowing(self.keys_of, self.of_event)},
                in_scope={"Fit": lambda pod: True},
            ),
            QueueConfig(ask_every_plugin=every_plugin),
        )


def parked(bench: QueueBench) -> None:
    for number, app in enumerate(APPS):
        bench.parked(f"{app}-{number}", "Fit", labels={"app": app})
    bench.parked("unknown", "Fit")


GONE_POD = assigned_pod_deleted(a_pod("gone", node_name="n1"))


@pytest.mark.parametrize(
    ("keys", "want"),
    [
        pytest.param(["db"], {"db-1", "unknown"}, id="one key"),
        pytest.param(["db", "db", "other"], {"db-1", "unknown"}, id="a key twice, and one that nobody has"),
        pytest.param((), set(), id="no pod"),
        pytest.param(lambda key: key == "web", {"web-0", "unknown"}, id="a function"),
        pytest.param(lambda key: key.nothing, {"web-0", "db-1", "unknown"}, id="a function that raises"),
        pytest.param(lambda key: False, {"unknown"}, id="a function that is never true"),
        pytest.param(None, {"web-0", "db-1", "unknown"}, id="any pod, one of two that are alike"),
    ],
)
def test_hint_is_called_for_the_pods_with_the_keys(keys: Concerned, want: set[str]) -> None:
    narrows = Narrows(keys)
    bench = narrows.bench()
    parked(bench)
    bench.queue.move_all(GONE_POD)
    assert (set(narrows.asked), len(narrows.asked), narrows.called) == (want, len(want), 1)


def test_pod_that_the_event_is_about_is_judged() -> None:
    narrows = Narrows(())
    bench = narrows.bench()
    parked(bench)
    own = bench.pods.by_key["default/db-1"]
    bench.queue.move_all(QueueEvent(ASSIGNED_POD, ActionType.DELETE, old=own))
    assert narrows.asked == ["db-1"]


def test_all_hints_are_called_for_a_record_of_all() -> None:
    narrows = Narrows(())
    bench = narrows.bench(every_plugin=True)
    parked(bench)
    bench.queue.move_all(GONE_POD)
    assert (len(narrows.asked), narrows.called) == (3, 0)


def test_registration_without_a_hint_helps_whatever_the_plugin_says() -> None:
    narrows = Narrows(())
    bench = narrows.bench(Registration(resource="Pod", action=int(ActionType.DELETE)))
    parked(bench)
    bench.queue.move_all(GONE_POD)
    assert len(bench.backing_off) == 4


def test_registration_about_the_scope_is_not_narrowed() -> None:
    narrows = Narrows(())
    bench = narrows.bench(ANY_POD, LEAVES_SCOPE)
    parked(bench)
    bench.queue.move_all(QueueEvent(TARGET_POD, ActionType.UPDATE_POD_LABEL, a_pod("x"), a_pod("x")))
    assert narrows.called == 0


def test_error_of_the_plugin_counts_as_any_pod() -> None:
    narrows = Narrows(())
    narrows.keys = [[]]  # type: ignore[list-item]  # the mistake: a list is no key
    bench = narrows.bench()
    parked(bench)
    bench.queue.move_all(GONE_POD)
    assert len(narrows.asked) == 3
    assert bench.notes.raised == [("Fit", "PreQueueingHint")]


def test_pod_without_readable_keys_is_judged_for_every_event_that_helps_one() -> None:
    narrows = Narrows(["db"])
    bench = narrows.bench()
    bench.parked("broken", "Fit", labels={"app": []})
    bench.queue.move_all(GONE_POD)
    assert narrows.asked == ["broken"]


def test_new_version_of_a_pod_waits_for_its_new_keys() -> None:
    narrows = Narrows(["db"])
    bench = narrows.bench()
    info = bench.parked("pod", "Fit", labels={"app": "web"})
    new = bench.pods.put(a_pod("pod", labels={"app": "db"}, resource_version="2"))
    bench.queue.update(info.pod, new, [QueueEvent(TARGET_POD, ActionType.UPDATE_POD_LABEL, info.pod, new)])
    narrows.asked.clear()
    bench.queue.move_all(GONE_POD)
    assert narrows.asked == ["pod"]


def test_pod_that_leaves_the_pool_is_no_longer_found() -> None:
    narrows = Narrows(["db"])
    bench = narrows.bench()
    info = bench.parked("pod", "Fit", labels={"app": "db"})
    bench.queue.delete(info.pod)
    bench.queue.move_all(GONE_POD)
    assert narrows.asked == []


CLAIM = "resource.k8s.io/ResourceClaim"


@pytest.mark.parametrize(
    ("plugin", "resource", "counts", "want"),
    [
        pytest.param("DynamicResources", CLAIM, True, 1, id="as in 1.38"),
        pytest.param("DynamicResources", CLAIM, False, 0, id="without the gate"),
        pytest.param("DynamicResources", "Pod", True, 0, id="an event that kube-scheduler does not narrow"),
        pytest.param("NodeAffinity", "Node", True, 0, id="a plugin that does not narrow there"),
        pytest.param("Own", "Node", True, 1, id="a plugin of somebody else"),
    ],
)
def test_narrowed_events_are_counted_as_kube_scheduler_does(
    plugin: str, resource: str, counts: bool, want: int
) -> None:
    metrics = SchedulerMetrics()
    told = QueueMetrics(metrics, QueueObserver(), SortReports(lambda *_: None), counts_narrowing=counts)
    for to_all in (False, True):
        told.hint_narrowed(plugin, QueueEvent(resource, ActionType.UPDATE), to_all=to_all)
    found = dict(metrics.pre_hints.items())
    assert found == ({(plugin, "narrowed"): 1, (plugin, "all_pods"): 1} if want else {})
