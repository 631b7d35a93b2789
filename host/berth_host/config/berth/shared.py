"""What plugins at one endpoint have in common: they are one process, which is reached in one way. So have
those of the socket folder: any of them may be at any of its sockets.

Called by `checks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from berth_host.config.berth.types_v1alpha1 import PluginV1Alpha1
from berth_host.config.errors import Finding, invalid

_SHARED: Final = (
    ("transport", "transport", "is asked in one way"),
    ("credentialFile", "credential_file", "expects one credential"),
    ("tls", "tls", "has one certificate, and knows its host by one"),
    ("allowedUIDs", "allowed_uids", "runs for one user"),
)
"""Field, attribute, and what the one process does."""
_FOLDER: Final = ""
"""In the place of an endpoint."""


def check_shared(plugins: Sequence[PluginV1Alpha1]) -> list[Finding]:
    """A finding for each setting in which a plugin differs from the first one at its endpoint, or in the
    folder.
    """
    findings = []
    first: dict[str, PluginV1Alpha1] = {}
    for index, plugin in enumerate(plugins):
        if plugin.command is not None or plugin.in_process is not None:
            continue
        other = first.setdefault(plugin.endpoint or _FOLDER, plugin)
        for name, attribute, does in _SHARED:
            value = getattr(plugin, attribute)
            if value != getattr(other, attribute):
                message = (
                    f"plugins at one endpoint are one process, which {does}"
                    if plugin.endpoint
                    else "must be the same for all plugins of socketFolder: any of its sockets may be theirs"
                )
                shown = value if isinstance(value, str) else ""
                findings.append(invalid(f"plugins[{index}].{name}", shown, message))
    return findings
