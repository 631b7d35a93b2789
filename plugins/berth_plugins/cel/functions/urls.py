"""URLs, read as Go reads the URI of a request.

Source: `apiserver/pkg/cel/library/urls.go`, v1.37; Go's `net/url` for the rules and the texts of errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote_from_bytes

from berth_plugins.cel.declarations import URL
from berth_plugins.cel.errors import EvalError
from berth_plugins.cel.functions.formatting import quoted
from berth_plugins.cel.functions.networks import address_error
from berth_plugins.cel.values import MapValue, Opaque, Value

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(.*)", re.DOTALL)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_ESCAPE: Final = re.compile(r"%(.{0,2})", re.DOTALL)
_PORT: Final = re.compile(r":[0-9]*", re.ASCII)
_HOST_BYTES: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~!$&'()*+,;=:[]<>\""
)
_USER: Final = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*", re.ASCII)
_PATH_SAFE: Final = "$&+,/:;=@-_.~"
_PATH_VALID: Final = re.compile(r"[A-Za-z0-9\-_.~!$&'()*+,;=:@/\[\]%]*", re.ASCII)


class UrlValue(Opaque):
    """A URL. `path`: escaped. `query`: as written."""

    __slots__ = ("host", "path", "query", "scheme", "text")
    cel_type = URL

    def __init__(self, text: str, scheme: str, host: str, path: str, query: str) -> None:
        self.text = text
        self.scheme = scheme
        self.host = host
        self.path = path
        self.query = query

    def equals(self, other: Value) -> bool:
        """Compare with another URL. Raises EvalError for another value."""
        if not isinstance(other, UrlValue):
            raise EvalError("no such overload")
        return (self.scheme, self.host, self.path, self.query, self.text.partition("#")[2]) == (
            other.scheme,
            other.host,
            other.path,
            other.query,
            other.text.partition("#")[2],
        )

    @property
    def hostname(self) -> str:
        """The host without its port and brackets."""
        host = self.host
        end = host.rfind(":")
        if end >= 0 and _PORT.fullmatch(host[end:]):
            host = host[:end]
        return host[1:-1] if host.startswith("[") and host.endswith("]") else host

    @property
    def port(self) -> str:
        """The port; the empty text without one."""
        end = self.host.rfind(":")
        return self.host[end + 1 :] if end >= 0 and _PORT.fullmatch(self.host[end:]) else ""


def request_uri(text: str) -> UrlValue:
    """Read the URI of a request: an absolute URI or path. Raises ValueError with Go's reason."""
    return _parse(text, text, is_request=True)


def _parse(whole: str, text: str, *, is_request: bool) -> UrlValue:
    if _CONTROL.search(text):
        raise ValueError("net/url: invalid control character in URL")
    if not text:
        raise ValueError("empty url")
    if text == "*":
        return UrlValue(whole, "", "", "*", "")
    if text.startswith(":"):
        raise ValueError("missing protocol scheme")
    match = _SCHEME.fullmatch(text)
    scheme, rest = (match[1].lower(), match[2]) if match else ("", text)
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return UrlValue(whole, scheme, "", "", query)
        if is_request:
            raise ValueError("invalid URI for request")
        if ":" in rest.partition("/")[0]:
            raise ValueError("first path segment in URL cannot contain colon")
    host = ""
    if rest.startswith("//") and (scheme or (not is_request and not rest.startswith("///"))):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        host = _authority(scheme, authority)
    return UrlValue(whole, scheme, host, _escaped_path(rest), query)


def _authority(scheme: str, text: str) -> str:
    user, at, host = text.rpartition("@")
    found = _host(scheme, host)
    if at:
        if _USER.fullmatch(user) is None:
            raise ValueError("net/url: invalid userinfo")
        _unescaped(user)
    return found


def _host(scheme: str, text: str) -> str:
    bracket = text.rfind("[")
    if bracket > 0:
        raise ValueError("invalid IP-literal")
    if bracket == 0:
        end = text.rfind("]")
        if end < 0:
            raise ValueError("missing ']' in host")
        _check_port(text[end + 1 :])
        name, zone_sign, zone = text[1:end].partition("%25")
        name = _unescaped(name, is_host=True)
        if zone_sign:
            name = f"{name}%{_unescaped(zone)}"
        reason = address_error(name)
        if reason:
            raise ValueError(f"invalid host: {reason}")
        if ":" not in name:
            raise ValueError("invalid IP-literal")
        return f"[{name}]{text[end + 1 :]}"
    colon = text.find(":")
    if colon >= 0:
        if scheme not in ("http", "https"):
            colon = text.rfind(":")
        _check_port(text[colon:])
    return _unescaped(text, is_host=True)


def _check_port(text: str) -> None:
    if text and _PORT.fullmatch(text) is None:
        raise ValueError(f"invalid port {quoted(text)} after host")


def _unescaped(text: str, *, is_host: bool = False, is_query: bool = False) -> str:
    """Replace `%41` by `A`. Raises ValueError."""
    for match in _ESCAPE.finditer(text):
        digits = match[1]
        is_hex = len(digits) == 2 and all(one in "0123456789abcdefABCDEF" for one in digits)
        if not is_hex or (is_host and int(digits, 16) < 0x80 and digits != "25"):
            raise ValueError(f"invalid URL escape {quoted(match[0])}")
    if is_host:
        for one in text:
            if ord(one) < 0x80 and one != "%" and one not in _HOST_BYTES:
                raise ValueError(f"invalid character {quoted(one)} in host name")
    if is_query:
        text = text.replace("+", " ")
    raw = re.sub(rb"%([0-9a-fA-F]{2})", lambda match: bytes.fromhex(match[1].decode()), text.encode())
    return raw.decode(errors="replace")


def _escaped_path(text: str) -> str:
    path = _unescaped(text)
    if _PATH_VALID.fullmatch(text):
        return text
    return "*" if path == "*" else quote_from_bytes(path.encode(), safe=_PATH_SAFE)


def _url(text: str) -> UrlValue:
    try:
        request_uri(text)
        return _parse(text, text.partition("#")[0], is_request=False)
    except ValueError as err:
        reason = f"parse {quoted(text)}: {err}"
        raise EvalError(f"URL parse error during conversion from string: {reason}") from err


def _is_url(text: str) -> bool:
    try:
        request_uri(text)
    except ValueError:
        return False
    return True


def _query(one: UrlValue) -> MapValue:
    found: dict[str, list[Value]] = {}
    for part in one.query.split("&"):
        if not part or ";" in part:
            continue
        key, _, value = part.partition("=")
        try:
            name, text = (_unescaped(word, is_query=True) for word in (key, value))
        except ValueError:
            continue
        found.setdefault(name, []).append(text)
    return MapValue(found.items())


OVERLOADS: Final[dict[str, Callable[..., Any]]] = {
    "string_to_url": _url,
    "is_url_string": _is_url,
    "url_get_scheme": lambda one: one.scheme,
    "url_get_host": lambda one: one.host,
    "url_get_hostname": lambda one: one.hostname,
    "url_get_port": lambda one: one.port,
    "url_get_escaped_path": lambda one: one.path,
    "url_get_query": _query,
}
