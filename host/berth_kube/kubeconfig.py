"""Reads the context in use from a kubeconfig.

Called by `credentials` and `kubectl berth`. What is read again while the host runs (token file, client
certificate, exec plugin) has a field of its own; `server` reads the rest. Impersonation fields become HTTP
headers.
Source: client-go `tools/clientcmd/{client_config,validation}.go` and `transport/round_trippers.go`, v1.36.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeGuard
from urllib.parse import quote

from berth_host.errors.cluster import ClientConfigError
from berth_host.log.hidden import hide, without_hidden
from berth_host.log.secrets import secrets_of, without_secrets
from berth_host.model.paths import expanded, is_file
from berth_sdk.yaml.encoding import read_text
from berth_sdk.yaml.reader import read_one
from berth_sdk.yaml.scalars import YamlTextError

from berth_kube.kubeconfig_fields import (
    check_exec_lists,
    check_proxy,
    check_server_name,
    check_types,
)

_TOKEN_SIGNS: Final = "!#$&'*+-.^_`|~"
"""Characters that a header's name may contain besides letters and digits; others are escaped with `%`."""


def taken_impersonation(user: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Remove the impersonation fields from `user` and return their headers; empty for no impersonation.

    Raises ValueError, which names the field and the cure.
    """
    name, uid = (_text(user.pop(field, None), field) for field in ("as", "as-uid"))
    groups = _texts(user.pop("as-groups", None), "as-groups")
    extra = user.pop("as-user-extra", None) or {}
    if not isinstance(extra, Mapping) or not all(isinstance(key, str) and key for key in extra):
        raise ValueError("as-user-extra is not a mapping of lists; write it as KEY: [VALUE]")
    values = {key: _texts(value, f"as-user-extra.{key}") for key, value in extra.items()}
    if not name:
        if uid or groups or values:
            raise ValueError("as-uid, as-groups and as-user-extra need a user beside them; set as")
        return ()
    return tuple(_headers(name, uid, groups, values))


def _headers(
    name: str, uid: str, groups: tuple[str, ...], extra: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, str]]:
    yield "Impersonate-User", name
    if uid:
        yield "Impersonate-Uid", uid
    for group in groups:
        yield "Impersonate-Group", group
    for key, values in extra.items():
        for value in values:
            yield f"Impersonate-Extra-{quote(key, safe=_TOKEN_SIGNS)}", value


def _texts(value: Any, field: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ValueError(f"{field} is not a list; write it as [VALUE]")
    return tuple(_text(one, field) for one in value)


def _text(value: Any, field: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{field} is {value!r}, not text; put it in quotes")
    if any(sign in value for sign in "\r\n\0"):
        raise ValueError(f"{field} has a line end in it, which a header cannot hold; take it out")
    return value


_LISTS: Final = ("contexts", "clusters", "users")
_PATH_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "clusters": ("certificate-authority",),
    "users": ("client-certificate", "client-key", "tokenFile"),
}
_EXEC_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One context of a kubeconfig.

    `content`: a kubeconfig with only the entries that the context names, without the fields that are
    attributes here. `authorities`, `certificate`, `key`: PEM, or the path of its file. `exec_plugin`:
    `users[].user.exec`, or None. `impersonation`: headers that name the user to act as.
    """

    path: Path
    content: Mapping[str, Any]
    authorities: bytes | None
    certificate: bytes | Path | None
    key: bytes | Path | None
    token_file: Path | None
    exec_plugin: Mapping[str, Any] | None
    impersonation: tuple[tuple[str, str], ...]

    @property
    def disables_compression(self) -> bool:
        """True if the cluster's entry has `disable-compression: true`."""
        return self.content["clusters"][0]["cluster"].get("disable-compression") is True

    @property
    def folder(self) -> Path:
        """The folder that relative paths of the entry start from."""
        return self.path.parent


def read_kubeconfig(path_text: str, master: str = "", context_name: str = "") -> Entry:
    """Read a file, or several as KUBECONFIG lists them, and return a context, by default the current one.

    `master` replaces a missing server. Raises ClientConfigError, which names the file and the cure.
    """
    path, content = _read(path_text)
    contexts, clusters, users = (_named(content, name, path) for name in _LISTS)
    current = context_name or content.get("current-context")
    if not isinstance(current, str | None):
        raise _wrong(path, f"current-context {current!r} is not text", "put it in quotes")
    if not current:
        raise _wrong(path, "current-context is not set", "kubectl config use-context NAME sets it")
    if current not in contexts:
        raise _wrong(path, f"there is no context {current!r}", "kubectl config get-contexts lists them")
    context = _part(contexts[current], "context", path)
    cluster_name, user_name = context.get("cluster"), context.get("user")
    if cluster_name not in clusters:
        raise _wrong(path, f"there is no cluster {cluster_name!r}, which context {current!r} names", "add it")
    if user_name and user_name not in users:
        raise _wrong(path, f"there is no user {user_name!r}, which context {current!r} names", "add it")
    cluster = dict(_part(clusters[cluster_name], "cluster", path))
    if not cluster.get("server"):
        if not master:
            raise _wrong(path, f"cluster {cluster_name!r} has no server", "add it, as https://HOST:PORT")
        cluster["server"] = master
    _check_cluster(cluster, path)
    user = dict(_part(users.get(user_name) or {}, "user", path))
    if cluster.get("certificate-authority-data"):
        cluster.pop("certificate-authority", None)
    authorities = _taken(cluster, "certificate-authority-data", "", path)
    return Entry(
        path=path,
        authorities=authorities if isinstance(authorities, bytes) else None,
        certificate=_taken(user, "client-certificate-data", "client-certificate", path),
        key=_taken(user, "client-key-data", "client-key", path),
        token_file=_taken_token_file(user, path),
        exec_plugin=_taken_exec(user, path),
        impersonation=_taken_impersonation(user, path),
        content={
            "current-context": "berth",
            "contexts": [{"name": "berth", "context": {"cluster": "berth", "user": "berth"}}],
            "clusters": [{"name": "berth", "cluster": cluster}],
            "users": [{"name": "berth", "user": user}],
        },
    )


def _read(path_text: str) -> tuple[Path, Mapping[str, Any]]:
    """Return the path for messages, and the content; of several files, the first that has a name counts.

    Missing files of a list are skipped. Source: client-go `clientcmd.ClientConfigLoadingRules`.
    """
    whole = expanded(path_text).absolute()
    if is_file(whole) or os.pathsep not in path_text:
        return whole, _with_whole_paths(_load(whole), whole)
    paths = [expanded(part).absolute() for part in path_text.split(os.pathsep) if part]
    existing = [path for path in paths if is_file(path)]
    shown = os.pathsep.join(str(path) for path in existing or paths)
    if not existing:
        raise _wrong(Path(shown), "none of these files exists", "give the path of an existing one")
    merged: dict[str, Any] = {name: [] for name in _LISTS}
    for path in existing:
        content = _with_whole_paths(_load(path), path)
        for name in _LISTS:
            _named(content, name, path)
            merged[name] += content.get(name) or []
        if not merged.get("current-context"):
            merged["current-context"] = content.get("current-context")
    return Path(shown), merged


def _with_whole_paths(content: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """Return a file's content with paths that are relative to the file's folder made absolute."""
    whole = dict(content)
    for name, fields in _PATH_FIELDS.items():
        items = content.get(name)
        if isinstance(items, list):
            whole[name] = [_with_whole_fields(item, name.removesuffix("s"), fields, path) for item in items]
    return whole


def _with_whole_fields(item: Any, part: str, fields: tuple[str, ...], path: Path) -> Any:
    inner = item.get(part) if isinstance(item, dict) else None
    if not isinstance(inner, dict):
        return item
    found: dict[str, Any] = {
        name: str(path.parent / inner[name]) for name in fields if _is_path(inner.get(name))
    }
    plugin = inner.get("exec")
    if isinstance(plugin, dict) and _is_path(command := plugin.get("command")) and os.sep in command:
        # As in client-go: a path is relative to the file, a bare name is looked up in PATH.
        found["exec"] = {**plugin, "command": str(path.parent / command)}
    return {**item, part: {**inner, **found}}


def _is_path(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value)


def _load(path: Path) -> Mapping[str, Any]:
    try:
        text = read_text(path)
        content = read_one(text)
    except FileNotFoundError as err:
        raise _wrong(path, "no such file", "give the path of an existing one") from err
    except (OSError, UnicodeDecodeError) as err:
        raise _wrong(path, f"cannot be read: {err}", "check the path and its permissions") from err
    except YamlTextError as err:
        line = f"line {err.line}: " if err.line else ""
        cure = "see it with kubectl config view --kubeconfig"
        raise _wrong(path, f"is not YAML: {line}{without_secrets(err.message, text)}", cure) from err
    hide(secrets_of(content))
    if not isinstance(content, dict) or content.get("kind", "Config") != "Config":
        raise _wrong(path, "is not a kubeconfig", "it needs kind: Config, clusters, contexts and users")
    return content


def _named(content: Mapping[str, Any], name: str, path: Path) -> dict[Any, Mapping[str, Any]]:
    items = content.get(name) or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise _wrong(path, f"{name} is not a list of named entries", "kubectl config set-... writes them")
    found: dict[Any, Mapping[str, Any]] = {}
    for item in items:
        if not isinstance(item.get("name"), str | None):
            raise _wrong(path, f"the name {item['name']!r} in {name} is not text", "put it in quotes")
        # The first entry of a name counts, as in kubectl.
        found.setdefault(item.get("name"), item)
    return found


def _part(item: Mapping[str, Any], name: str, path: Path) -> Mapping[str, Any]:
    part = item.get(name)
    found = part if isinstance(part, dict) else {}
    try:
        check_types(name, found)
    except ValueError as err:
        raise _wrong(path, f"{name} {item.get('name')!r}", str(err), joint=": ") from err
    return found


def _check_cluster(cluster: Mapping[str, Any], path: Path) -> None:
    """Raise ClientConfigError for a proxy or a server name with which no connection can succeed."""
    proxy, name = cluster.get("proxy-url"), cluster.get("tls-server-name")
    try:
        if proxy:
            check_proxy(proxy)
    except ValueError as err:
        # The user and the password must not appear in the message.
        shown = str(proxy).rpartition("@")[2]
        raise _wrong(path, f"proxy-url {shown!r} {err}", "or leave it out", joint=", ") from err
    try:
        if name:
            check_server_name(name)
    except ValueError as err:
        cure = "set it to a name that the server's certificate is for, or leave it out"
        raise _wrong(path, f"tls-server-name {name!r} {err}", cure) from err


def _taken(part: dict[str, Any], data_name: str, file_name: str, path: Path) -> bytes | Path | None:
    """Remove the data field and the file field of `part`; return the decoded data, else the file's path."""
    data, file = part.pop(data_name, None), part.pop(file_name, None)
    if data:
        try:
            return base64.b64decode("".join(str(data).split()), validate=True)
        except (binascii.Error, ValueError) as err:
            raise _wrong(path, f"{data_name} is not base64: {err}", "encode it again") from err
    return path.parent / str(file) if file else None


def _taken_exec(user: dict[str, Any], path: Path) -> Mapping[str, Any] | None:
    plugin = user.pop("exec", None)
    if plugin is None:
        return None
    if not isinstance(plugin, dict) or not plugin.get("command"):
        raise _wrong(path, "users[].user.exec has no command", "add the program that gives the credentials")
    if plugin.get("apiVersion") not in _EXEC_VERSIONS:
        raise _wrong(
            path,
            f"users[].user.exec.apiVersion {plugin.get('apiVersion')!r} is not known",
            f"use {_EXEC_VERSIONS[0]}",
        )
    try:
        check_types("exec", plugin)
        check_exec_lists(plugin)
    except ValueError as err:
        raise _wrong(path, "users[].user.exec", str(err), joint=": ") from err
    return plugin


def _taken_token_file(user: dict[str, Any], path: Path) -> Path | None:
    name = user.pop("tokenFile", None)
    if not name:
        return None
    # As in client-go, the file counts, not the token beside it: the file is kept up to date.
    user.pop("token", None)
    return path.parent / str(name)


def _taken_impersonation(user: dict[str, Any], path: Path) -> tuple[tuple[str, str], ...]:
    try:
        return taken_impersonation(user)
    except ValueError as err:
        raise _wrong(path, "users[].user", str(err), joint=": ") from err


def _wrong(path: Path, problem: str, cure: str, *, joint: str = "; ") -> ClientConfigError:
    return ClientConfigError(without_hidden(f"kubeconfig {str(path)!r}: {problem}{joint}{cure}"))
