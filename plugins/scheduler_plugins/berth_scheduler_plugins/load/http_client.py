"""GET of JSON from the sources of metrics, on the thread of a Refresher."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import urllib3

LIMIT_S: Final = 2.0
"""Seconds for a connection, and for an answer."""
_MOST_BYTES: Final = 64 << 20
_OK: Final = 200


class SourceError(Exception):
    """A source that cannot be read. The text names its address and the reason."""


class JsonClient:
    """Connections to one address, kept between reads. Used by one thread at a time."""

    def __init__(self, address: str, *, token: str = "", ca_file: str = "", insecure: bool = False) -> None:
        """`address`: http or https, maybe with a path. `token`: sent as a bearer token; "": none."""
        self.address = address.rstrip("/")
        self._headers = {"Accept": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._pool = urllib3.PoolManager(
            num_pools=2,
            timeout=urllib3.Timeout(connect=LIMIT_S, read=LIMIT_S),
            retries=False,
            cert_reqs="CERT_NONE" if insecure else "CERT_REQUIRED",
            ca_certs=ca_file or None,
        )
        if insecure:
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """Return the parsed answer. Raises SourceError for any other answer than 200 with JSON."""
        url = f"{self.address}{path}"
        try:
            answer = self._pool.request(
                "GET", url, fields=dict(query or {}), headers=self._headers, preload_content=False
            )
            try:
                body = answer.read(_MOST_BYTES + 1)
            finally:
                answer.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as err:
            raise SourceError(f"{url} cannot be read: {_reason(err)}") from err
        if answer.status != _OK:
            raise SourceError(f"{url} answered with status {answer.status}")
        if len(body) > _MOST_BYTES:
            raise SourceError(f"{url} answered more than {_MOST_BYTES} bytes")
        try:
            return json.loads(body)
        except ValueError as err:
            raise SourceError(f"{url} answered no JSON: {err}") from err

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()


def _reason(err: Exception) -> str:
    cause = getattr(err, "reason", None) or err
    text = str(cause)
    return text.rpartition(": ")[2] or type(err).__name__
