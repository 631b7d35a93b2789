"""Converts an error answer of the API server into a `ClusterError`.

Called by `client` for every status from 300 on, and by `informer` for the ERROR events of a watch.
Source: apimachinery `pkg/apis/meta/v1/types.go` (Status), v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
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

MAX_FOREIGN_TEXT: Final = 300
"""Characters kept of an answer that is not a Status, such as a proxy's error page."""


def error_of(status: int, body: bytes, resource: str, key: str, *, retry_after: str = "") -> ClusterError:
    """Return the error for one answer. `retry_after`: the Retry-After header's value, in seconds."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = None
    if not isinstance(parsed, dict) or parsed.get("kind") != "Status":
        foreign = body.decode(errors="replace").strip()[:MAX_FOREIGN_TEXT]
        parsed = {"message": foreign} if foreign else {}
    return error_of_status(status, parsed, resource, key, retry_after=retry_after)


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
