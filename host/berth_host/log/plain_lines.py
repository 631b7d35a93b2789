"""`plain_lines`: shows output of plugins' processes and tracebacks of plugins as lines with the plugin's
name.

    GpuShare: reading /etc/prices
    GpuShare: ... 1234 lines left out

Called by `configure` for logs that people read.
"""

from __future__ import annotations

from typing import Final

import structlog

_LOGGED: Final = "plugin.logged"
_DROPPED: Final = "plugin.log_dropped"
_TRACED: Final = ("plugin.call_failed", "plugin.not_loaded")
"""Events of in-process plugins, whose tracebacks are shown like those of served plugins."""


def plain_lines(renderer: structlog.typing.Processor) -> structlog.typing.Processor:
    """Return a renderer that shows plugins' output and tracebacks as plain lines, all else by `renderer`."""

    def render(
        logger: structlog.typing.WrappedLogger, method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.ProcessorReturnValue:
        plugin = event.get("plugin", "")
        if event["event"] == _LOGGED:
            return f"{plugin}: {event['line']}"
        if event["event"] == _DROPPED:
            return f"{plugin}: ... {event['lines']} lines left out"
        traceback = event.pop("exception", "") if event["event"] in _TRACED else ""
        rendered = str(renderer(logger, method, event))
        return "\n".join([rendered, *(f"{plugin}: {line}" for line in traceback.splitlines())])

    return render
