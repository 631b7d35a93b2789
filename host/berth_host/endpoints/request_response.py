"""Requests to the pages, and answers: texts, JSON, and the API's Status objects."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from berth_host.model.user import ANONYMOUS, User

PLAIN: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
NO_SNIFF: Final[Mapping[str, str]] = {"X-Content-Type-Options": "nosniff"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request. `query`: all values by parameter. `accept`: the Accept header, empty without one."""

    method: str
    path: str
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    accept: str = ""
    user: User = ANONYMOUS
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer. `content_type`: empty to send none.

    `parts`: the parts of a body that is sent while it is made, in place of `body`.
    """

    body: bytes = b""
    content_type: str = PLAIN
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    parts: AsyncGenerator[bytes, None] | None = None


Handler = Callable[[Request], Awaitable[Answer]]


def text(body: str, status: int = 200, *, sniff: bool = False) -> Answer:
    """Return plain text. `sniff`: without the header `nosniff`, as on some pages of kube-scheduler."""
    return Answer(body.encode(), PLAIN, status, {} if sniff else NO_SNIFF)


def as_json(value: Any, status: int = 200, content_type: str = JSON, *, sniff: bool = True) -> Answer:
    """Return a value as JSON with a final line feed, as kube-scheduler writes it."""
    headers = {} if sniff else NO_SNIFF
    body = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return Answer(f"{body}\n".encode(), content_type, status, headers)


def failure(status: int, reason: str, message: str, *, details: bool = False) -> Answer:
    """Return a Status object of the API. `reason`: one word, such as Forbidden."""
    value: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
    }
    if details:
        value["details"] = {}
    return as_json({**value, "code": status}, status)


def not_found() -> Answer:
    """Return the answer for a path that does not exist."""
    return text("404 page not found\n", 404)


def unauthorized() -> Answer:
    """Return the answer for credentials that are not valid."""
    return failure(401, "Unauthorized", "Unauthorized")


def too_many(message: str) -> Answer:
    """Return the answer to somebody who has to ask again later."""
    answer = failure(429, "TooManyRequests", message)
    return replace(answer, headers={**answer.headers, "Retry-After": "1"})


def forbidden(request: Request) -> Answer:
    """Return the answer for a user without the right."""
    message = f'forbidden: User "{request.user.name}" cannot {request.method.lower()} path "{request.path}"'
    return failure(403, "Forbidden", message, details=True)


def not_acceptable() -> Answer:
    """Return the answer for a media type that the page does not have."""
    media_types = "application/json, application/yaml, text/plain"
    return failure(406, "NotAcceptable", f"only the following media types are accepted: {media_types}")
