"""Converts an error answer of the API server into a `ClusterError`, and checks answers of success.

`error_of` is called by `client` for every status from 300 on, and by `informer` for the ERROR events of a
watch. `check_done` and `check_object` are called for the answers that decide something: an intermediary may
answer 200 with a page of its own, or with nothing, whether or not the API server acted on the request.
Source: apimachinery `pkg/apis/meta/v1/types.go` (Status), v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import orjson
from berth_host.errors.cluster import (
    ClusterError,
    ConflictError,
    FieldProblem,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    RepeatableError,
    TimedOutError,
    TooManyRequestsError,
    UnauthorizedError,
    UnavailableError,
)
from berth_host.model.compact_json import json_bytes

MAX_FOREIGN_TEXT: Final = 300
"""Characters kept of an answer that is not a Status, such as a proxy's error page."""
_SHORT: Final = 512
"""Bytes of an answer that is looked up among the last ones."""


def error_of(status: int, body: bytes, resource: str, key: str, *, retry_after: str = "") -> ClusterError:
    """Return the error for one answer. `retry_after`: the Retry-After header's value, in seconds.

    An answer without a Status may be an intermediary's, so its outcome is unknown. The API server itself
    answers 429 without a Status.
    """
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = None
    is_foreign = not isinstance(parsed, dict) or parsed.get("kind") != "Status"
    if is_foreign:
        foreign = _shown(body)
        parsed = {"message": foreign} if foreign else {}
    error = error_of_status(status, parsed, resource, key, retry_after=retry_after)
    if is_foreign and not isinstance(error, TooManyRequestsError):
        error.outcome_known = False
    return error


@lru_cache(maxsize=16)
def _is_done(body: bytes) -> bool:
    """Return True for a Status of success. Cached, as the answers to all Bindings are the same bytes."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return isinstance(parsed, dict) and _says_success(parsed)


def _says_success(parsed: Mapping[str, Any]) -> bool:
    return parsed.get("kind") == "Status" and parsed.get("status") == "Success"


def check_done(body: bytes, resource: str, key: str, *, kind: str = "") -> None:
    """Check the body of an answer of success. Raises ClusterError unless it is a Status of success.

    `kind`: of the object that the API server may answer in place of a Status; "" for none. Such an object is
    not parsed, because it may be as large and as deep as the API admits.
    """
    if len(body) <= _SHORT and _is_done(body):
        return
    if kind and body.startswith(_KIND_FIRST) and body.rstrip().endswith(b"}") and kind == _kind_of(body):
        return
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = None
    if not isinstance(parsed, dict):
        parsed = {}
    if _says_success(parsed):
        return
    found = parsed.get("kind")
    if found == "Status" and parsed.get("status") == "Failure":
        code = parsed.get("code")
        raise error_of_status(code if isinstance(code, int) else 500, parsed, resource, key)
    if kind and found == kind:
        return
    wanted = f"a {kind} or a Status" if kind else "a Status"
    raise UnavailableError(resource, key, _unreadable(wanted, body))


def check_object(answer: Mapping[str, Any], kind: str, resource: str, key: str) -> None:
    """Raise UnavailableError unless a parsed answer of success is an object of `kind` with a name."""
    metadata = answer.get("metadata")
    if answer.get("kind") == kind and isinstance(metadata, dict) and metadata.get("name"):
        return
    raise UnavailableError(resource, key, _unreadable(f"a {kind}", json_bytes(answer) if answer else b""))


def _unreadable(wanted: str, body: bytes) -> str:
    said = repr(_shown(body)) if body else "nothing"
    return (
        f"the answer is not {wanted} of the API server, so the outcome is unknown: it is {said}; look for a"
        " proxy or load balancer that answers in the API server's place"
    )


def _shown(body: bytes) -> str:
    return body[: 4 * MAX_FOREIGN_TEXT].decode(errors="replace").strip()[:MAX_FOREIGN_TEXT]


_KIND_FIRST: Final = b'{"kind":"'


def _kind_of(body: bytes) -> str:
    """Return the kind of an object whose text begins with its kind, as the API server writes it."""
    return body[len(_KIND_FIRST) :][:253].partition(b'"')[0].decode(errors="replace")


def error_of_status(
    code: int, status: Mapping[str, Any], resource: str, key: str, *, retry_after: str = ""
) -> ClusterError:
    """Return the error for a parsed `Status` object; see `error_of`."""
    message = str(status.get("message") or "")
    text = message or f"the API server answered {code}"
    match code:
        case 400 | 405 | 406 | 413 | 415 | 422:
            problems = _problems(status) or [FieldProblem(path="", problem=text)]
            return InvalidError(resource, key, problems, server_message=message)
        case 401:
            return UnauthorizedError(resource, key, text, server_message=message)
        case 403:
            return ForbiddenError(resource, key, text, server_message=message)
        case 404:
            return NotFoundError(resource, key, text, server_message=message)
        case 409:
            return ConflictError(resource, key, text, server_message=message)
        case 410:
            return GoneError(resource, key, text, server_message=message)
        case 429:
            wait_s = retry_after_s(retry_after, status)
            return TooManyRequestsError(resource, key, text, retry_after_s=wait_s, server_message=message)
        case 504:
            return TimedOutError(resource, key, text, server_message=message)
        case 500 | 503:
            return RepeatableError(resource, key, text, server_message=message)
        case _ if 400 <= code < 500:
            problems = [FieldProblem(path="", problem=text)]
            return InvalidError(resource, key, problems, server_message=message)
        case _:
            return UnavailableError(resource, key, text, server_message=message)


def retry_after_s(header: str, status: Mapping[str, Any] | None = None) -> float:
    """Return how long the server asks clients to wait, in seconds; 0 if the answer has no readable time."""
    if header.isascii() and header.isdigit():
        return float(header)
    details = (status or {}).get("details")
    seconds = details.get("retryAfterSeconds") if isinstance(details, dict) else None
    return float(seconds) if isinstance(seconds, int) and seconds > 0 else 0.0


def _problems(status: Mapping[str, Any]) -> list[FieldProblem]:
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return [
        FieldProblem(path=str(cause.get("field") or ""), problem=str(cause.get("message") or ""))
        for cause in causes or ()
        if isinstance(cause, dict)
    ]
