"""Structured logging of the host, and its configuration.

Logs are JSON lines unless standard error is a terminal. An event's name is constant (`noun.past_verb`) and
its data are keys. `EVENTS` lists every name; a test compares the list with the code.
"""

from __future__ import annotations

import logging
import sys
from typing import Final

if "rich" not in sys.modules:
    # structlog imports rich, if it is installed, for a kind of traceback that berth does not write. Importing
    # rich takes as long as importing gRPC.
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog

    del sys.modules["rich"]
else:
    import structlog

from berth_host.log.hidden import without_hidden
from berth_host.log.plain_lines import plain_lines

EVENTS: Final = frozenset(
    {
        "attachment.changed",
        "attachment.drain_unheard",
        "attachment.drifted",
        "attachment.failed",
        "attachment.not_reconciled",
        "attachment.refusal_unheard",
        "attachment.not_renewed",
        "attachment.sync_failed",
        "audit.attached",
        "audit.call_refused",
        "audit.detached",
        "audit.refused",
        "cache.compared",
        "cache.event_refused",
        "cache.mismatched",
        "cache.node_dumped",
        "claim.not_settled",
        "claim.stays",
        "claim.user_stays",
        "client.credentials_failed",
        "cluster.behind",
        "cluster.caught_up",
        "cluster.contacted",
        "cluster.unreachable",
        "configuration.loaded",
        "bound_ends.behind",
        "bound_ends.dropped",
        "bound_ends.not_read",
        "configuration.refused",
        "connection.closed",
        "cycle.restarted",
        "endpoints.certificate_refused",
        "endpoints.certificate_renewed",
        "endpoints.check_failed",
        "endpoints.failed",
        "endpoints.malformed",
        "endpoints.review_failed",
        "endpoints.started",
        "endpoints.trust_unknown",
        "event.dropped",
        "event.written_before",
        "extender.failed",
        "extender.recovered",
        "framed.unreachable",
        "group.bad_annotation",
        "group.hold_ended",
        "group.holds_room",
        "group.status_refused",
        "group_repair.evicted",
        "group_repair.evicts",
        "group_repair.failed",
        "group_repair.lost",
        "group_repair.not_listed",
        "host.drained",
        "host.failed",
        "host.reloaded",
        "host.started",
        "host.stopped",
        "leader.changed",
        "lease.event_dropped",
        "lease.not_released",
        "lease.not_updated",
        "lease.read_again",
        "lease.released",
        "outbox.delayed",
        "outbox.dropped",
        "outbox.overdue",
        "outbox.superseded",
        "outbox.unheard",
        "plugin.call_failed",
        "plugin.call_recovered",
        "plugin.cannot_sign",
        "plugin.cannot_tell_sensitivity",
        "plugin.code_read_as_error",
        "plugin.log_dropped",
        "plugin.logged",
        "plugin.lost",
        "plugin.not_closed",
        "plugin.not_loaded",
        "plugin.overran",
        "folder.readable",
        "folder.unreadable",
        "folder.unwatched",
        "handle.certificate_kept",
        "handle.certificate_replaced",
        "handle.served_over_tls",
        "plugin.reconciled",
        "plugin.scope_changed",
        "plugin.swapped",
        "plugin.untried",
        "plugin.unusable",
        "plugin.warned",
        "pod.aborted",
        "pod.bind_unknown",
        "pod.bound",
        "pod.bound_by_others",
        "pod.bound_elsewhere",
        "pod.dropped",
        "pod.failed",
        "pod.node_filled",
        "pod.nominated_by_plugin",
        "pod.read_back_failed",
        "pod.status_refused",
        "pod.unschedulable",
        "pod_group.not_written",
        "post_filter.change_failed",
        "preemption.failed",
        "preemption.resumed",
        "process.stopped",
        "query.started",
        "queue.dumped",
        "queue.pod_in_flight_twice",
        "queue.pod_queued_twice",
        "queue.sorted_by_fallback",
        "task.failed",
        "tracing.spans_dropped",
        "victim.evicted",
        "volume.not_bound",
        "watch.expired",
        "watch.failed",
        "watch.late_reading_failed",
        "watch.object_is_deep",
        "watch.object_refused",
        "watch.recovered",
    }
)


EVERY_ATTEMPT: Final = "DEBUG"
"""The level at which every attempt is logged."""
VERBOSE: Final = 2
"""The -v from which on every attempt is logged, as in kube-scheduler."""
_LOGGERS: Final[list[structlog.stdlib.BoundLogger]] = []
CACHE_LOGGERS = True
"""False: loggers read the configuration at every call, so that tests can capture logs."""


def get_logger() -> structlog.stdlib.BoundLogger:
    """Return a logger of the host. Bind the values of a unit of work once, with contextvars."""
    logger: structlog.stdlib.BoundLogger = structlog.get_logger("berth")
    _LOGGERS.append(logger)
    return logger


def level_of(verbosity: int) -> str:
    """Return the level for a value of -v."""
    return EVERY_ATTEMPT if verbosity >= VERBOSE else "INFO"


def change_level(level: str) -> None:
    """Change the level, also of loggers that are in use."""
    structlog.configure(**structlog.get_config() | {"wrapper_class": _filtering(level)})
    for logger in _LOGGERS:
        # structlog caches the configuration of a logger in use under this name.
        vars(logger).pop("bind", None)


def _filtering(level: str) -> type[structlog.typing.FilteringBoundLogger]:
    return structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level])


def _without_secrets(renderer: structlog.typing.Processor) -> structlog.typing.Processor:
    return lambda logger, method, event: without_hidden(str(renderer(logger, method, event)))


def configure(level: str = "INFO", output: str = "auto", *, for_people: bool = False) -> None:
    """Set the level (a name of `logging`) and the format: `json`, `text`, or `auto` (text on a terminal).

    With `text`, or with `for_people` in any format, the output of a plugin's process is shown as plain lines.
    """
    text = output == "text" or (output == "auto" and sys.stderr.isatty())
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        if text
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _without_secrets(plain_lines(renderer) if text or for_people else renderer),
        ],
        wrapper_class=_filtering(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=CACHE_LOGGERS,
    )
