"""`HostOptions`: the options of a host that are not part of its configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from berth_sdk.kube_object import ObjectRef

from berth_host.app.asking import Admission
from berth_host.cycle.chooser import Chooser, SeededChooser
from berth_host.cycle.observer import AttemptObserver
from berth_host.explain.diagnosis import Diagnosis
from berth_host.metrics.scheduler_metrics import SchedulerMetrics
from berth_host.model.clock import Clock, RealClock
from berth_host.queue.interfaces import QueueObserver


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOptions:
    """The options of a host that are not part of its configuration.

    `plugins`: the classes of a custom scheduler, by plugin name. `max_in_pool_s`: seconds after which an
    unschedulable pod is tried again without an event. `queue_observer`: gets every report of the queue;
    `ask_every_plugin`: ask all hints, for an observer that records them. `keep_answers` False: every plugin
    is called for every pod and node. `diagnoses_kept`: the number of pods whose attempts are kept.
    `on_attempt`: called at the end of every attempt. `observers`: see every attempt, after all others.
    `metrics`: the registry of the process, which hosts that
    follow each other share. `own_pod`: the host's own pod, for Events about its plugins; None if unknown.
    `own_address`: where other machines reach the host. `binds_for_extenders`: see `BindingCycle`.
    `admission`: admits the manifests of questions; None: the host refuses these questions. `way_back` False:
    served plugins cannot call the host, which then opens no socket for them.
    """

    clock: Clock = field(default_factory=RealClock)
    chooser: Chooser = field(default_factory=SeededChooser)
    plugins: Mapping[str, type] = field(default_factory=dict)
    max_in_pool_s: float = 300.0
    queue_observer: QueueObserver = field(default_factory=QueueObserver)
    ask_every_plugin: bool = False
    keep_answers: bool = True
    diagnoses_kept: int = 4096
    on_attempt: Callable[[Diagnosis], None] | None = None
    observers: Sequence[AttemptObserver] = ()
    metrics: SchedulerMetrics = field(default_factory=SchedulerMetrics)
    own_pod: ObjectRef | None = None
    own_address: str = ""
    binds_for_extenders: bool = False
    admission: Admission | None = None
    way_back: bool = True
