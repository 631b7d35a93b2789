"""Templates: actions, arithmetic, field names, and errors."""

from __future__ import annotations

from typing import Any

import pytest
from berth_bench.templates import Template, TemplateError

HEAD = "apiVersion: v1\nkind: Pod\n"


def value_of(expression: str, index: int = 7, **params: Any) -> Any:
    text = HEAD + f"metadata: {{name: x}}\nspec: {{value: {expression}}}\n"
    return Template(path="t", text=text, params=params).object_at(index, 10)["spec"]["value"]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        pytest.param("{{.Index}}", 7, id="index"),
        pytest.param("pod-{{ .Count }}-x", "pod-10-x", id="count inside a text"),
        pytest.param("{{AddInt .Index 1 2}}", 10, id="sum"),
        pytest.param("{{MultiplyInt 50 (Mod .Index 4)}}m", "150m", id="nested"),
        pytest.param("{{DivideInt .Index 2}}", 3, id="whole division"),
        pytest.param("{{DivideFloat .Index 2}}", 3.5, id="division"),
        pytest.param("{{SubtractInt .Index 9}}", -2, id="below zero"),
        pytest.param('"{{- .team -}}"', "a", id="parameter, trimmed"),
        pytest.param("{{.Index | AddInt 1 | MultiplyInt 2}}", 16, id="pipeline"),
        pytest.param('{{$kind := or .missing "small"}}{{$kind}}-{{.team}}', "small-a", id="default"),
        pytest.param("{{if .missing}}1{{else}}2{{end}}", 2, id="if without a value"),
        pytest.param(
            "{{if eq .team 'b'}}1{{else if ge .Index 7}}2{{else}}3{{end}}".replace("'", '"'), 2, id="else if"
        ),
        pytest.param("{{if not .flag}}1{{end}}5", 15, id="negated"),
        pytest.param("{{with .team}}{{.}}-{{$.team}}{{end}}", "a-a", id="with"),
        pytest.param("{{with .missing}}1{{else with .team}}{{.}}{{else}}2{{end}}", "a", id="else with"),
        pytest.param("{{with .flag}}1{{else}}{{.team}}{{end}}", "a", id="with without a value"),
        pytest.param("[{{range (2 | Int)}}{{.}}, {{end}}9]", [0, 1, 9], id="range"),
        pytest.param(
            "[{{range $n := .Index}}{{if lt $n 2}}{{AddInt $n $.Index}}, {{end}}{{end}}9]",
            [7, 8, 9],
            id="variables",
        ),
        pytest.param("[{{range 0}}1{{else}}2{{end}}]", [2], id="range over nothing"),
        pytest.param("{{$x := 1}}{{if true}}{{$x := 2}}{{end}}{{$x}}", 1, id="variable of a branch"),
        pytest.param("{{.selectors | JSON}}", [{"cel": "a < b"}], id="JSON"),
        pytest.param("{{(or .missing nil) | JSON}}", None, id="JSON of nothing"),
        pytest.param("{{/* none */}}5", 5, id="comment"),
    ],
)
def test_actions_are_computed(expression: str, value: Any) -> None:
    assert value_of(expression, team="a", flag=False, selectors=[{"cel": "a < b"}]) == value


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        pytest.param("{{.Other}}", "has no value: there are .Count, .Index", id="no such name"),
        pytest.param("{{AddInt .Other 1}}", "has no value: there are .Count, .Index", id="sum of nothing"),
        pytest.param("{{.Index.x}}", "7 has no fields", id="field of a number"),
        pytest.param("{{$n}}", "there is no variable $n", id="no such variable"),
        pytest.param("{{if .Index}}", "lacks its {{end}}", id="no end"),
        pytest.param("{{end}}", "ends or continues nothing", id="end of nothing"),
        pytest.param('{{template "x"}}', "template is not supported", id="template"),
        pytest.param("{{.Index | 3}}", "3 is no function", id="pipe into a number"),
        pytest.param("{{range .Other}}{{end}}", "has no value", id="range over nothing known"),
        pytest.param("{{AddInt (.Index}}", "lacks a closing bracket", id="bracket"),
        pytest.param("{{DivideInt 1 0}}", "cannot be computed", id="by zero"),
        pytest.param("{{}}", "is empty", id="empty"),
        pytest.param("{{.Index | printf}}", "printf is not supported", id="pipe"),
        pytest.param("{{.Index = 3}}", "is not understood", id="assignment"),
        pytest.param('{{AddInt "a" 1}}', "'a' is not a number", id="no number"),
    ],
)
def test_unsupported_template_is_refused_with_its_line(expression: str, problem: str) -> None:
    with pytest.raises(TemplateError, match=r".") as caught:
        value_of(expression)
    assert problem in caught.value.problem
    assert caught.value.line == 4


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("a: [", "is not YAML", id="no YAML"),
        pytest.param("- a\n", "must contain one Kubernetes object", id="a list"),
        pytest.param(f"{HEAD}---\n{HEAD}", "must contain one Kubernetes object", id="two"),
        pytest.param("kind: Pod\n", "must have apiVersion and kind", id="no apiVersion"),
    ],
)
def test_broken_templates_are_refused(text: str, problem: str) -> None:
    with pytest.raises(TemplateError, match=problem):
        Template(path="t", text=text).object_at(0, 1)


def test_static_template_is_read_once() -> None:
    made = list(Template(path="t", text=HEAD).objects(3))
    assert made[0] is made[1] is made[2]
    moving = [item["at"] for item in Template(path="t", text=HEAD + "at: {{.Index}}\n").objects(3)]
    assert moving == [0, 1, 2]


def test_field_names_in_any_case_are_put_right_where_a_type_is_known() -> None:
    text = HEAD + "spec: {topologySpreadConstraints: [{NodeTaintsPolicy: Honor}], NodeSelector: {Zone: a}}\n"
    typed = Template(path="t", text=text, typed_as="Pod").object_at(0, 1)["spec"]
    assert typed["topologySpreadConstraints"] == [{"nodeTaintsPolicy": "Honor"}]
    assert typed["nodeSelector"] == {"Zone": "a"}
    assert "NodeSelector" in Template(path="t", text=text).object_at(0, 1)["spec"]
