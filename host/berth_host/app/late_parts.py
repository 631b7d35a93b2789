"""The parts that are made of the plugins, for the parts that the plugins are given.

A plugin gets its handle before the queue and the cycles exist, as these are made of the plugins. So the parts
behind handles and attachments hold `LateParts`, and read it when a question comes. Filled by `parts`.
"""

from __future__ import annotations

from typing import NoReturn

from berth_sdk.errors import HandleError

from berth_host.plugins.clients import Clients
from berth_host.queue.scheduling_queue import SchedulingQueue
from berth_host.scheduler.binding_cycle import BindingCycle
from berth_host.scheduler.schedule_one import Scheduler


class LateParts:
    """made -each part is set once-> whole. Reading a part that is not there yet raises HandleError: a plugin
    asked in its `__init__`.
    """

    clients: Clients
    queue: SchedulingQueue
    scheduler: Scheduler
    binding: BindingCycle

    def __getattr__(self, name: str) -> NoReturn:
        raise HandleError(
            f"the host is not ready (no {name} yet): call it from a method of a point, not in __init__"
        )
