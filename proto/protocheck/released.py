"""The releases of the contract: copies of its files in `proto/released/MAJOR.MINOR`, which never change.

Called by `generate.py --release`, and by tests that build old peers from the copies.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from protocheck import compiler

FOLDER: Final = "released"
MAJOR: Final = 1
"""The major whose package is `berth.plugin.v1`. Each major has a package, and so releases, of its own."""

_NAME: Final = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, order=True)
class Release:
    """One release. `root`: the folder with its files, which is a proto root."""

    major: int
    minor: int
    root: Path

    @property
    def name(self) -> str:
        """The version as in ContractVersion, "1.0"."""
        return f"{self.major}.{self.minor}"

    def describe(self) -> FileDescriptorSet:
        """Return the descriptors of its files, comments included. Raises CompilerError."""
        return compiler.describe(self.root)


def releases(proto_root: Path) -> list[Release]:
    """Return the releases, the oldest first; empty: nothing was released.

    Raises CompilerError if a folder is missing: then no check would know what that release promised.
    """
    found = [
        Release(int(name[1]), int(name[2]), folder)
        for folder in (proto_root / FOLDER).glob("*")
        if (name := _NAME.fullmatch(folder.name))
    ]
    for due, release in enumerate(sorted(found)):
        if (release.major, release.minor) != (MAJOR, due):
            raise compiler.CompilerError(
                f"{proto_root / FOLDER} has {release.name} and no {MAJOR}.{due}: restore that folder from git"
            )
    return sorted(found)


def keep(proto_root: Path, minor: str) -> Release:
    """Copy the contract's files as the release MAJOR.`minor`, the one after the newest.

    Raises CompilerError if `minor` is another number, as a gap or a second copy would be a mistake.
    """
    due = len(releases(proto_root))
    if minor != str(due):
        raise compiler.CompilerError(f"the next release is {MAJOR}.{due}: run `--release {due}`")
    release = Release(MAJOR, due, proto_root / FOLDER / f"{MAJOR}.{due}")
    for path in compiler.source_files(proto_root):
        kept = release.root / path.relative_to(proto_root)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, kept)
    return release
