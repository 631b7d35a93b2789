"""Errors of calls to plugins and of loading plugins, one class per way of handling.

    PluginError                  a call gave no usable answer; the failure policy applies
    ├── PluginAbsentError        no instance is attached: the call was not made
    │   └── PluginNotAskedError  the profile enables the plugin at a point that it does not implement
    ├── CircuitOpenError         the circuit breaker is open: the call was not made
    ├── PluginUnavailableError   the instance was lost before or during the call
    ├── PluginTimeoutError       no answer before the deadline: the outcome is unknown
    │   └── BudgetSpentError     the cycle has no time for served plugins left: the call was not made
    ├── PluginOverloadedError    the instance refused the call, because it has too many
    ├── PluginRaisedError        the plugin's code failed
    │   ├── PluginExceptionError an exception, with its place in the plugin's source
    │   └── PluginStaleError     the plugin's copy of the state is not that of the call: synchronise, retry
    ├── PluginProtocolError      the answer violates the contract, and counts as a violation
    └── HostFaultError           the plugin reports that the host violated the contract
        └── RequestTooLargeError the request is larger than agreed, and was not sent
    CycleRestartError            the cycle must begin again; the failure policy does not apply

Raised by the transports and by `rpc.validate`. `PluginRelay.ask` handles all except CycleRestartError.

    DuplicatePluginError         two plugins have one name
    PluginLoadError              a plugin cannot be loaded, or refuses its arguments

Raised before the host schedules, or when it reloads its configuration.
"""

from __future__ import annotations

from typing import ClassVar

from berth_host.errors import HostError


class PluginError(HostError):
    """A call without a usable answer. Attributes: plugin, call (`Filter`), detail.

    `outcome`: the label `kind` of the metric `berth_plugin_failures_total`. `outcome_unknown`: True if the
    plugin may have acted.
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
        """The sentence for the pod's owner."""
        return f'plugin "{self.plugin}" {self.detail} at {self.call}'

    @property
    def said_of_it(self) -> str:
        """The failure, as the rest of a sentence that begins with the plugin's name."""
        return self.detail


class PluginAbsentError(PluginError):
    """No instance is attached; `detail` says why."""

    outcome = "absent"

    @property
    def text(self) -> str:
        """The sentence without the call, because no call was made."""
        return f'plugin "{self.plugin}" {self.detail}'


class PluginNotAskedError(PluginAbsentError):
    """The plugin does not implement this point. Not a failure: a warning of the configuration reports it."""


class CircuitOpenError(PluginError):
    """The call was not made, because the circuit breaker of the plugin at this extension point is open."""

    outcome = "circuit_open"

    def __init__(self, plugin: str, call: str, last_failure: str) -> None:
        super().__init__(plugin, call, f"is not asked until it is well again (it {last_failure})")


class PluginUnavailableError(PluginError):
    """The connection was lost or refused; the plugin may have acted."""

    outcome = "unavailable"
    outcome_unknown = True


class PluginTimeoutError(PluginError):
    """No answer before the deadline.

    Attributes: deadline_s; of_budget (True: the deadline was the rest of the cycle's budget); others_spent
    (True: the rest was so short that the plugin is not to blame).
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
    """RESOURCE_EXHAUSTED: too many calls, or a message above the agreed size."""

    outcome = "overloaded"


class PluginRaisedError(PluginError):
    """The plugin's code failed: an exception in process, INTERNAL over gRPC."""

    outcome = "raised"
    outcome_unknown = True


class PluginExceptionError(PluginRaisedError):
    """An exception in the plugin's code. `detail`: type, message, file, line and source (`raised_text`)."""

    @property
    def said_of_it(self) -> str:
        """The failure with a verb, which `detail` lacks."""
        return f"failed: {self.detail}"

    @property
    def text(self) -> str:
        """The sentence with the call first and the place of the exception last."""
        return f'plugin "{self.plugin}" failed at {self.call}: {self.detail}'


class PluginStaleError(PluginRaisedError):
    """FAILED_PRECONDITION: means outside of cycles what MISSING_STATE means inside."""


class PluginProtocolError(PluginError):
    """A violation of the contract; `detail` names the part of the answer."""

    outcome = "violation"
    outcome_unknown = True


class HostFaultError(PluginError):
    """INVALID_ARGUMENT: the request was wrong; Fail applies, whatever the policy."""

    outcome = "host_fault"


class RequestTooLargeError(HostFaultError):
    """The request was not sent, because it is larger than the agreed size."""


class CycleRestartError(HostError):
    """The cycle must begin again, without backoff, because the state of its earlier calls was lost.

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
    """A plugin cannot be loaded, or refuses its arguments. Attributes: name, where (its class, file or
    attachment).
    """

    def __init__(self, name: str, where: str, problem: object) -> None:
        self.name = name
        self.where = where
        super().__init__(f"plugin {name} ({where}) cannot be loaded: {problem}")
