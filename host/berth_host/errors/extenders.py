"""Errors of calls to HTTP extenders. Raised and handled by `extenders`."""

from __future__ import annotations

from berth_host.errors import HostError


class ExtenderError(HostError):
    """A call to an extender gave no usable answer. The text is kube-scheduler's.

    `outcome`: the label `kind` of the metric `berth_plugin_failures_total`.
    """

    def __init__(self, text: str, outcome: str) -> None:
        self.outcome = outcome
        super().__init__(text)


class ExtenderOutcomeUnknownError(ExtenderError):
    """The extender may have acted: a pod that it was to bind may be bound."""
