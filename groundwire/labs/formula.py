"""Arithmetic in a lab's data: numbers, names, and a few functions; nothing else is evaluated."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping

from groundwire.labs.errors import LabError

Number = int | float

_OPERATORS: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "abs": abs,
    "ceil": math.ceil,
    "floor": math.floor,
    "log2": math.log2,
    "max": max,
    "min": min,
    "round": round,
    "sqrt": math.sqrt,
}


class UnknownName(LabError):
    """A formula has a name that has no value, or none yet: `name`."""

    def __init__(self, formula: str, name: str, known: Mapping[str, Number]) -> None:
        self.name = name
        super().__init__(f"{formula!r}: found {name}; known are {', '.join(sorted(known))}")


def value(formula: str | Number, names: Mapping[str, Number]) -> Number:
    """The value of a formula. Raises UnknownName, and LabError for what is no arithmetic."""
    if isinstance(formula, int | float):
        return formula
    try:
        tree = ast.parse(formula, mode="eval")
        found = _value(tree.body, formula, names)
        if isinstance(found, complex):  # a root of what is below 0
            raise ArithmeticError("no real number")
        return found
    except LabError:
        raise
    except (ArithmeticError, RecursionError, SyntaxError, TypeError, ValueError) as error:
        raise LabError(f"{formula!r}: expected arithmetic, found {error}") from error


def _value(node: ast.expr, formula: str, names: Mapping[str, Number]) -> Number:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in names:
            raise UnknownName(formula, node.id, names)
        return names[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, formula, names)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = (_value(each, formula, names) for each in (node.left, node.right))
        return _OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        function = _FUNCTIONS.get(node.func.id)
        if function is not None:
            return function(*(_value(each, formula, names) for each in node.args))
    allowed = f"numbers, names, + - * / // % ** and {', '.join(sorted(_FUNCTIONS))}"
    raise LabError(f"{formula!r}: found {ast.unparse(node)}; allowed are {allowed}")
