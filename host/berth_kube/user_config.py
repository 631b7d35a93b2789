"""`UserConfig`: the kubeconfig, context and namespace that a kubectl command uses.

Called by `kubectl berth`, which looks at --kubeconfig, then KUBECONFIG, then ~/.kube/config. Several files in
KUBECONFIG are merged as by kubectl: the first file that has a name, or a current context, counts.
Source: client-go `tools/clientcmd/loader.go`, v1.36.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from berth_host.errors.cluster import ClientConfigError
from berth_host.log.hidden import hide
from berth_host.log.secrets import secrets_of, without_secrets
from berth_host.model.paths import expanded, is_file
from berth_sdk.yaml.encoding import read_text
from berth_sdk.yaml.reader import read_one
from berth_sdk.yaml.scalars import YamlTextError

_DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserConfig:
    """A user's choice of cluster. `path`: one, or several as KUBECONFIG lists them. `context`: empty for
    the current one.
    """

    path: str
    context: str
    namespace: str

    @classmethod
    def find(cls, kubeconfig: str = "", context: str = "", *, instead: str = "") -> UserConfig:
        """Find the files and the context. Raises ClientConfigError if there are no files, or no context.

        `instead`: what the user can do without a kubeconfig, for the error; it begins with a comma.
        """
        paths = [kubeconfig] if kubeconfig else _paths()
        existing = [path for path in paths if is_file(expanded(path))]
        if not existing:
            cure = f"give one with --kubeconfig or KUBECONFIG{instead}"
            raise ClientConfigError(f"there is no kubeconfig {', '.join(paths)}: {cure}")
        contents = [_read(path) for path in existing]
        name = context or next(filter(None, (content.get("current-context") for content in contents)), None)
        for content in contents:
            found = _context(content, name)
            if found is not None:
                namespace = found.get("namespace") or _DEFAULT_NAMESPACE
                if not isinstance(namespace, str):
                    raise ClientConfigError(
                        f"{', '.join(existing)}: the namespace {namespace!r} of context {name!r} is not text;"
                        " put it in quotes"
                    )
                return cls(
                    path=os.pathsep.join(existing),
                    context=context,
                    namespace=namespace,
                )
        what = f"no context {context!r}" if context else "no current-context"
        raise ClientConfigError(
            f"{', '.join(existing)}: there is {what}; kubectl config get-contexts lists them"
        )


def _paths() -> list[str]:
    given = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    return given or [str(expanded("~/.kube/config"))]


def _read(path: str) -> Mapping[str, Any]:
    """Read one kubeconfig. A field of a wrong type is reported by the code that loads the file later."""
    text = ""
    try:
        text = read_text(expanded(path))
        content = read_one(text)
    except (OSError, UnicodeDecodeError, YamlTextError) as err:
        problem = without_secrets(str(err), text)
        raise ClientConfigError(f"kubeconfig {path!r} cannot be read: {problem}; check the file") from err
    hide(secrets_of(content))
    return content if isinstance(content, dict) else {}


def _context(content: Mapping[str, Any], name: object) -> Mapping[str, Any] | None:
    listed = content.get("contexts")
    for item in listed if isinstance(listed, list) else ():
        if name and isinstance(item, dict) and item.get("name") == name:
            found = item.get("context")
            return found if isinstance(found, dict) else {}
    return None
