"""Options of a host beside its configuration. Made by the CLI and by tests; read by `parts`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from berth_sdk.kube_object import ObjectRef

from berth_host.explain.diagnosis import Diagnosis
from berth_host.metrics.scheduler_metrics import SchedulerMetrics
from berth_host.model.clock import Clock, RealClock
from berth_host.queue.seams import QueueObserver
from berth_host.scheduler.chooser import Chooser, SeededChooser

MAX_IN_POOL_S: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOptions:
    """Options that are no configuration. `plugins`: classes of a custom scheduler, by name.

    `max_in_pool_s`: how long a pod may sit in the unschedulable pool before it is tried without a reason.
    `queue_observer` hears of all that happens in the queue; with `ask_every_plugin` of all hints, too.
    `keep_answers` False: every plugin is asked about every pod and node.
    `on_attempt` is called at the end of every attempt. `metrics`: what is counted; of one process, as are the
    sessions and the Lease that it also tells of, so hosts that follow each other share it. `own_pod`: the one
    that the host runs in, for events about its plugins; `own_address`: where other machines reach it.
    """

    clock: Clock = field(default_factory=RealClock)
    chooser: Chooser = field(default_factory=SeededChooser)
    plugins: Mapping[str, type] = field(default_factory=dict)
    max_in_pool_s: float = MAX_IN_POOL_S
    queue_observer: QueueObserver = field(default_factory=QueueObserver)
    ask_every_plugin: bool = False
    keep_answers: bool = True
    diagnoses_kept: int = 4096
    on_attempt: Callable[[Diagnosis], None] = lambda _: None
    metrics: SchedulerMetrics = field(default_factory=SchedulerMetrics)
    own_pod: ObjectRef | None = None
    own_address: str = ""
