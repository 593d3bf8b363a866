"""Conditions on the rows of a store, from a text such as "trust < 0.2 and target != label", which is never executed."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

from ig2._utils.suggestions import suggest
from ig2.errors import InputError, describe, reason
from ig2.runs.files import arrow

LONGEST = 4000  # characters; a deep nest of brackets would exhaust the stack
COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip
# Arrow's functions that never fail: `+` and its like raise where an integer overflows or is divided by 0
ARITHMETIC: dict[type[ast.operator], str] = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide"}
EXPECTED = "columns, numbers, texts in quotes, < <= > >= == != in, `is None`, abs(), + - * /, and, or, not"


def parse_condition(text: str, schema: Any) -> Any:
    """Return the Arrow expression of a condition.

    >>> import pyarrow
    >>> schema = pyarrow.schema({"trust": pyarrow.float64(), "target": pyarrow.int64(), "label": pyarrow.int64()})
    >>> parse_condition("trust < 0.2 and target != label", schema)
    <pyarrow.compute.Expression ((trust < 0.2) and (target != label))>

    Args:
        text: Python's comparisons of columns and constants, joined by and, or, not. A comparison with an empty cell is not
            true.
        schema: the columns with one number or text for each row, as a `pyarrow.Schema`.

    Raises:
        InputError: for anything else, and if a text is compared with a number.
    """
    if not isinstance(text, str) or not text.strip() or len(text) > LONGEST:
        raise InputError(f"a condition is a text such as 'trust < 0.2', got {describe(text)}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        expression = _Translator(text, schema.names).translate(tree.body)
        # on no rows: an expression of other types fails at the first row, or is taken for bits that it does not have
        empty = arrow("pyarrow.dataset").dataset(schema.empty_table())
        kind = empty.to_table(columns={"fulfilled": expression}).schema.field("fulfilled").type
    except InputError:
        raise
    except SyntaxError as error:
        raise InputError(f"the condition {text!r} cannot be read ({error.msg}): expected {EXPECTED}") from error
    except arrow().ArrowException as error:  # a text and a number, for example
        raise InputError(
            f"the condition {text!r} cannot be used: numbers are compared with numbers, and texts, in quotes, with texts "
            f"({reason(error)})"
        ) from error
    except (ValueError, RecursionError, MemoryError, OverflowError, TypeError) as error:
        raise InputError(f"the condition {describe(text)} cannot be used: {reason(error)}") from error
    if str(kind) != "bool":
        raise InputError(f"the condition {text!r} is no comparison: it is neither true nor false; expected {EXPECTED}")
    return expression


class _Translator:
    def __init__(self, text: str, columns: list[str]) -> None:
        self.text, self.columns, self.compute = text, columns, arrow("pyarrow.compute")

    def translate(self, node: ast.expr) -> Any:
        match node:
            case ast.BoolOp(op=op, values=values):
                join = operator.and_ if isinstance(op, ast.And) else operator.or_
                return reduce(join, map(self.translate, values))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return ~self.translate(operand)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.compute.negate(self.translate(operand))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
                return getattr(self.compute, ARITHMETIC[type(op)])(self._float(left), self._float(right))
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                pairs = zip([left, *comparators], ops, comparators, strict=False)
                return reduce(operator.and_, [self._compare(first, op, second) for first, op, second in pairs])
            case ast.Call(func=ast.Name(id="abs"), args=[argument], keywords=[]):
                return self.compute.abs(self.translate(argument))
            case ast.Name(id=name):
                return self._find_column(name)
            case ast.Constant(value=bool() | int() | float() | str() as value):
                return self.compute.scalar(value)
        raise InputError(f"{ast.unparse(node)!r} in the condition {self.text!r} is not allowed: expected {EXPECTED}")

    def _float(self, node: ast.expr) -> Any:
        """Convert a number to a float: Arrow divides integers without a remainder."""
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return self.compute.scalar(float(node.value))
        return self.compute.multiply(self.translate(node), self.compute.scalar(1.0))

    def _compare(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Any:
        match op, right:
            case ((ast.Is() | ast.Eq()), ast.Constant(value=None)):
                return self.translate(left).is_null()
            case ((ast.IsNot() | ast.NotEq()), ast.Constant(value=None)):
                return ~self.translate(left).is_null()
            case ((ast.In() | ast.NotIn()), (ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items))):
                is_one = self._is_one_of(left, [ast.literal_eval(item) for item in items])
                return is_one if isinstance(op, ast.In) else ~is_one
        if type(op) not in COMPARISONS:
            raise InputError(f"the condition {self.text!r} compares by something else than {EXPECTED}")
        return COMPARISONS[type(op)](self.translate(left), self.translate(right))

    def _is_one_of(self, node: ast.expr, values: list[Any]) -> Any:
        """Return whether a cell is one of some constants; unknown for an empty cell, as in any other comparison."""
        if any(isinstance(value, bool) for value in values):  # Arrow takes them for numbers, and fails at the first row
            raise InputError(f"the condition {self.text!r} cannot be used: no column has True or False")
        cell, named = self.translate(node), [value for value in values if value is not None]
        if None in values:
            return cell.is_null() | (cell.is_valid() & cell.isin(named))
        return self.compute.if_else(cell.is_valid(), cell.isin(named), arrow().scalar(None, "bool"))

    def _find_column(self, name: str) -> Any:
        if name not in self.columns:
            raise InputError(f"the store has no column {name!r} to compare{suggest(name, self.columns, choice='it has')}")
        return self.compute.field(name)
