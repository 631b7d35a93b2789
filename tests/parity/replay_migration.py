"""Migrate recorded configurations with `berth migrate`, and compare what its result means.

    python tests/parity/replay_migration.py [--emulated-version VERSION] [--files FOLDER] DIR

DIR has the recordings of `replay_config.py`. For each record the command migrates the input into a folder,
`berth check-config` reads the result, and a second migration must change nothing, byte for byte. Compared
with the recording:

- with the record's plugins of other projects (`--plugin`): everything;
- without them: the part of the default plugins. A profile whose only QueueSort or Bind plugin was left out
  must have PrioritySort or DefaultBinder there;
- an older form, which kube-scheduler 1.36 refuses: the recording of the same file as v1;
- a refused input must be refused, and nothing written. An input that names plugins that nobody has may be
  accepted without these plugins. So is a Policy, whose meaning is not recorded.

`--files`: also the files of a folder, each of which must be the input of a record. Prints one JSON line with
the number of records, how many are identical, and the first difference; exits 0 only if all are identical.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from berth_host.cli.main import berth
from berth_host.config.decoding.types_v1 import API_VERSION, GROUP
from berth_host.config.default_plugins import DEFAULT_PLUGINS_BY_NAME
from click.testing import CliRunner, Result

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from parity.replay_config import Record, first_difference, read_records
from support.emulated_version import OLDEST, add_option

FILE: Final = "scheduler.yaml"
NEEDED: Final = {"queueSort": "PrioritySort", "bind": "DefaultBinder"}
"""The points that every profile needs a plugin at, and the default plugin of each."""
EMPTY: Final = "empty-config"
"""The record of a configuration without a field."""
_VARIANTS: Final = ("-unregistered", "-registered", "-as-v1")
_REFUSED: Final = 2


class MigrationError(Exception):
    """A record whose migration is not as recorded."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a migration and of check-config; both None if the input was refused."""

    text: str | None
    shown: Record | None


def migrated(given: Record, plugins: Mapping[str, Sequence[str]], emulated_version: str) -> Outcome:
    """Migrate a record's input twice, and check the result. Raises MigrationError."""
    gates = [f"--feature-gates={name}={'true' if on else 'false'}" for name, on in _gates(given)]
    if emulated_version:
        gates.append(f"--emulated-version={emulated_version}")
    named = [f"--plugin={name}={','.join(points)}" for name, points in plugins.items()]
    with tempfile.TemporaryDirectory(prefix="berth-migrate-") as folder:
        old, first, second = (Path(folder, name) for name in ("old.yaml", "first", "second"))
        old.write_bytes(given["input"].encode())
        done = _run("migrate", str(old), "-o", str(first), *gates, *named)
        if done.exit_code == _REFUSED:
            if first.exists() or not done.stderr.strip():
                raise MigrationError("it was refused without a message, or something was written")
            return Outcome(None, None)
        if done.exit_code:
            raise MigrationError(f"exit code {done.exit_code}: {done.stderr}")
        written = first / FILE
        checked = _run("check-config", str(written), "--no-convert", "-o", "json", *gates, *named)
        if checked.exit_code:
            raise MigrationError(f"check-config refuses the result: {checked.stdout}")
        again = _run("migrate", str(written), "-o", str(second), *gates, *named)
        if again.exit_code or [file.name for file in second.iterdir()] != [FILE]:
            raise MigrationError(f"the second migration is no identity: {again.stderr}")
        if (second / FILE).read_bytes() != written.read_bytes():
            raise MigrationError("the second migration changes the file")
        shown = json.loads(checked.stdout)
        return Outcome(
            written.read_text(encoding="utf-8"), {key: shown[key] for key in ("config", "profiles")}
        )


def _gates(given: Record) -> list[tuple[str, bool]]:
    return list(given.get("featureGates", {}).items())


def _run(*words: str) -> Result:
    return CliRunner().invoke(berth, words, catch_exceptions=False)


def in_tree(meaning: Record) -> Record:
    """Return the part of a resolved configuration that default plugins have."""
    return {
        "config": meaning["config"],
        "profiles": [_profile_in_tree(profile) for profile in meaning["profiles"]],
    }


def _profile_in_tree(profile: Record) -> Record:
    sets = {
        point: {
            name: kept
            for name, entries in plugin_set.items()
            if (kept := [one for one in entries if one["name"] == "*" or _is_default(one)])
        }
        for point, plugin_set in profile["mergedPlugins"].items()
    }
    plugins = {
        point: [one for one in listed if _is_default(one)] for point, listed in profile["plugins"].items()
    }
    by_name = sorted(profile["pluginConfig"], key=lambda entry: entry["name"])
    return {
        "schedulerName": profile["schedulerName"],
        "percentageOfNodesToScore": profile["percentageOfNodesToScore"],
        "plugins": {point: listed for point, listed in plugins.items() if listed},
        "mergedPlugins": {point: plugin_set for point, plugin_set in sets.items() if plugin_set},
        "pluginConfig": [one for one in profile["pluginConfig"] if _is_default(one)],
        "frameworkPluginConfig": [
            one for one in profile.get("frameworkPluginConfig", by_name) if _is_default(one)
        ],
    }


def _is_default(entry: Record) -> bool:
    return entry["name"] in DEFAULT_PLUGINS_BY_NAME


def without_stand_ins(expected: Record, actual: Record) -> tuple[Record, Record]:
    """Take the needed points out of both where the recording has no default plugin there.

    Raises MigrationError if the result has another plugin than the default one of the point.
    """
    for wanted, got in zip(expected["profiles"], actual["profiles"], strict=False):
        for point, default in NEEDED.items():
            if point in wanted["plugins"]:
                continue
            if got["plugins"].pop(point, None) != [{"name": default}]:
                raise MigrationError(f"{default} is not the plugin at {point}")
            for profile in (wanted, got):
                profile["mergedPlugins"].pop(point, None)
    return expected, actual


@dataclass(frozen=True, slots=True)
class Recordings:
    """All records by name. `emulated_version`: as for `load_configuration`."""

    by_name: Mapping[str, Record]
    emulated_version: str = OLDEST

    def problem(self, record: Record) -> object | None:
        """Return how the migration of a record differs from the recording; None if it does not."""
        given = {key: value for key, value in record.items() if key != "expected"}
        try:
            return next(self._problems(given, record["expected"]), None)
        except Exception as err:  # noqa: BLE001 (the loop over records goes on: this one is not identical)
            return f"{type(err).__name__}: {err}"

    def _problems(self, given: Record, expected: Record) -> Iterator[object]:
        others = given.get("outOfTreePlugins", {})
        version, kind = (_field(given, name) for name in ("apiVersion", "kind"))
        is_older = version != API_VERSION and str(version).startswith(f"{GROUP}/")
        name, lacks = given["name"], bool(others) or _lacks(given)
        kept = migrated(given, others, self.emulated_version)
        left = migrated(given, {}, self.emulated_version) if others else kept
        if "kind" not in expected:
            yield from _difference(name, expected, kept)
            yield from self._in_tree_difference(name, expected, left)
        elif kind == "Policy":
            pass  # no recording tells the meaning of a Policy
        elif is_older:
            yield from self._in_tree_difference(name, self._recorded(given), left)
        elif lacks:
            twin = self._twin(name)
            if twin is not None:
                yield from self._in_tree_difference(name, twin, left)
            elif left.shown is not None and "config" in expected:
                yield from _difference(
                    name, {"config": expected["config"]}, Outcome("", {"config": left.shown["config"]})
                )
        elif kept.shown is not None:
            yield f"{name}: kube-scheduler refuses the file, and the migration accepted it"

    def _in_tree_difference(self, name: str, expected: Record, outcome: Outcome) -> Iterator[object]:
        if outcome.shown is None:
            yield f"{name}: the migration refuses the file"
        else:
            wanted, got = without_stand_ins(in_tree(expected), in_tree(outcome.shown))
            yield from _difference(name, wanted, Outcome("", got))

    def _twin(self, name: str) -> Record | None:
        """Return the recorded result of the same file as v1, with its plugins; None: there is none."""
        base = next((name.removesuffix(one) for one in _VARIANTS if name.endswith(one)), None)
        for variant in _VARIANTS:
            twin = self.by_name.get(f"{base}{variant}")
            if twin is not None and "kind" not in twin["expected"]:
                found: Record = twin["expected"]
                return found
        return None

    def _recorded(self, given: Record) -> Record:
        """Return the recorded result of an older file. Raises MigrationError if nothing tells it."""
        twin = self._twin(given["name"])
        if twin is not None:
            return twin
        # kube-scheduler refuses the file as v1, too, because of its plugins: without them it is the default.
        document = yaml.safe_load(given["input"])
        empty: Record = self.by_name[EMPTY]["expected"]
        profiles = document.get("profiles") or [{}]
        if len(profiles) != 1 or any(
            _names_default(point) for point in profiles[0].get("plugins", {}).values()
        ):
            raise MigrationError("no recording tells what this file means without its plugins")
        profile = empty["profiles"][0] | {
            "schedulerName": profiles[0].get("schedulerName", empty["profiles"][0]["schedulerName"])
        }
        as_v1 = self.by_name.get(
            given["name"].removesuffix("-registered").removesuffix("-unregistered") + "-as-v1"
        )
        config = (as_v1 or {"expected": empty})["expected"]["config"]
        return {"config": config, "profiles": [profile]}


def _names_default(plugin_set: Record) -> bool:
    entries = [*plugin_set.get("enabled", ()), *plugin_set.get("disabled", ())]
    return any(one["name"] == "*" or _is_default(one) for one in entries)


def _difference(name: str, expected: Record, outcome: Outcome) -> Iterator[object]:
    if outcome.shown is None:
        yield f"{name}: the migration refuses the file"
        return
    found = first_difference(name, expected, outcome.shown)
    if found is not None:
        yield {"path": found.path, "expected": found.expected, "actual": found.actual}


def _field(given: Record, name: str) -> object:
    document = _document(given)
    return document.get(name) if isinstance(document, dict) else None


def _document(given: Record) -> Any:
    try:
        return next(iter(yaml.safe_load_all(given["input"])), None)
    except yaml.YAMLError:
        return None


def _lacks(given: Record) -> bool:
    """Return True if a profile of the input enables or configures a plugin that is no default plugin."""
    profiles = _field(given, "profiles")
    return any(
        entry.get("name") not in (None, "", "*") and not _is_default(entry)
        for profile in (profiles if isinstance(profiles, list) else ())
        for entries in (
            (profile or {}).get("pluginConfig"),
            *(
                plugin_set.get("enabled")
                for plugin_set in ((profile or {}).get("plugins") or {}).values()
                if isinstance(plugin_set, dict)
            ),
        )
        for entry in entries or ()
        if isinstance(entry, dict)
    )


def replay(folder: Path, files: Path | None = None, emulated_version: str = OLDEST) -> dict[str, object]:
    """Migrate the records of a folder, and the files of another one; return the printed line."""
    records = list(read_records(folder))
    recordings = Recordings({record["name"]: record for record in records}, emulated_version)
    results = [(record["name"], recordings.problem(record)) for record in records]
    for file in sorted(files.iterdir()) if files is not None else ():
        text = file.read_bytes().decode()
        same = [record for record in records if record["input"] == text]
        problems = [recordings.problem(record) for record in same] or ["no record has this input"]
        results.append((file.name, next((one for one in problems if one is not None), None)))
    differences = [{"name": name, "difference": one} for name, one in results if one is not None]
    return {
        "records": len(results),
        "identical": len(results) - len(differences),
        "first_difference": differences[0] if differences else None,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Migrate recorded scheduler configurations.")
    add_option(parser)
    parser.add_argument("--files", type=Path, metavar="FOLDER", help="files that are inputs of records")
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder with *.jsonl or *.jsonl.gz")
    given = parser.parse_args(argv)
    result = replay(given.folder, given.files, given.emulated_version)
    print(json.dumps(result))
    return 0 if result["records"] and result["identical"] == result["records"] else 1


if __name__ == "__main__":
    sys.exit(main())
