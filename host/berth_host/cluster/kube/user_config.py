"""The kubeconfig, context and namespace that a kubectl command means.

Called by `kubectl berth`. Source: client-go `tools/clientcmd/loader.go`, v1.36: --kubeconfig, or else
KUBECONFIG, or else ~/.kube/config. Of several files in KUBECONFIG kubectl makes one; here the first file that
has the context is used as it is, so cluster and user of a context have to be in its file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth_host.errors.cluster import ClientConfigError
from berth_host.yaml.reader import read_one
from berth_host.yaml.scalars import YamlTextError

_DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserConfig:
    """`context` empty: the file's current one."""

    path: str
    context: str
    namespace: str

    @classmethod
    def find(cls, kubeconfig: str = "", context: str = "") -> UserConfig:
        """Raises ClientConfigError where there is no file, or none has the context."""
        paths = [kubeconfig] if kubeconfig else _paths()
        existing = [path for path in paths if Path(path).expanduser().is_file()]
        if not existing:
            raise ClientConfigError(
                f"there is no kubeconfig {', '.join(paths)}: give one with --kubeconfig or KUBECONFIG,"
                " or name the scheduler with --server https://HOST:10259"
            )
        for path in existing:
            found = _context(_read(path), context)
            if found is not None:
                return cls(path=path, context=context, namespace=found.get("namespace") or _DEFAULT_NAMESPACE)
        what = f"no context {context!r}" if context else "no current-context"
        raise ClientConfigError(
            f"{', '.join(existing)}: there is {what}; kubectl config get-contexts lists them"
        )


def _paths() -> list[str]:
    given = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    return given or [str(Path("~/.kube/config").expanduser())]


def _read(path: str) -> Mapping[str, Any]:
    """Read one kubeconfig. A field of a wrong type is reported by the code that loads the file later."""
    try:
        content = read_one(Path(path).expanduser().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, YamlTextError) as err:
        raise ClientConfigError(f"kubeconfig {path!r} cannot be read: {err}; check the file") from err
    return content if isinstance(content, dict) else {}


def _context(content: Mapping[str, Any], context: str) -> Mapping[str, Any] | None:
    name = context or content.get("current-context")
    listed = content.get("contexts")
    for item in listed if isinstance(listed, list) else ():
        if name and isinstance(item, dict) and item.get("name") == name:
            found = item.get("context")
            return found if isinstance(found, dict) else {}
    return None
