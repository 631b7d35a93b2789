"""Each HTTP status becomes its error, with the server's own message."""

from __future__ import annotations

import json

import pytest
from berth_host.errors.cluster import (
    ClusterError,
    ConflictError,
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
from berth_kube.answers import check_done, error_of


def status(message: str, **more: object) -> bytes:
    return json.dumps({"kind": "Status", "apiVersion": "v1", "message": message, **more}).encode()


@pytest.mark.parametrize(
    ("code", "want", "outcome_known"),
    [
        (400, InvalidError, True),
        (401, UnauthorizedError, True),
        (403, ForbiddenError, True),
        (404, NotFoundError, True),
        (405, InvalidError, True),
        (409, ConflictError, True),
        (410, GoneError, True),
        (415, InvalidError, True),
        (418, InvalidError, True),
        (422, InvalidError, True),
        (429, TooManyRequestsError, True),
        (500, RepeatableError, False),
        (502, UnavailableError, False),
        (503, RepeatableError, False),
        (504, TimedOutError, False),
        (302, UnavailableError, False),
    ],
)
def test_every_status_is_its_own_kind(code: int, want: type[ClusterError], outcome_known: bool) -> None:
    got = error_of(code, status("the server's words"), "pods", "default/web")
    assert type(got) is want
    assert got.server_message == "the server's words"
    assert str(got) == "the server's words"
    assert (got.resource, got.key) == ("pods", "default/web")
    assert got.outcome_known is outcome_known


def test_causes_of_a_refusal_are_its_problems() -> None:
    causes = [
        {"field": "spec.nodeName", "message": "may not change"},
        {"message": "denied by policy"},
        "no object",
    ]
    got = error_of(422, status("Pod is invalid", details={"causes": causes}), "pods", "default/web")
    assert isinstance(got, InvalidError)
    assert [str(problem) for problem in got.problems] == ["spec.nodeName: may not change", "denied by policy"]


@pytest.mark.parametrize(
    ("header", "details", "want_s"),
    [
        ("7", None, 7.0),
        ("", {"retryAfterSeconds": 3}, 3.0),
        ("soon", None, 0.0),
        ("", {"retryAfterSeconds": "3"}, 0.0),
        ("", None, 0.0),
    ],
)
def test_too_many_requests_says_when_to_come_back(
    header: str, details: dict[str, object] | None, want_s: float
) -> None:
    got = error_of(429, status("slow down", details=details), "pods", "", retry_after=header)
    assert isinstance(got, TooManyRequestsError)
    assert got.retry_after_s == want_s


@pytest.mark.parametrize(
    ("body", "want"),
    [
        (b"<html>Bad Gateway</html>", "<html>Bad Gateway</html>"),
        (b"", "pods 'default/web': the API server answered 502"),
        (b'{"kind":"Pod"}', '{"kind":"Pod"}'),
        (b"[1]", "[1]"),
        (b"\xff" * 1000, "\ufffd" * 300),
    ],
)
def test_answer_of_another_server_is_quoted_briefly(body: bytes, want: str) -> None:
    got = error_of(502, body, "pods", "default/web")
    assert type(got) is UnavailableError
    assert str(got) == want


def test_status_of_success_is_accepted_each_time_and_no_other_short_answer_ever() -> None:
    done = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}\n'
    for _ in range(3):
        check_done(done, "pods", "default/web")
        for body in (b"", b"ok", b"[1]", b'{"kind":"Pod"}', b'{"kind":"Pod","status":"Success"}'):
            with pytest.raises(UnavailableError):
                check_done(body, "pods", "default/web")
        with pytest.raises(ConflictError, match="taken"):
            check_done(status("taken", status="Failure", code=409), "pods", "default/web")
