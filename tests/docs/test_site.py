"""The static site: every page is in it, every link in it holds, and it fetches nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from support.places import ROOT

from docs.pages import all_pages

pytestmark = [pytest.mark.slow, pytest.mark.long]


class References(HTMLParser):
    """Reads a page. `links`: where its `href`s lead; `fetched`: what a browser loads with it; `ids`."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if "id" in found:
            self.ids.add(found["id"])
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and "href" in found and found.get("rel") != "canonical":
            self.fetched.append(found["href"])
        elif tag in ("script", "img", "iframe", "source") and "src" in found:
            self.fetched.append(found["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, ROOT / "tests/docs/site.py", "--into", into],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return into


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, References]:
    return {path: References(path.read_text()) for path in site.rglob("*.html")}


def broken(pages: dict[Path, References]) -> Iterator[str]:
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its links begin at the root of a server
        for link in (*page.links, *page.fetched):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                yield f"{path.name}: {link}"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                yield f"{path.name}: {link} has no such heading"


def test_every_link_holds(pages: dict[Path, References]) -> None:
    assert len(pages) > 100
    assert list(broken(pages)) == []


def test_site_fetches_nothing(site: Path, pages: dict[Path, References]) -> None:
    elsewhere = {link for page in pages.values() for link in page.fetched if urlsplit(link).netloc}
    assert elsewhere == set()
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?https?:|@import", sheet.read_text()), sheet.name


def test_every_page_is_in_the_site_and_in_the_search(site: Path) -> None:
    places = {page.name.removesuffix(".md") for page in all_pages()} - {"README"} | {"about", "index"}
    built = {path.relative_to(site).as_posix().removesuffix(".html") for path in site.rglob("*.html")}
    assert {name.replace("README", "index") for name in places} <= built
    text = (site / "search/search_index.js").read_text()
    index = json.loads(text[text.index("{") : text.rindex("}") + 1])
    found = {entry["location"].partition("#")[0].removesuffix(".html") for entry in index["docs"]}
    assert {name.replace("README", "index") for name in places} <= found
    assert not any(name.startswith("source/") for name in found), "sources are shown, not searched"


def test_front_page_has_picture_recording_and_table(site: Path) -> None:
    text = (site / "index.html").read_text()
    for image in ("docs/images/system.svg", "docs/images/demo.svg"):
        assert f'src="{image}"' in text
        assert (site / image).read_text().startswith("<svg")
    assert "What it replaces" in text
    assert "<table>" in text


def test_a_folder_with_other_files_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("mine")
    done = subprocess.run(
        [sys.executable, ROOT / "tests/docs/site.py", "--into", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == f"{tmp_path} holds something else than the site: give a folder of its own\n"
    assert (tmp_path / "index.html").read_text() == "mine"
