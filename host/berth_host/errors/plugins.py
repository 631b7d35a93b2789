"""Errors between the host and a plugin, one class per way of handling.

    PluginError                  a call that gave no usable answer; the point's policy applies
    ├── PluginAbsentError        no instance is attached: the call was not made
    │   └── PluginNotAskedError  the profile enables it at a point that it does not have
    ├── CircuitOpenError         the instance failed lately: the call was not made
    ├── PluginUnavailableError   the instance is gone, or went while it was asked
    ├── PluginTimeoutError       no answer before the deadline: the outcome is unknown
    │   └── BudgetSpentError     the cycle has no time for served plugins left: the call was not made
    ├── PluginOverloadedError    the instance refused for want of room
    ├── PluginRaisedError        the plugin's own code broke
    │   ├── PluginExceptionError an exception, with its place in the plugin's source
    │   └── PluginStaleError     its copy of the state does not fit the call: synchronise, ask again
    ├── PluginProtocolError      the answer breaks the contract: a violation, counted as such
    └── HostFaultError           the plugin says that the host broke the contract
    CycleRestartError            not a failure of the point: the cycle has to begin again

Raised by the transports and by `rpc.validate`; all but CycleRestartError end in `PluginRelay.ask`.

    DuplicatePluginError         two plugins have one name
    PluginLoadError              a plugin cannot be loaded, or does not accept its arguments

Raised before the host schedules, or when it takes another configuration over.
"""

from __future__ import annotations

from typing import ClassVar

from berth_host.errors import HostError


class PluginError(HostError):
    """A call that gave no usable answer. Attributes: plugin, call (`Filter`), detail.

    `outcome`: `kind` in the metric `berth_plugin_failures_total`. `outcome_unknown`: it may have acted.
    """

    outcome: ClassVar[str] = "error"
    outcome_unknown: ClassVar[bool] = False

    def __init__(self, plugin: str, call: str, detail: str) -> None:
        self.plugin = plugin
        self.call = call
        self.detail = detail
        super().__init__(self.text)

    @property
    def text(self) -> str:
        """The sentence shown to the pod's owner."""
        return f'plugin "{self.plugin}" {self.detail} at {self.call}'

    @property
    def said_of_it(self) -> str:
        """The failure as the rest of a sentence that begins with the plugin's name."""
        return self.detail


class PluginAbsentError(PluginError):
    """No instance is attached; `detail` says since when or why."""

    outcome = "absent"

    @property
    def text(self) -> str:
        """Without the call: nothing was asked."""
        return f'plugin "{self.plugin}" {self.detail}'


class PluginNotAskedError(PluginAbsentError):
    """Not a failure: nothing was due. The configuration's warning says so once."""


class CircuitOpenError(PluginError):
    """The call was not made: the circuit breaker of the plugin at this point is open."""

    outcome = "circuit_open"

    def __init__(self, plugin: str, call: str, last_failure: str) -> None:
        super().__init__(plugin, call, f"is not asked until it is well again (it {last_failure})")


class PluginUnavailableError(PluginError):
    """The connection is lost or was refused; whether the plugin acted is not known."""

    outcome = "unavailable"
    outcome_unknown = True


class PluginTimeoutError(PluginError):
    """No answer before the deadline. Attributes: deadline_s; of_budget: the deadline was the rest of the
    cycle's time; others_spent: so little of it that the plugin is not to blame.
    """

    outcome = "timeout"
    outcome_unknown = True

    def __init__(
        self,
        plugin: str,
        call: str,
        deadline_s: float,
        *,
        of_budget: bool = False,
        others_spent: bool = False,
    ) -> None:
        self.deadline_s = deadline_s
        self.of_budget = of_budget
        self.others_spent = others_spent
        why = ", all that was left of the cycle's budget," if of_budget else ""
        super().__init__(plugin, call, f"did not answer within {1000 * max(deadline_s, 0.0):.0f} ms{why}")


class BudgetSpentError(PluginTimeoutError):
    """The call was not made: the cycle has no time for served plugins left. Attribute: budget_s."""

    outcome_unknown = False

    def __init__(self, plugin: str, call: str, budget_s: float) -> None:
        self.deadline_s = 0.0
        self.of_budget = self.others_spent = True
        self.budget_s = budget_s
        spent = f"was not asked, the cycle's {budget_s:g} s for served plugins are spent,"
        PluginError.__init__(self, plugin, call, spent)


class PluginOverloadedError(PluginError):
    """RESOURCE_EXHAUSTED: too many calls, or a message over the agreed size."""

    outcome = "overloaded"


class PluginRaisedError(PluginError):
    """An exception in process, INTERNAL over gRPC."""

    outcome = "raised"
    outcome_unknown = True


class PluginExceptionError(PluginRaisedError):
    """An exception of the plugin's. `detail`: type, message, file, line and source, as `raised_text` says."""

    @property
    def said_of_it(self) -> str:
        """With a verb, which `detail` lacks."""
        return f"failed: {self.detail}"

    @property
    def text(self) -> str:
        """With the call first: the place of the exception comes last."""
        return f'plugin "{self.plugin}" failed at {self.call}: {self.detail}'


class PluginStaleError(PluginRaisedError):
    """FAILED_PRECONDITION: the same outside of cycles as NEED_STATE inside."""


class PluginProtocolError(PluginError):
    """A violation of the contract; `detail` says which part of the answer."""

    outcome = "violation"
    outcome_unknown = True


class HostFaultError(PluginError):
    """INVALID_ARGUMENT: the request itself was at fault; Fail applies under every policy."""

    outcome = "host_fault"


class CycleRestartError(HostError):
    """The cycle has to start again, without backoff: the state of its earlier calls is lost.

    Raised before Reserve, at most once per attempt. Attributes: plugin, reason.
    """

    def __init__(self, plugin: str, reason: str) -> None:
        self.plugin = plugin
        self.reason = reason
        super().__init__(f'plugin "{plugin}" needs the cycle to start again: {reason}')


class DuplicatePluginError(HostError):
    """Two plugins have the same name. Attribute: name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"a plugin named {name} already exists: give yours another name,"
            " or name its class in BerthConfiguration (inProcess: module:Class) to replace it"
        )


class PluginLoadError(HostError):
    """A plugin cannot be loaded, or does not accept its arguments. Attributes: name, where (its class, file
    or attachment).
    """

    def __init__(self, name: str, where: str, problem: object) -> None:
        self.name = name
        self.where = where
        super().__init__(f"plugin {name} ({where}) cannot be loaded: {problem}")
