"""`Environment`: compiles expressions over declared variables. `Program`: a compiled expression.

Source: `cel-go` cel/env.go and cel/program.go, v0.29; `apiserver/pkg/cel/environment/base.go`, v1.37.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from berth_plugins.cel.checker import check
from berth_plugins.cel.errors import CelError, CostError, EvalError, Issues
from berth_plugins.cel.parser import parse
from berth_plugins.cel.pieces import count, deep_stack
from berth_plugins.cel.planner import COST, COUNTED, FIRST, Frame, PlanError, Planner, Run, first_stop
from berth_plugins.cel.types import Type
from berth_plugins.cel.validators import validate
from berth_plugins.cel.values import Value
from berth_plugins.cel.work import COST_TEXT, begin


class Program:
    """A compiled expression. `type`: of its results."""

    def __init__(self, run: Run, size: int, limit: int, result: Type) -> None:
        self._run = run
        self._size = size
        self._limit = limit
        self.type = result

    def evaluate(self, *values: Value) -> tuple[Value, int]:
        """Return the result and its cost, given the variables' values. Raises EvalError and CostError."""
        begin()
        frame: Frame = [0, first_stop(self._limit), 0, *values, *[None] * (self._size - len(values) - FIRST)]
        try:
            with deep_stack():
                result = self._run(frame)
        except RecursionError as err:
            # Values can be nested deeper than the text: each name for a value may hold all of another one.
            raise CostError(COST_TEXT) from err
        except EvalError as err:
            if frame[COST] > self._limit:
                raise CostError(COST_TEXT) from err
            raise
        finally:
            count(frame[COST] - frame[COUNTED])
        if frame[COST] > self._limit:
            raise CostError(COST_TEXT)
        return result, frame[COST]


class Environment:
    """Declared variables, and the cost that an evaluation may have.

    `fields`: the fields of each type with fields, by the type's name.
    """

    def __init__(
        self, variables: Mapping[str, Type], fields: Mapping[str, Mapping[str, Type]], limit: int
    ) -> None:
        self._variables = variables
        self._fields = fields
        self._limit = limit

    def compile(self, text: str, results: Sequence[str]) -> Program:
        """Compile an expression.

        Args:
            text: The expression.
            results: The types that the result may have, by name. The first is named in the error.

        Raises:
            CelError: With the text of kube-scheduler.
        """
        begin()
        try:
            return self._compiled(text, results)
        except (CostError, RecursionError) as err:
            raise CelError("compilation failed: the types of its values are nested too deeply") from err

    def _compiled(self, text: str, results: Sequence[str]) -> Program:
        issues = Issues(text)
        with deep_stack():
            root = parse(text, issues)
            _raise(issues)
            found = check(root, self._variables, self._fields, issues)
            _raise(issues)
            validate(root, issues)
            _raise(issues)
            if found.full_name not in results:
                raise CelError(f"must evaluate to {results[0]} or the unknown type, not {found.full_name}")
            planner = Planner(list(self._variables), self._limit)
            try:
                run = planner.run(root)
            except PlanError as err:
                raise CelError(f"program instantiation failed: {err}") from err
        return Program(run, planner.size, self._limit, found)


def _raise(issues: Issues) -> None:
    if issues:
        raise CelError(f"compilation failed: {issues}")
