"""`Undoing`: takes back what plugins reserved for a pod. Shared by binding cycles, groups and what-ifs."""

from __future__ import annotations

import asyncio

from berth_sdk.status import Status

from berth_host.errors.state import InvariantError
from berth_host.explain.fit_error import fit_error_message
from berth_host.log import get_logger
from berth_host.scheduler.attempt import Attempt, Failed

log = get_logger()


class Undoing:
    """Turns rejections of a reserved pod into failures, and gives its reservations back."""

    def rejected(self, attempt: Attempt, status: Status) -> Failed:
        """Return the failure for a status of Reserve, Permit or WaitOnPermit: a FitError for the node, or an
        error.
        """
        if not status.is_rejected:
            return Failed(status, status.message)
        attempt.diagnosis.record_at_node(status, attempt.node_name)
        reasons = dict.fromkeys(status.reasons, 1)
        message = fit_error_message(1, reasons)
        return Failed(Status(status.code, (message,)), message, fit_error=True)

    async def unreserve(self, attempt: Attempt, reason: str) -> None:
        """Run Unreserve. No error of a plugin leaves this method, so that the host's own undo always
        follows.
        """
        attempt.framework.waiting_pods.discard(attempt.pod.uid)
        try:
            await attempt.framework.run_unreserve(attempt, attempt.node_name, reason)
        except InvariantError:
            raise
        except Exception as err:
            log.error("task.failed", pod=attempt.pod.key, exc_info=err)
        except asyncio.CancelledError:
            if is_cancelled_from_outside() and not attempt.aborted:
                raise


def is_cancelled_from_outside() -> bool:
    """Return True if someone else cancels the current task."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
