"""The blocks in Go and TypeScript of the page about other languages do what the page says."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.languages import LANGUAGES, built
from support.places import ROOT

from .pages import DOCS, Page

PAGE = DOCS / "how-to" / "without-the-sdk.md"
# Two reads bring 1 and 2, the third one fails, and the fourth one never ends.
GO = """package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"
)

BLOCK

func main() {
	reads := 0
	v := ReadEvery(20*time.Millisecond, 2*time.Second, func(ctx context.Context) (int, error) {
		if reads++; reads <= 2 {
			return reads, nil
		} else if reads == 3 {
			return 0, errors.New("away")
		}
		<-ctx.Done()
		return 0, ctx.Err()
	})
	value, isThere := v.Get()
	for ; value != 2; value, isThere = v.Get() {
		time.Sleep(time.Millisecond)
	}
	fmt.Println(value, isThere)
	for ; isThere; _, isThere = v.Get() {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("old")
	v.Close()
	fmt.Println("closed")
}
"""
TYPESCRIPT = """
let reads = 0;
const value = new Value<number>(async (signal) => {
  reads += 1;
  if (reads <= 2) return reads;
  if (reads === 3) throw new Error("away");
  return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
}, 20, 2000);
while (value.get() !== 2) await setTimeout(1);
console.log(2, true);
while (value.get() !== undefined) await setTimeout(1);
console.log("old");
value.close();
console.log("closed");
"""
SAID = "2 true\nold\nclosed\n"


def block(language: str) -> str:
    (found,) = (one.text for one in Page(PAGE).blocks if one.language == language)
    return found


def needs(language: str) -> None:
    missing = [tool for tool in LANGUAGES[language].tools if shutil.which(tool) is None]
    if missing and not os.environ.get("CI"):
        pytest.skip(f"{missing[0]} is not on PATH")


@pytest.mark.slow
@pytest.mark.long
def test_value_in_go_is_kept_grows_old_and_is_closed(tmp_path: Path) -> None:
    needs("go")
    (tmp_path / "main.go").write_text(GO.replace("BLOCK\n", block("go")))
    formatted = subprocess.run(
        ["gofmt", "-l", "main.go"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert formatted.stdout == ""
    done = subprocess.run(["go", "run", "main.go"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == SAID, done.stderr
    assert "the value could not be read, and grows older: away" in done.stderr


@pytest.mark.slow
@pytest.mark.long
def test_value_in_typescript_is_kept_grows_old_and_is_closed(tmp_path: Path) -> None:
    needs("typescript")
    built("typescript")
    compiler = ROOT / "examples" / "typescript" / "node_modules" / "typescript" / "bin" / "tsc"
    types = ROOT / "examples" / "typescript" / "node_modules" / "@types"
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "value.ts").write_text(block("typescript") + TYPESCRIPT)
    options = [
        "--strict",
        "--target",
        "es2022",
        "--module",
        "nodenext",
        "--typeRoots",
        str(types),
        "--types",
        "node",
    ]
    compiled = subprocess.run(
        ["node", str(compiler), *options, "value.ts"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert compiled.returncode == 0, compiled.stdout
    done = subprocess.run(["node", "value.js"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == SAID, done.stderr
    assert "the value could not be read, and grows older: Error: away" in done.stderr
