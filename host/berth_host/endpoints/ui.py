"""The files of the page, below `/ui/`: plain HTML, CSS and ES modules, which read `/berth/v1`.

The browser may load nothing from elsewhere: the Content-Security-Policy allows this server alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from typing import Final

from berth_host.endpoints.request_response import NO_SNIFF, Answer, Request, failure, not_found

PATH: Final = "/ui"
PREFIX: Final = f"{PATH}/"
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
HEADERS: Final = {
    **NO_SNIFF,
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Ui:
    """The handler of `/ui` and of all paths below it. The files are read once."""

    def __init__(self, scripts: Mapping[str, bytes] | None = None) -> None:
        """`scripts`: modules that the page loads beside its own, by file name."""
        self._files = {
            f"{PREFIX}{item.name}": Answer(
                item.read_bytes(), _TYPES[item.name.rpartition(".")[2]], headers=HEADERS
            )
            for item in (resources.files("berth_host") / "ui").iterdir()
            if item.name.rpartition(".")[2] in _TYPES
        }
        page = self._files[f"{PREFIX}index.html"]
        for name, script in (scripts or {}).items():
            self._files[f"{PREFIX}{name}"] = Answer(script, _TYPES["js"], headers=HEADERS)
            tag = f'<script type="module" src="{name}"></script>\n</head>'
            page = replace(page, body=page.body.replace(b"</head>", tag.encode()))
        self._files[PREFIX] = self._files[f"{PREFIX}index.html"] = page

    async def answer(self, request: Request) -> Answer:
        """Answer one request; `/ui` leads to `/ui/`."""
        if request.method not in ("GET", "HEAD"):
            return failure(405, "MethodNotAllowed", f"{request.path} is read with GET")
        if request.path == PATH:
            return Answer(status=308, headers={"Location": "ui/"})
        return self._files.get(request.path, not_found())
