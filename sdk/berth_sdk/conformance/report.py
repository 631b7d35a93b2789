"""Reports of the kit: text for people, JSON, and JUnit's XML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from berth_sdk.conformance.run import Report, Result

_NOT_IN_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def line(result: Result) -> str:
    """Return one case as a line."""
    text = f"{result.result}  {result.case.id}"
    return f"{text}: {shown(result.detail)}" if result.detail else text


def shown(text: str) -> str:
    """Return what a server said, for a terminal: control characters are escaped, later lines indented."""
    return "\n      ".join(_escaped(part) for part in text.split("\n"))


def _escaped(text: str) -> str:
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def verdict(report: Report) -> str:
    """Return the closing line: `NAME: conformant, 57 passed, 0 failed`.

    Where cases lack an option: `NAME: conformant as far as asked: 15 cases need --pod; 42 passed, ...`.
    """
    skipped = report.count("skip")
    counts = f"{report.count('pass')} passed, {report.count('fail')} failed"
    if skipped:
        counts += f", {skipped} skipped"
    name = _escaped(report.plugin or report.endpoint)
    if report.conforms and report.unasked:
        lacks = ", ".join(
            f"{count} {'case needs' if count == 1 else 'cases need'} {option}"
            for option, count in sorted(report.unasked.items(), key=lambda item: (-item[1], item[0]))
        )
        return f"{name}: conformant as far as asked: {lacks}; {counts}"
    if not report.count("pass") and not report.count("fail"):
        return f"{name}: not conformant, no case was run ({skipped} skipped)"
    return f"{name}: {'conformant' if report.conforms else 'not conformant'}, {counts}"


def refused_arguments(report: Report) -> str:
    """Return the one line about a plugin that refuses its arguments."""
    return f"{_escaped(report.plugin)}: not conformant: {shown(report.results[0].detail)}"


def document(report: Report) -> dict[str, Any]:
    """Return a report as JSON."""
    return {
        "endpoint": report.endpoint,
        "plugin": report.plugin,
        "points": report.points,
        "cases": [
            {
                "id": one.case.id,
                "point": one.case.point,
                "level": one.case.level,
                "result": one.result,
                "detail": one.detail,
                "needs": one.needs,
            }
            for one in report.results
        ],
        "passed": report.count("pass"),
        "failed": report.count("fail"),
        "skipped": report.count("skip"),
    }


def junit(reports: Sequence[Report]) -> bytes:
    """Return reports as JUnit's XML, one suite for each plugin."""
    root = ElementTree.Element("testsuites")
    for report in reports:
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=_clean(f"berth.conformance.{report.plugin}"),
            tests=str(len(report.results)),
            failures=str(report.count("fail")),
            skipped=str(report.count("skip")),
            time=f"{sum(one.seconds for one in report.results):.3f}",
        )
        for one in report.results:
            found = ElementTree.SubElement(
                suite,
                "testcase",
                classname=_clean(f"{report.plugin}.{one.case.level}"),
                name=one.case.id,
                time=f"{one.seconds:.3f}",
            )
            if one.result == "fail":
                ElementTree.SubElement(found, "failure", message=_clean(one.detail)).text = one.case.title
            elif one.result == "skip":
                ElementTree.SubElement(found, "skipped", message=_clean(one.detail))
    return _written(root)


def junit_of_error(text: str) -> bytes:
    """Return JUnit's XML of a run that came to no result: one suite with one error."""
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(
        root, "testsuite", name="berth.conformance", tests="1", failures="0", errors="1", skipped="0"
    )
    found = ElementTree.SubElement(suite, "testcase", classname="berth.conformance", name="run", time="0.000")
    ElementTree.SubElement(found, "error", message=_clean(text))
    return _written(root)


def _written(root: ElementTree.Element) -> bytes:
    ElementTree.indent(root)
    written: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _clean(text: str) -> str:
    """Return text with characters that XML can hold."""
    return _NOT_IN_XML.sub("?", text)
