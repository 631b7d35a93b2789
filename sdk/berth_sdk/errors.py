"""The SDK's errors, one tree; a leaf module.

BerthError
├── QuantityError          a quantity that Kubernetes would refuse
├── ObjectError            an object that does not have the shape of its kind
├── SelectorError          a label or node selector that cannot be read
├── PluginDefinitionError  a plugin class that cannot be served as it is
├── PluginArgsError        arguments that the plugin refuses
├── PluginAnswerError      a plugin's method returned a value that its extension point does not allow
├── ScoreRefusedError      a plugin returned a failed Status in place of scores
├── UndeclaredError        a plugin read data that it did not declare in `needs`
└── HandleError            a call to the host that failed
    └── StaleStateError    a snapshot version that is no longer the current one
"""

from __future__ import annotations

from typing import Final

MAX_SHOWN: Final = 80
"""The most characters of a value that a message quotes."""


def shown(value: object) -> str:
    """Return a value for a message. A long one, which any user may have written, is cut; its size is said."""
    if isinstance(value, str | bytes) and len(value) > MAX_SHOWN:
        return f"{value[:MAX_SHOWN]!r}... ({len(value)} characters)"
    if isinstance(value, dict | list):
        kind = "map" if isinstance(value, dict) else "list"
        return f"a {kind} of {len(value)}"
    if isinstance(value, int) and value.bit_length() > 8 * MAX_SHOWN:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 2 * MAX_SHOWN else f"{text[:MAX_SHOWN]}... ({len(text)} characters)"


class BerthError(Exception):
    """Root of all errors that the SDK raises on purpose."""


class QuantityError(BerthError, ValueError):
    """A quantity that Kubernetes would refuse. Attribute: value, as it was written."""

    def __init__(self, value: object) -> None:
        self.value = value
        super().__init__(
            f"{shown(value)} is not a quantity: write digits with an optional suffix,"
            ' such as "500m", "2" or "1.5Gi"'
        )


class ObjectError(BerthError, ValueError):
    """An object without the shape of its kind. Attributes: path (dotted), problem."""

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path}: {problem}" if path else problem)


class SelectorError(BerthError, ValueError):
    """A label or node selector that cannot be read."""


class PluginDefinitionError(BerthError, TypeError):
    """A plugin class that cannot be served as it is written. The text says what to change."""


class PluginArgsError(BerthError, ValueError):
    """Arguments (pluginConfig[].args) that the plugin refuses. The text names the field."""


class PluginAnswerError(BerthError, TypeError):
    """A plugin's method returned a value that its extension point does not allow, or of the wrong length."""


class ScoreRefusedError(BerthError):
    """A plugin returned a failed Status in place of scores. Attribute: reasons, shown to the pod's owner."""

    def __init__(self, reasons: tuple[str, ...]) -> None:
        self.reasons = reasons
        super().__init__(", ".join(reasons))


class UndeclaredError(BerthError):
    """A plugin read data that it did not declare.

    Attributes: part; need (as it is written in `needs`); plugin (empty: not known where the error was
    raised); cure (what to do; empty: add the need to `needs`).
    """

    def __init__(self, part: str, need: str, plugin: str = "", *, cure: str = "") -> None:
        self.part = part
        self.need = need
        self.plugin = plugin
        self.cure = cure
        super().__init__(part, need)

    def __str__(self) -> str:
        who = self.plugin or "this plugin"
        cure = self.cure or f"add {self.need} to `needs`"
        return f"{who} reads {self.part}, which it did not declare: {cure}"


class HandleError(BerthError):
    """A call to the host failed: the host was unreachable, or refused the call."""


class NoWayBackError(HandleError):
    """No host answers calls: the plugin was granted no way back, as in `FrameworkAlone`, or lost it."""


class StaleStateError(HandleError):
    """The requested snapshot version is not the current one. Attribute: current, `epoch/generation`."""

    def __init__(self, current: str) -> None:
        self.current = current
        super().__init__(f"the host's snapshot is at {current} now; read it again without a version")
