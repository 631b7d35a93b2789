"""Contract sources (`proto/berth`) -> generated code (`sdk/berth_sdk/plugin`), and the checks of both.

python proto/generate.py             write the generated code
python proto/generate.py --check     change nothing; exit 1 with a line for each finding (`make check`)

Nothing is released yet, so there is nothing that a change could break: a check of that comes when the
contract is frozen, once plugins in several languages were written against it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from protocheck import comments, compiler, drift, names, reserved

PROTO_ROOT = Path(__file__).resolve().parent
OUT_ROOT = PROTO_ROOT.parent / "sdk" / "berth_sdk"


def main() -> int:
    """Run the command line; 0 if all is well, 1 with findings on standard error."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare and lint, change nothing")
    options = parser.parse_args()
    try:
        return _check() if options.check else _write()
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


def _check() -> int:
    contract = compiler.describe(PROTO_ROOT)
    return _report(
        [
            *names.check(contract),
            *comments.check(contract),
            *reserved.check(contract),
            *drift.check(compiler.generate(PROTO_ROOT), OUT_ROOT),
        ]
    )


def _report(findings: list[str]) -> int:
    for finding in findings:
        print(finding, file=sys.stderr)
    print(f"contract: {len(findings)} findings" if findings else "contract: no findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
