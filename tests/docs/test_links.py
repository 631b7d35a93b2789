"""Links and paths name existing files of the repository, and every page can be reached from the first one."""

from __future__ import annotations

import re
from typing import Final

import pytest

from docs.pages import DOCS, REPOSITORY, Page, all_pages

PAGES = {page.path: page for page in all_pages()}
_FOLDERS: Final = {
    "berth_host": "host",
    "berth_kube": "host",
    "berth_sim": "host",
    "berth_sdk": "sdk",
    "berth_plugins": "plugins",
    "berth_scheduler_plugins": "plugins/scheduler_plugins",
}
_SOURCE: Final = re.compile(
    r"`((?:sdk|host|plugins|tests|proto|berth_host|berth_kube|berth_sim|berth_sdk|berth_plugins|berth_scheduler_plugins)/[\w/.]+)`"
)
"""A file or a folder of the repository; the path of a package may omit the folder above it."""
each_page = pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES.values()])


@each_page
def test_every_link_leads_to_a_file_and_a_heading(page: Page) -> None:
    broken = []
    for link in page.links:
        target = (page.path.parent / link.path).resolve() if link.path else page.path
        if not target.exists() or REPOSITORY not in (target, *target.parents):
            broken.append(f"{page.name}:{link.line}: there is no {link.path}")
        elif link.anchor and (target not in PAGES or link.anchor not in PAGES[target].anchors):
            broken.append(f"{page.name}:{link.line}: {link.path} has no heading #{link.anchor}")
    assert broken == []


@each_page
def test_every_source_that_a_page_names_is_there(page: Page) -> None:
    named = [(path, _FOLDERS.get(path.partition("/")[0], ".")) for path in _SOURCE.findall(page.text)]
    assert [path for path, folder in named if not (REPOSITORY / folder / path).exists()] == []


def test_every_page_can_be_reached_from_the_index() -> None:
    reached = {DOCS / "index.md"}
    waiting = [DOCS / "index.md"]
    while waiting:
        page = PAGES[waiting.pop()]
        for link in page.links:
            target = (page.path.parent / link.path).resolve()
            if target in PAGES and target not in reached:
                reached.add(target)
                waiting.append(target)
    assert sorted(PAGES.keys() - reached) == []


def test_the_readme_leads_to_the_index() -> None:
    assert "docs/index.md" in {link.path for link in PAGES[REPOSITORY / "README.md"].links}


@each_page
def test_every_page_has_one_title(page: Page) -> None:
    titles = [line for line in page.text.splitlines() if line.startswith("# ")]
    outside_blocks = [line for line in titles if not any(line in block.text for block in page.blocks)]
    assert len(outside_blocks) == 1
