"""One request to a host's secure port -> the object in the answer, or a message for the user."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from berth_sdk.json.bounded import read_bounded_json

UNREACHABLE: Final = 1
BAD_USAGE: Final = 2
NOT_FOUND: Final = 4
_TIMEOUT_S: Final = 30.0
_STATUS_CODES: Final = {400: BAD_USAGE, 404: NOT_FOUND}


class AskError(Exception):
    """The error of a query without an answer. `exit_code`: of the command."""

    def __init__(self, text: str, exit_code: int = UNREACHABLE) -> None:
        self.exit_code = exit_code
        super().__init__(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The secure port of a host. `authorization`: a header's value, empty for none. `title`: for messages."""

    url: str
    title: str
    context: ssl.SSLContext
    authorization: str = ""


async def ask(
    target: Target,
    path: str,
    query: Mapping[str, str] | None = None,
    body: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the object that the host answers. Raises AskError, with one line and the cure.

    `body`: the object to POST; None: the answer is read with GET.
    """
    headers = {"Accept": "application/json"}
    if target.authorization:
        headers["Authorization"] = target.authorization
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(
                "GET" if body is None else "POST",
                f"{target.url}{path}",
                params=query,
                json=body,
                headers=headers,
                ssl=target.context,
                allow_redirects=False,
            ) as response,
        ):
            return _answer(target, path, response, await response.read())
    except aiohttp.ClientConnectorCertificateError as err:
        raise AskError(
            f"{target.title}: its certificate is not trusted: {err.certificate_error}; give its CA with"
            " --certificate-authority, or --insecure-skip-tls-verify"
        ) from err
    except aiohttp.ClientSSLError as err:
        raise AskError(f"{target.title}: no TLS connection: {err}; is it the secure port?") from err
    except (aiohttp.ClientError, OSError) as err:
        problem = err.strerror if isinstance(err, OSError) and err.strerror else str(err)
        raise AskError(
            f"{target.title} cannot be reached: {problem}; check that it runs, and its address"
        ) from err
    except TimeoutError as err:
        raise AskError(f"{target.title} did not answer within {_TIMEOUT_S:g} s; see its log") from err


def _answer(target: Target, path: str, response: aiohttp.ClientResponse, body: bytes) -> dict[str, Any]:
    status, verb = response.status, response.method.lower()
    try:
        value = read_bounded_json(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise AskError(f"{target.title} answers {status} without JSON at {path}: is it a berth scheduler?")
    if status == 200:
        return value
    message = str(value.get("message") or f"it answers {status}")
    if status == 401:
        raise AskError(f"{target.title} does not accept the credentials; log in again, or give a --token")
    if status == 403:
        raise AskError(
            f"{target.title}: {message}; a ClusterRole must allow the verb {verb} on the nonResourceURL"
            f" {path if verb == 'post' else '/berth/v1/*'}"
        )
    raise AskError(message, _STATUS_CODES.get(status, UNREACHABLE))
