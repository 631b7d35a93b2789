"""The composition root: builds every part of the host and hands each part the others that it needs."""

from berth_host.app.alone import FrameworkAlone
from berth_host.app.host import Host
from berth_host.app.host_options import HostOptions
from berth_host.questions.simulating import NodeTemplate

__all__ = [
    "FrameworkAlone",
    "Host",
    "HostOptions",
    "NodeTemplate",
]
