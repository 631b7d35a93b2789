"""The parts that are made of the plugins, for what the plugins themselves are given.

A plugin gets its handle before the queue and the cycles exist, as these are made of the plugins. So what is
behind the handles and the attachments holds `LateParts`, and reads it when somebody asks. Filled by `parts`.
"""

from __future__ import annotations

from berth_host.app.clients import Clients
from berth_host.queue.scheduling_queue import SchedulingQueue
from berth_host.scheduler.binding_cycle import BindingCycle
from berth_host.scheduler.schedule_one import Scheduler


class LateParts:
    """made -each part is set once-> whole. A part that is not there yet is an AttributeError: nobody may ask
    before the host starts.
    """

    clients: Clients
    queue: SchedulingQueue
    scheduler: Scheduler
    binding: BindingCycle
