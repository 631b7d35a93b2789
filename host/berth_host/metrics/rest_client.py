"""The rest_client_* families: requests to the API server. `berth_kube.client` writes them.

Source: component-base `metrics/prometheus/restclient/metrics.go`, v1.36.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from berth_sdk.clocks import work_s

from berth_host.metrics import families
from berth_host.metrics.series import Counters, Histogram, Histograms, Labels, Readings


class _Series(NamedTuple):
    """The series of one kind of request."""

    durations: Histogram
    sent_bytes: Histogram
    received_bytes: Histogram
    labels: Labels


class RestClientMetrics:
    """The metrics of requests. `host`: `name:port` of the API server. `verb`: the HTTP method."""

    def __init__(self) -> None:
        self.rate_limiter = Histograms(families.RATE_LIMITER)
        self.durations = Histograms(families.REQUEST_DURATION)
        self.request_sizes = Histograms(families.REQUEST_SIZE)
        self.response_sizes = Histograms(families.RESPONSE_SIZE)
        self.requests = Counters(families.REQUESTS)
        self.retries = Counters(families.REQUEST_RETRIES)
        self.transport_calls = Counters(families.TRANSPORT_CALLS)
        self.certificate_ages = Histograms(families.CERTIFICATE_AGE)
        self.rotations = Counters(families.TRANSPORT_ROTATIONS)
        self._series: dict[tuple[str, str, int], _Series] = {}
        self.transport_count = 0
        """Open sessions."""
        self.exec_ttl_s = math.inf
        """Seconds until the exec plugin's certificate expires."""

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

        `started_s`: a reading of `work_s`. `code` 0: there was no answer; its label is `<error>`.
        """
        series = self._series.get((host, verb, code))
        if series is None:
            # Once for each kind of request, as the look-ups cost as much as the counting.
            series = self._series[host, verb, code] = _Series(
                self.durations.of(host, verb),
                self.request_sizes.of(host, verb),
                self.response_sizes.of(host, verb),
                (str(code) if code else "<error>", host, verb),
            )
        durations, sent, received, labels = series
        durations.observe(work_s() - started_s)
        if code:
            sent.observe(sent_bytes)
            received.observe(received_bytes)
        self.requests.add(labels)

    def waited(self, host: str, verb: str, seconds: float) -> None:
        """Count a request that waited `seconds` for the limit of qps and burst."""
        self.rate_limiter.of(host, verb).observe(seconds)

    def retried(self, host: str, verb: str, code: int) -> None:
        """Count a request that is sent again after an answer with `code`; 0: no answer."""
        self.retries.add((str(code) if code else "<error>", host, verb))

    def transport_used(self, *, made: bool) -> None:
        """Count a request for a session. `made`: True if a new session was made."""
        self.transport_calls.add(("miss" if made else "hit",))

    @property
    def sources(self) -> Iterable[Histograms | Counters | Readings]:
        """All families."""
        return (
            self.rate_limiter,
            self.durations,
            self.request_sizes,
            self.response_sizes,
            self.requests,
            self.retries,
            self.transport_calls,
            self.certificate_ages,
            self.rotations,
            Readings(families.TRANSPORTS, lambda: [((), self.transport_count)]),
            Readings(families.EXEC_TTL, lambda: [((), self.exec_ttl_s)]),
        )
