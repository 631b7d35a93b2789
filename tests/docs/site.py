"""Build the documentation as a static site in build/site; every link is checked.

    python tests/docs/site.py [--into FOLDER]

The pages are those that the tests of this folder run: README, CONTRIBUTING and CHANGELOG, docs/, the READMEs
of packages, examples and the chart. They keep their places, so links between them hold. A link to a source
file or a folder leads to a page that shows it. MkDocs makes the site, with search, and refuses a link that
leads nowhere. The site needs no server and fetches nothing: it can be opened from the disk.
"""

from __future__ import annotations

import argparse
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

sys.path.insert(0, str(next(folder for folder in Path(__file__).parents if folder.name == "tests")))

from support.places import ROOT

from docs.pages import Page, all_pages

FOLDER: Final = ROOT / "docs/site"
CONFIGURATION: Final = FOLDER / "mkdocs.yml"
SECTIONS: Final = ("Tutorial", "How-to guides", "Reference", "Explanation")
"""The headings of docs/index.md whose lists make the menu."""
_LINK: Final = re.compile(r"(?P<before>\]\()(?P<path>[^()\s#]*)(?P<anchor>#[^()\s]*)?(?P<after>\))")
_FENCED: Final = re.compile(r"^(`{3,})", re.MULTILINE)
_LANGUAGES: Final = {
    ".go": "go", ".java": "java", ".json": "json", ".md": "markdown", ".proto": "protobuf", ".py": "python",
    ".rs": "rust", ".sh": "sh", ".toml": "toml", ".ts": "typescript", ".yaml": "yaml", ".yml": "yaml",
}  # fmt: skip


_WORKER: Final = "https://unpkg.com/iframe-worker/shim"
"""The script that MkDocs' theme fetches to search pages from the disk; `worker_from_disk.js` replaces it."""


class SiteError(Exception):
    """The site could not be built; the message says why."""


class Staging:
    """A folder with the pages as MkDocs reads them. `pages`: by their path in the repository."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pages = {page.name: page for page in all_pages()}
        self._sources: set[str] = set()

    def fill(self) -> None:
        """Write all pages, and those of the sources that they link to."""
        for name, page in self._pages.items():
            self._write(_staged(name), self._with_links(page.text, name))
        self._write("index.md", self._with_links(front_page(), "index.md"))
        shutil.copytree(ROOT / "docs/images", self._folder / "docs/images", dirs_exist_ok=True)
        written: set[str] = set()
        while left := self._sources - written:
            for name in sorted(left):
                self._write_source(name)
            written |= left

    def _write(self, name: str, text: str) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def _with_links(self, text: str, name: str) -> str:
        """Return the text with links that hold in the site; code blocks stay as they are."""
        parts = _FENCED.split(text)
        # Text, fence, code, fence, text, ...: a block is what stands between two equal fences.
        result, fence = [], ""
        for part in parts:
            if part.startswith("```") and not part.strip("`"):
                fence = "" if part == fence else fence or part
                result.append(part)
            elif fence:
                result.append(part)
            else:
                result.append(_LINK.sub(lambda found: self._link(found, name), part))
        return "".join(result)

    def _link(self, found: re.Match[str], name: str) -> str:
        path, anchor = found["path"], found["anchor"] or ""
        if not path or "://" in path:
            return found[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
        if target in self._pages:
            staged = _staged(target)
        elif target.startswith("docs/images/"):
            staged = target
        elif (ROOT / target).exists():
            self._sources.add(target)
            staged, anchor = _source_page(target), ""
        else:
            raise SiteError(f"{name}: {path} does not exist")
        relative = posixpath.relpath(staged, posixpath.dirname(_staged(name)) or ".")
        return f"{found['before']}{relative}{anchor}{found['after']}"

    def _write_source(self, name: str) -> None:
        path = ROOT / name
        title = f"---\ntitle: {name}\nsearch: {{exclude: true}}\n---\n\n# `{name}`\n\n"
        if path.is_dir():
            inside = sorted(_tracked(name))
            for one in inside:
                if one not in self._pages:
                    self._sources.add(one)
            lines = [self._item(one, name) for one in inside]
            self._write(_source_page(name), title + "\n".join(lines) + "\n")
            return
        language = _LANGUAGES.get(path.suffix, "text")
        text = path.read_text(encoding="utf-8")
        fence = "`" * (max((len(found) for found in _FENCED.findall(text)), default=2) + 1)
        self._write(_source_page(name), f"{title}{fence}{language}\n{text}\n{fence}\n")

    def _item(self, name: str, folder: str) -> str:
        staged = _staged(name) if name in self._pages else _source_page(name)
        target = posixpath.relpath(staged, posixpath.dirname(_source_page(folder)))
        return f"- [{posixpath.relpath(name, folder)}]({target})"


def _staged(name: str) -> str:
    """Return the place of a page: MkDocs takes a README for the first page of its folder."""
    return "about.md" if name == "README.md" else name


def _source_page(name: str) -> str:
    return f"source/{name}.md"


def _tracked(folder: str) -> list[str]:
    """Return the text files right in a folder, and in folders below it that have no page of their own."""
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", folder],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = [name for name in done.stdout.split() if name.count("/") - folder.count("/") <= 1]
    return [name for name in found if (ROOT / name).suffix in _LANGUAGES]


def front_page() -> str:
    """Return the first page: what README.md says first, the picture, the recording and the table."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first = readme.split("\n\n")[1]
    start = readme.index("## What it replaces")
    table = readme[start : readme.index("\n## ", start)]
    return (
        "---\ntitle: berth\nhide: [navigation, toc]\n---\n\n# berth\n\n"
        f"{first}\n\n"
        "![API server, host and plugins in processes of their own]"
        "(docs/images/system.svg)\n\n"
        "[Your first plugin](docs/tutorial/first-plugin.md) ·"
        " [Run on a cluster](docs/how-to/run-on-a-cluster.md) ·"
        " [All pages](docs/index.md) · [README](README.md)\n\n"
        "`make demo` schedules 237 pods on 23 nodes with three plugins in processes of their own:\n\n"
        "![A recording of make demo](docs/images/demo.svg)\n\n"
        f"{table}\n"
    )


def menu() -> list[dict[str, Any]]:
    """Return the menu, from the lists of docs/index.md."""
    page = Page(ROOT / "docs/index.md")
    lines = page.text.splitlines()
    entries: dict[str, list[str]] = {}
    here = ""
    for line in lines:
        if line.startswith("## "):
            here = line.removeprefix("## ").strip()
        elif here in SECTIONS:
            for found in _LINK.finditer(line):
                target = posixpath.normpath(posixpath.join("docs", found["path"]))
                entries.setdefault(here, []).append(_staged(target))
    missing = set(SECTIONS) - entries.keys()
    if missing:
        raise SiteError(f"docs/index.md has no list under {', '.join(sorted(missing))}")
    more = ["docs/index.md", "about.md", "CONTRIBUTING.md", "CHANGELOG.md"]
    return [
        {"Home": "index.md"},
        *({section: list(dict.fromkeys(entries[section]))} for section in SECTIONS),
        {"More": more},
    ]


def configuration(staged: Path, into: Path) -> Mapping[str, Any]:
    """Return MkDocs' configuration with these folders."""
    settings: dict[str, Any] = yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8"))
    return settings | {"docs_dir": str(staged), "site_dir": str(into), "nav": menu()}


def build(into: Path) -> None:
    """Build the site in place of an earlier one.

    Raises SiteError with what MkDocs found, and for a folder that holds anything else.
    """
    worker = Path("assets/javascripts/worker_from_disk.js")
    if into.exists() and not (into / worker).exists() and (not into.is_dir() or any(into.iterdir())):
        raise SiteError(f"{into} holds something else than the site: give a folder of its own")
    with tempfile.TemporaryDirectory(prefix="berth-site-") as folder:
        staged = Path(folder) / "pages"
        Staging(staged).fill()
        path = Path(folder) / "mkdocs.yml"
        made = Path(folder) / "site"
        path.write_text(yaml.safe_dump(dict(configuration(staged, made))), encoding="utf-8")
        command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--clean", "-f", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SiteError(done.stdout + done.stderr)
        shutil.copy(FOLDER / worker.name, made / worker)
        for page in made.rglob("*.html"):
            text = page.read_text(encoding="utf-8")
            inside = posixpath.relpath(worker.as_posix(), page.parent.relative_to(made).as_posix())
            page.write_text(text.replace(_WORKER, inside), encoding="utf-8")
        shutil.rmtree(into, ignore_errors=True)
        into.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(made, into)


def main(argv: Sequence[str] | None = None) -> int:
    """Build the site, print where it is, and return the exit code."""
    parser = argparse.ArgumentParser(description="Build the documentation as a static site.")
    parser.add_argument(
        "--into", type=Path, default=ROOT / "build/site", help="the folder (default: build/site)"
    )
    into = parser.parse_args(argv).into.resolve()
    try:
        build(into)
    except SiteError as err:
        print(err, file=sys.stderr)
        return 1
    print(f"the site: {into / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
