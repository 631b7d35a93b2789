"""The tests of pages find mistakes: each wrong page here makes them fail."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.pages import Page
from docs.reference.sections import filled
from docs.workspace import BlockError, Workspace

CONFIGURATION = """\
```yaml
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
{}
```
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Make a folder with a short path, for sockets."""
    with tempfile.TemporaryDirectory(prefix="berth-docs-") as name:
        yield Path(name)


def page_of(folder: Path, text: str) -> Page:
    path = folder / "page.md"
    path.write_text(text, encoding="utf-8")
    return Page(path)


def run(folder: Path, text: str) -> None:
    workspace = Workspace(page_of(folder, text), folder)
    try:
        workspace.run()
    finally:
        workspace.close()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("```console\n$ echo one\ntwo\n```\n", id="other output"),
        pytest.param("```console\n$ false\n```\n", id="a command that fails"),
        pytest.param("<!-- exit: 2 -->\n```sh\ntrue\n```\n", id="a command that should fail"),
        pytest.param("```sh\nfalse\ntrue\n```\n", id="a step that fails"),
        pytest.param("```python\nassert 1 == 2\n```\n", id="an assertion"),
        pytest.param("```python\n>>> 1 + 1\n3\n```\n", id="an example"),
        pytest.param("```json\n{1: 2}\n```\n", id="no JSON"),
        pytest.param(CONFIGURATION.format("profile: []"), id="an unknown field"),
        pytest.param("```yaml\n{apiVersion: v1, kind: Pod, metadata: {}}\n```\n", id="a pod without a name"),
        pytest.param("<!-- run: refused -->\n" + CONFIGURATION.format("profiles: []"), id="a good file"),
    ],
)
def test_a_block_that_does_not_do_what_it_says_is_named(folder: Path, text: str) -> None:
    with pytest.raises(BlockError, match=r"page\.md:[12]: "):
        run(folder, text)


def test_blocks_share_a_folder_and_their_names(folder: Path) -> None:
    run(
        folder,
        "<!-- file: one.py -->\n```python\nONE = 1\n```\n"
        "```python\nfrom pathlib import Path\n```\n"
        "```python\nassert Path('/tmp/berth/one.py').read_text() == 'ONE = 1\\n'\n```\n"
        "```console\n$ cat one.py\nONE = 1\n$ echo a; \\\n  echo b\na\n...\n```\n",
    )


LATE = "waiting for plugin P (berth-sdk serve p:P), at most 60 s each time: it has not answered yet"


def test_plugin_that_starts_slowly_is_heard_only_where_the_page_shows_it(folder: Path) -> None:
    run(folder, f"```console\n$ echo '{LATE}'; echo done\ndone\n```\n")
    run(folder, f"```console\n$ echo '{LATE}'; echo done\n{LATE}\ndone\n```\n")
    with pytest.raises(BlockError, match=r"page\.md:1: "):
        run(folder, f"```console\n$ echo done\n{LATE}\ndone\n```\n")


def test_a_server_runs_beside_the_blocks_that_follow_it(folder: Path) -> None:
    server = "sh -c 'echo serving; exec sleep 60'"
    run(folder, f"<!-- run: background -->\n```sh\n{server}\n```\n```sh\ntrue\n```\n")


def test_server_that_ended_is_reported(folder: Path) -> None:
    with pytest.raises(RuntimeError, match="does not serve"):
        run(folder, "<!-- run: background -->\n```sh\necho bye\n```\n")


def test_directives_belong_to_the_next_block_alone(folder: Path) -> None:
    page = page_of(
        folder, "<!-- exit: 2 -->\ntext\n```sh\n```\n\n<!-- run: elsewhere -->\n```sh\n```\n```sh\n```\n"
    )
    assert [dict(block.directives) for block in page.blocks] == [{}, {"run": "elsewhere"}, {}]


def test_a_fence_that_does_not_close_is_an_error(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"page\.md:1: this fence does not close"):
        _ = page_of(folder, "```sh\ntrue\n").blocks


def test_links_and_headings_are_found_outside_of_blocks(folder: Path) -> None:
    text = (
        "# A `b` title!\n\n[x](y.md#z) and [w](https://example.com) and `[no](no.md)`\n"
        "```text\n# no\n[no](no)\n```\n"
    )
    page = page_of(folder, text)
    assert page.anchors == {"a-b-title"}
    assert [(link.path, link.anchor, link.line) for link in page.links] == [("y.md", "z", 3)]


def test_outdated_part_is_generated_again() -> None:
    page = "before\n<!-- made: limits -->\nold\n<!-- end: limits -->\nafter\n"
    new = filled(page)
    assert "cycleBudget" in new
    assert "old" not in new
    assert filled(new) == new


def test_a_part_that_no_section_makes_is_an_error() -> None:
    with pytest.raises(KeyError):
        filled("<!-- made: nothing -->\n<!-- end: nothing -->\n")
