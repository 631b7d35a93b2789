"""`CodeLog`: logs the status codes that the host reads as ERROR, each once.

A code is unknown, as one of a later contract, or has no meaning where the plugin answered it. `rpc.validate`
and the readers of replies write to the log. Source: the contract's PluginStatus, CODE_ERROR.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from berth_host.log import get_logger

_LOG = get_logger()
MAX_TOLD: Final = 64
"""The most codes of one plugin that are logged: a faulty plugin may answer another number each time."""


class CodeLog:
    """The codes of one attachment, or of one in-process plugin, that are read as ERROR."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()
        self._counts: Counter[str] = Counter()

    def unknown(self, plugin: str, rpc: str, number: int) -> str:
        """Log a number that is no known code; return the sentence for the pod's owner."""
        return self._tell(plugin, rpc, str(number), f"answered the unknown status code {number}")

    def misplaced(self, plugin: str, rpc: str, code: str) -> str:
        """Log a code that has no meaning in an answer to `rpc`; return the sentence for the pod's owner."""
        return self._tell(plugin, rpc, code, f"answered {code}, which has no meaning at {rpc}")

    def _tell(self, plugin: str, rpc: str, code: str, what: str) -> str:
        text = f'plugin "{plugin}" {what}'
        if (plugin, code) not in self._told and self._counts[plugin] < MAX_TOLD:
            self._told.add((plugin, code))
            self._counts[plugin] += 1
            _LOG.warning(
                "plugin.code_read_as_error",
                plugin=plugin,
                call=rpc,
                code=code,
                error=f"{text}; it is read as ERROR",
            )
        return text
