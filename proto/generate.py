"""Sources (`proto/berth`) -> generated code (`plugin` and `query` of `sdk/berth_sdk`), and its checks.

python proto/generate.py                     write the generated code
python proto/generate.py --check             change nothing; exit 1 with a line for each finding
python proto/generate.py --check --release   the same, and a finding for each change that breaks a host or a
                                             plugin of an earlier release (`make check`)
python proto/generate.py --release MINOR     keep the contract as it is now as a release, in proto/released

The contract with plugins is `berth.plugin`. `berth.query`, the service for other programs, has the same rules
for names and comments and is checked for drift. The releases leave it out: a plugin never sees it, it has
versions of its own, and none of them is released yet.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from protocheck import breaking, comments, compiler, drift, names, released, reserved

PROTO_ROOT = Path(__file__).resolve().parent
OUT_ROOT = PROTO_ROOT.parent / "sdk" / "berth_sdk"


def main() -> int:
    """Run the command line; 0 if all is well, 1 with findings on standard error."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare and lint, change nothing")
    parser.add_argument(
        "--release",
        nargs="?",
        const="",
        metavar="MINOR",
        help="with --check: compare with every release; without: keep the contract as release 1.MINOR",
    )
    options = parser.parse_args()
    if options.check == bool(options.release):
        if options.check:
            parser.error("--check --release takes no MINOR")
        if options.release == "":
            parser.error("--release without --check needs the MINOR of the release, as in `--release 1`")
    try:
        if options.check:
            return _check(with_releases=options.release is not None)
        return _write() if options.release is None else _release(options.release)
    except compiler.CompilerError as err:
        print(err, file=sys.stderr)
        return 1


def _write() -> int:
    """Write the generated code and remove what has no source any more."""
    fresh = _fresh()
    for path in drift.stale_files(fresh, OUT_ROOT):
        path.unlink()
        print(f"removed {path}")
    for name, text in fresh.items():
        (OUT_ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (OUT_ROOT / name).write_bytes(text.encode())
    print(f"wrote {len(fresh)} files below {OUT_ROOT}")
    return 0


def _fresh() -> dict[str, str]:
    """Return every file of the SDK that is made from the sources."""
    return compiler.generate(PROTO_ROOT, (compiler.SOURCE_PREFIX, compiler.QUERY_PREFIX))


def _check(*, with_releases: bool) -> int:
    contract = compiler.describe(PROTO_ROOT)
    query = compiler.describe(PROTO_ROOT, compiler.QUERY_PREFIX)
    findings = [
        *names.check(contract),
        *names.check(query),
        *comments.check(contract),
        *comments.check(query),
        *reserved.check(contract),
        *drift.check(_fresh(), OUT_ROOT),
    ]
    kept = released.releases(PROTO_ROOT) if with_releases else []
    if with_releases and not kept:
        raise compiler.CompilerError(
            f"{PROTO_ROOT / released.FOLDER} has no release to compare with: restore the folder from git"
        )
    for release in kept:
        before = release.describe()
        findings += [f"{found} [of {release.name}]" for found in breaking.check(before, contract)]
        for place in breaking.reworded(before, contract):
            print(f"{place} is worded otherwise than in {release.name}: its meaning must be the same")
    return _report(findings)


def _release(minor: str) -> int:
    """Keep the contract as a release. A release that exists is never written over."""
    contract = compiler.describe(PROTO_ROOT)
    findings = [*names.check(contract), *comments.check(contract), *reserved.check(contract)]
    for release in released.releases(PROTO_ROOT):
        findings += [f"{found} [of {release.name}]" for found in breaking.check(release.describe(), contract)]
    if findings:
        return _report(findings)
    print(f"kept as {released.keep(PROTO_ROOT, minor).name}")
    return 0


def _report(findings: list[str]) -> int:
    for finding in findings:
        print(finding, file=sys.stderr)
    print(f"contract: {len(findings)} findings" if findings else "contract: no findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
