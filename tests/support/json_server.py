"""A real HTTP server that answers GET with JSON which the test can replace at any time."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


class JsonServer:
    """`answers`: (status, value or text) by path. `requests`: (path, query, headers) of each request."""

    def __init__(self, answers: Mapping[str, tuple[int, Any]]) -> None:
        self.answers = dict(answers)
        self.requests: list[tuple[str, dict[str, list[str]], dict[str, str]]] = []
        self.address = ""

    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        """Return the answer to a request; 404 for a path without one."""
        found = self.answers.get(path, (404, "not found"))
        if callable(found[1]):
            made: tuple[int, Any] = found[1](query)
            return made
        return found


@contextmanager
def serving_json(answers: Mapping[str, tuple[int, Any]]) -> Iterator[JsonServer]:
    """Serve the answers on a port of this machine until the block ends."""
    served = JsonServer(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = parse_qs(url.query)
            served.requests.append((url.path, query, dict(self.headers)))
            status, value = served.answer(url.path, query)
            body = (value if isinstance(value, str) else json.dumps(value)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
