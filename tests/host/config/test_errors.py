"""The text of findings."""

from __future__ import annotations

import pytest
from berth_host.config.errors import ConfigurationError, FieldErrorType, Finding, nearest, together


def test_finding_reads_file_line_field_message_and_cure() -> None:
    finding = Finding("is wrong", field="a.b", line=3, suggestion="c")
    assert finding.located("f.yaml") == 'f.yaml:3: a.b: is wrong (did you mean "c"?)'
    assert Finding("is wrong").located("f.yaml") == "f.yaml: is wrong"


def test_error_has_one_line_per_finding_and_only_typed_ones_as_fields() -> None:
    typed = Finding("two", field="x", type=FieldErrorType.INVALID, line=9)
    error = ConfigurationError("validation", [Finding("one"), typed], source="f")
    assert str(error) == error.text == "f: one\nf:9: x: two"
    assert error.errors == (typed,)
    assert error.line == 9


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("schedulerNam", "schedulerName"),
        ("SCHEDULERNAME", "schedulerName"),
        ("profile", "profiles"),
        ("zzz", None),
        ("", None),
    ],
)
def test_nearest_name(name: str, want: str | None) -> None:
    assert nearest(name, ("schedulerName", "profiles", "extenders")) == want


def test_a_name_is_never_its_own_suggestion() -> None:
    assert nearest("filter", ("filter",)) is None


def test_errors_together_have_all_findings_and_the_rest_of_the_first() -> None:
    first = ConfigurationError("profile", [Finding("a", line=3)], source="f", config={"x": 1})
    first.warnings = ("converted",)
    joint = together(first, ConfigurationError("decode", [Finding("b", line=9)], source="f"))
    assert (joint.kind, joint.config, joint.warnings) == ("profile", {"x": 1}, ("converted",))
    assert joint.text == "f:3: a\nf:9: b"
