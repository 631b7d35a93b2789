"""Contract sources (`proto/berth`) -> generated code (`sdk/berth_sdk/plugin`), and the checks of both.

python proto/generate.py             write the generated code
python proto/generate.py --check     change nothing; exit 1 with a line for each finding (`make check`)
python proto/generate.py --release   write proto/released/berth-plugin-v1.binpb, what later contracts
                                     are compared with; once per release, refused while --check finds
                                     anything
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from protocheck import breaking, comments, compiler, drift, names, reserved

PROTO_ROOT = Path(__file__).resolve().parent
OUT_ROOT = PROTO_ROOT.parent / "sdk" / "berth_sdk"
RELEASED = PROTO_ROOT / "released" / "berth-plugin-v1.binpb"


def main() -> int:
    """Run the command line; 0 if all is well, 1 with findings on standard error."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="compare and lint, change nothing")
    mode.add_argument("--release", action="store_true", help="record the contract as released")
    options = parser.parse_args()
    try:
        if options.check:
            return _check()
        if options.release:
            return _release()
        return _write()
    except compiler.CompilerError as err:
        print(err, file=sys.stderr)
        return 1


def _write() -> int:
    """Write the generated code and remove what has no source any more."""
    fresh = compiler.generate(PROTO_ROOT)
    for path in drift.stale_files(fresh, OUT_ROOT):
        path.unlink()
        print(f"removed {path}")
    for name, text in fresh.items():
        (OUT_ROOT / name).write_bytes(text.encode())
    print(f"wrote {len(fresh)} files below {OUT_ROOT}")
    return 0


def _check_all(contract: FileDescriptorSet) -> list[str]:
    findings = [
        *names.check(contract),
        *comments.check(contract),
        *reserved.check(contract),
        *drift.check(compiler.generate(PROTO_ROOT), OUT_ROOT),
    ]
    if RELEASED.exists():
        released = FileDescriptorSet.FromString(RELEASED.read_bytes())
        findings += breaking.check(contract, released)
    return findings


def _check() -> int:
    """Every check; a release that nobody can compare with is a finding too."""
    findings = _check_all(compiler.describe(PROTO_ROOT))
    if not RELEASED.exists():
        findings.append(f"{RELEASED}: BREAKING: is missing, nothing to compare with; restore it")
    return _report(findings)


def _release() -> int:
    """Record the contract, comments left out, unless a check finds something."""
    contract = compiler.describe(PROTO_ROOT)
    findings = _check_all(contract)
    if findings:
        return _report(findings)
    for file in contract.file:
        file.ClearField("source_code_info")
    RELEASED.parent.mkdir(exist_ok=True)
    RELEASED.write_bytes(contract.SerializeToString(deterministic=True))
    print(f"wrote {RELEASED}")
    return 0


def _report(findings: list[str]) -> int:
    for finding in findings:
        print(finding, file=sys.stderr)
    print(f"contract: {len(findings)} findings" if findings else "contract: no findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
