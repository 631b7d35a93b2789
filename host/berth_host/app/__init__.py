"""The composition root: builds every part of the host and hands each part the others that it needs."""

from berth_host.app.alone import FrameworkAlone
from berth_host.app.host import Host
from berth_host.app.host_options import HostOptions
from berth_host.questions.drain import Drain
from berth_host.questions.fit import Fit, Refit
from berth_host.questions.group_trials import TryGroup
from berth_host.questions.simulating import NodeTemplate, Simulate
from berth_host.questions.what_ifs import WhatIf

__all__ = [
    "Drain",
    "Fit",
    "FrameworkAlone",
    "Host",
    "HostOptions",
    "NodeTemplate",
    "Refit",
    "Simulate",
    "TryGroup",
    "WhatIf",
]
