"""The parts of a running host that its answers are made from."""

from __future__ import annotations

from typing import Protocol

from berth_host.cache.cache import Cache
from berth_host.cache.objects import ObjectStores
from berth_host.explain.diagnosis import Diagnoses
from berth_host.framework.waiting_pods import WaitingPods
from berth_host.model.clock import Clock
from berth_host.queue.scheduling_queue import SchedulingQueue
from berth_host.scheduler.binding_cycle import BindingCycle
from berth_host.scheduler.evictions import Evictions
from berth_host.scheduler.schedule_one import Scheduler


class AnsweringHost(Protocol):
    """The places where a pod can be, and the records of its attempts."""

    clock: Clock
    objects: ObjectStores
    cache: Cache
    queue: SchedulingQueue
    scheduler: Scheduler
    binding: BindingCycle
    waiting_pods: WaitingPods
    evictions: Evictions
    diagnoses: Diagnoses
