"""Constraints between hyperparameters, such as `hidden * layers <= 4096`: read without `eval`, against a whitelist.

A constraint says nothing of points in which one of its parameters is inactive.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from regiondag.study.space import Point

LEGAL = "a comparison of parameters and numbers with + - * / // % **, < <= > >= == !=, in, and, or, not and brackets"
MAX_LENGTH = 500

Evaluator = Callable[[Mapping[str, Any]], Any]

ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: math.pow,  # whole numbers could grow without end
}
COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda value, values: value in values,
    ast.NotIn: lambda value, values: value not in values,
}


UNDEFINED = (ArithmeticError, ValueError)  # 1 / 0; of `math.pow`: the root of a negative number


@dataclass(frozen=True, slots=True)
class Constraint:
    """A condition that every proposed point meets."""

    text: str
    names: frozenset[str]
    evaluate: Evaluator

    def check(self, point: Point) -> None:
        """Raise ValueError where the constraint makes no sense, as in comparing a text with a number."""
        if self.names <= point.keys():
            try:
                self.evaluate(point)
            except UNDEFINED:
                pass
            except TypeError as error:
                raise ValueError(str(error)) from error

    def holds(self, point: Point) -> bool:
        """Return whether `point` is legal; a division by zero and the like make it illegal."""
        if not self.names <= point.keys():
            return True
        try:
            return bool(self.evaluate(point))
        except (*UNDEFINED, TypeError):
            return False


def parse_constraint(text: str, names: Iterable[str]) -> Constraint:
    """Read one constraint on the parameters `names`; ValueError says what is not legal in it."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"it has {len(text)} characters, legal: at most {MAX_LENGTH}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError("it is no expression") from error
    if not isinstance(tree, ast.Compare | ast.BoolOp | ast.UnaryOp):
        raise ValueError("it compares nothing")
    known = frozenset(names)
    try:
        evaluate = _compile(tree, known)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    used = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    if not used:
        raise ValueError("it names no hyperparameter")
    return Constraint(text, used, evaluate)


def parse_constraints(texts: Iterable[str], names: Iterable[str]) -> tuple[Constraint, ...]:
    """Read all constraints of a search."""
    known = frozenset(names)
    return tuple(parse_constraint(text, known) for text in texts)


def _compile(node: ast.expr, names: frozenset[str]) -> Evaluator:
    """Return a function of a point's values that computes `node`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str):
        constant = node.value
        return lambda _values: constant
    if isinstance(node, ast.Name):
        if node.id not in names:
            raise ValueError(f"{node.id!r} is not a hyperparameter of search.space")
        name = node.id
        return lambda values: values[name]
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        return _arithmetic(ARITHMETIC[type(node.op)], _compile(node.left, names), _compile(node.right, names))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd | ast.Not):
        operand = _compile(node.operand, names)
        if isinstance(node.op, ast.Not):
            return lambda values: not operand(values)
        sign = -1 if isinstance(node.op, ast.USub) else 1
        return lambda values: sign * _number(operand(values))
    if isinstance(node, ast.BoolOp):
        operands = [_compile(value, names) for value in node.values]
        combine = all if isinstance(node.op, ast.And) else any
        return lambda values: combine(bool(operand(values)) for operand in operands)
    if isinstance(node, ast.Compare):
        return _comparison(node, names)
    raise ValueError(f"{ast.unparse(node)!r} is not allowed")


def _arithmetic(operation: Callable[[Any, Any], Any], left: Evaluator, right: Evaluator) -> Evaluator:
    return lambda values: operation(_number(left(values)), _number(right(values)))


def _comparison(node: ast.Compare, names: frozenset[str]) -> Evaluator:
    """Compile `a < b <= c` and `optimizer in ("sgd", "adam")`."""
    operations = []
    for operation, operand in zip(node.ops, node.comparators, strict=True):
        if type(operation) not in COMPARISONS:
            raise ValueError(f"{ast.unparse(node)!r} is not allowed")
        if isinstance(operation, ast.In | ast.NotIn):
            if not isinstance(operand, ast.Tuple | ast.List):
                raise ValueError(f"{ast.unparse(node)!r}: `in` needs a list such as [1, 2]")
            elements = [_compile(element, names) for element in operand.elts]
            right: Evaluator = lambda values, elements=elements: [e(values) for e in elements]  # type: ignore[misc]  # noqa: E731
        else:
            right = _compile(operand, names)
        operations.append((COMPARISONS[type(operation)], right))
    left = _compile(node.left, names)

    def evaluate(values: Mapping[str, Any]) -> bool:
        seen = left(values)
        for compare, other in operations:
            against = other(values)
            if not compare(seen, against):
                return False
            seen = against
        return True

    return evaluate


def _number(value: Any) -> Any:
    if isinstance(value, str | list):
        raise TypeError(f"{value!r} is not a number")
    return value
