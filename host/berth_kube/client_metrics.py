"""`ClientMetrics`: counts the requests of a `KubeClient`. The host hands it over."""

from __future__ import annotations

from typing import Protocol


class ClientMetrics(Protocol):
    """The metrics of requests. `host`: `name:port` of the API server. `verb`: the HTTP method."""

    transport_count: int
    """Open sessions."""

    def request_ended(
        self,
        host: str,
        verb: str,
        *,
        code: int,
        started_s: float,
        sent_bytes: int = 0,
        received_bytes: int = 0,
    ) -> None:
        """Count a request that has just ended.

        `started_s`: a reading of `work_s`. `code` 0: there was no answer.
        """
        ...

    def waited(self, host: str, verb: str, seconds: float) -> None:
        """Count a request that waited `seconds` for the limit of qps and burst."""
        ...

    def retried(self, host: str, verb: str, code: int) -> None:
        """Count a request that is sent again after an answer with `code`; 0: no answer."""
        ...

    def transport_used(self, *, made: bool) -> None:
        """Count a request for a session. `made`: True if a new session was made."""
        ...


class NoMetrics:
    """Counts no requests, for a client whose metrics nobody reads."""

    def __init__(self) -> None:
        self.transport_count = 0

    def request_ended(
        self,
        host: str,
        verb: str,
        *,
        code: int,
        started_s: float,
        sent_bytes: int = 0,
        received_bytes: int = 0,
    ) -> None:
        """Count nothing."""

    def waited(self, host: str, verb: str, seconds: float) -> None:
        """Count nothing."""

    def retried(self, host: str, verb: str, code: int) -> None:
        """Count nothing."""

    def transport_used(self, *, made: bool) -> None:
        """Count nothing."""
