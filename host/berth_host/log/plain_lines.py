"""`plain_lines`: what a plugin's process writes, as its own lines after its name, beside the host's events.

    GpuShare: reading /etc/prices
    GpuShare: ... 1234 lines left out

Called by `configure` for logs that people read.
"""

from __future__ import annotations

from typing import Final

import structlog

_LOGGED: Final = "plugin.logged"
_DROPPED: Final = "plugin.log_dropped"


def plain_lines(renderer: structlog.typing.Processor) -> structlog.typing.Processor:
    """`renderer`, but for the two events of a child's output."""

    def render(
        logger: structlog.typing.WrappedLogger, method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.ProcessorReturnValue:
        if event["event"] == _LOGGED:
            return f"{event['plugin']}: {event['line']}"
        if event["event"] == _DROPPED:
            return f"{event['plugin']}: ... {event['lines']} lines left out"
        return renderer(logger, method, event)

    return render
