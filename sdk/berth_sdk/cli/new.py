"""`berth-sdk new`: the folder of a plugin that runs, with its test, configuration, image and CI."""

from __future__ import annotations

import builtins
import collections.abc
import keyword
import re
import shlex
import shutil
import sys
import tempfile
import typing
from argparse import Namespace
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from typing import Final

import berth_sdk
from berth_sdk.cli import new_compiled, new_python
from berth_sdk.cli.new_python import Naming
from berth_sdk.extension_points import ExtensionPoint

_BAD_INPUT: Final = 2
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_TAKEN: Final = frozenset(
    {
        "aiohttp",
        "attr",
        "berth",
        "berth_bench",
        "berth_host",
        "berth_plugins",
        "berth_sdk",
        "click",
        "cryptography",
        "google",
        "grpc",
        "grpc_health",
        "grpc_reflection",
        "hpack",
        "httptools",
        "kubernetes",
        "numpy",
        "opentelemetry",
        "orjson",
        "packaging",
        "pluggy",
        "prometheus_client",
        "pytest",
        "rich",
        "structlog",
        "test",  # Python's own, which sys.stdlib_module_names leaves out
        "tests",
        "typing_extensions",
        "uvloop",
        "watchfiles",
        "yaml",
    }
)
"""Modules that the plugin, its test or the host imports: one of the same name would hide them."""
DEFAULT_PLUGINS: Final = frozenset(
    {
        "Coscheduling",
        "DefaultBinder",
        "DefaultPreemption",
        "DynamicResources",
        "GangScheduling",
        "ImageLocality",
        "InterPodAffinity",
        "NodeAffinity",
        "NodeDeclaredFeatures",
        "NodeName",
        "NodePorts",
        "NodeResourcesBalancedAllocation",
        "NodeResourcesFit",
        "NodeUnschedulable",
        "NodeVolumeLimits",
        "PodGroupPodsCount",
        "PodTopologySpread",
        "PrioritySort",
        "SchedulingGates",
        "TaintToleration",
        "TopologyPlacementGenerator",
        "VolumeBinding",
        "VolumeRestrictions",
        "VolumeZone",
    }
)
"""The plugins that every host has. One of the same name would take the place of a default plugin."""
_GROUPS: Final = "docs/how-to/write-a-group-plugin.md"


class NewError(Exception):
    """An error of the command, with its cure."""


def new(options: Namespace) -> int:
    """Write the folder. Returns 0.

    2: a name, point or folder cannot be used, or the language's tools are missing; nothing is written.
    """
    try:
        points = points_of(options.points)
        folder = Path(options.folder or options.name)
        naming, files, then = _made(options.language, options.name, points)
        write(folder, files)
    except NewError as err:
        print(f"berth-sdk new: {err}", file=sys.stderr)
        return _BAD_INPUT
    print(f"{folder}: {naming.cls} at {', '.join(point.config_name for point in points)}. Next:")
    print(f"  cd {shlex.quote(str(folder))} && {then[0]}")
    for command in (*then[1:], "berth simulate -f cluster.yaml --config scheduler.yaml"):
        print(f"  {command}")
    return 0


def _made(
    language: str, name: str, points: Sequence[ExtensionPoint]
) -> tuple[Naming, dict[str, str], Sequence[str]]:
    """Return the plugin's names, its files, and the commands that come next. Raises NewError."""
    check_form(name)
    if (cls := _class_name(name)) in DEFAULT_PLUGINS:
        raise NewError(f"{cls} is a plugin that every host has: add a word, as in {name}-rule")
    if language == "python":
        naming = naming_in_python(name)
        then = ["pip install -e '.[test]' && pytest", f"berth-sdk check {naming.module}:{naming.cls}"]
        return naming, new_python.files(naming, points, version("berth-sdk")), then
    naming = Naming(name=name, module=name.replace("-", ""), cls=cls)
    if taken := new_compiled.conflict(language, naming):
        raise NewError(f"{taken}: add a word, as in {name}-plugin")
    if missing := new_compiled.missing_tool(language):
        raise NewError(missing)
    return naming, new_compiled.files(language, naming, points), new_compiled.LANGUAGES[language].then


def _class_name(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("-"))


def check_form(name: str) -> None:
    """Raise NewError unless the name is one such as rack-aware."""
    if not _NAME.fullmatch(name) or len(name) > 63:
        near = re.sub(r"[^a-z0-9]+", "-", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()).strip("-")
        hint = f": did you mean {near}?" if _NAME.fullmatch(near) and len(near) <= 63 else ""
        if len(name) > 63:
            hint = f"; at most 63 characters, not {len(name)}"
        raise NewError(
            f"{name!r} is no name: write words in lower case with '-' between them, as rack-aware{hint}"
        )


def naming_in_python(name: str) -> Naming:
    """Return the names that follow from NAME. Raises NewError for one that hides another."""
    module = name.replace("-", "_")
    if keyword.iskeyword(module) or module in sys.stdlib_module_names or module in _TAKEN:
        raise NewError(
            f"{name!r} is a name of Python's own, of berth, or of a package that berth imports: add a word,"
            f" as in {name}-plugin"
        )
    cls = _class_name(name)
    if keyword.iskeyword(cls) or hasattr(builtins, cls):
        raise NewError(f"{cls} is a name of Python's own: add a word, as in {name}-rule")
    if any(hasattr(imported, cls) for imported in (berth_sdk, typing, collections.abc)):
        raise NewError(f"{cls} is a class that plugins import: add a word, as in {name}-rule")
    return Naming(name=name, module=module, cls=cls)


def points_of(text: str) -> Sequence[ExtensionPoint]:
    """Return the points that a list such as "filter,score" names, in their order. Raises NewError."""
    known = {point.config_name: point for point in new_python.POINTS}
    of_groups = {point.config_name for point in ExtensionPoint} - known.keys()
    wanted = [word.strip() for word in text.split(",") if word.strip()]
    for word in wanted:
        if word in of_groups:
            raise NewError(f"{word} is a point of groups of pods: write it by hand, see {_GROUPS}")
        if word not in known:
            near = get_close_matches(word, known, n=1, cutoff=0.5)
            cure = f"did you mean {near[0]}?" if near else f"the points are {', '.join(known)}"
            raise NewError(f"{word!r} is no extension point: {cure}")
    if not wanted:
        raise NewError(f"--points names no extension point: the points are {', '.join(known)}")
    for word, beside in (("normalizeScore", "score"), ("preScore", "score")):
        if word in wanted and beside not in wanted:
            raise NewError(f"{word} has no effect without {beside}: write --points {text},{beside}")
    return [point for name, point in known.items() if name in wanted]


def write(folder: Path, files: dict[str, str]) -> None:
    """Write all files into `folder`, or none. Raises NewError if the folder has anything in it already."""
    is_there = folder.exists()
    if is_there and not folder.is_dir():
        raise NewError(f"{folder} is a file: choose another NAME, or --folder")
    try:
        if is_there and any(folder.iterdir()):
            raise NewError(f"{folder} exists and is not empty: choose another NAME, or --folder")
        # In the folder itself if it exists: it may be the working folder, or a link.
        parent = folder if is_there else folder.parent
        parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=parent))
    except OSError as err:
        raise NewError(f"{folder}: {err.strerror}: choose another --folder") from err
    moved: list[Path] = []
    try:
        for name, text in files.items():
            path = fresh / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            if text.startswith("#!"):
                path.chmod(0o755)
        if is_there:
            for path in sorted(fresh.iterdir()):
                moved.append(path.rename(folder / path.name))
        else:
            fresh.chmod(0o755)
            fresh.rename(folder)
    except OSError as err:
        for path in moved:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise NewError(f"{folder}: {err.strerror}: choose another --folder") from err
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
