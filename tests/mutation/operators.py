"""The mutants of a module: copies of its source in which one small thing is wrong. Pure functions.

Not mutated is what no test should be about: docstrings, annotations, decorators, the texts of errors and other
f-strings, `__all__`, what is imported for type checkers, and the `strict` of `zip`.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

COMPARISONS = {
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
    "==": ("!=",),
    "!=": ("==",),
    "is": ("is not",),
    "is not": ("is",),
    "in": ("not in",),
    "not in": ("in",),
}
COMPARISON_TOKENS = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "/"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "|"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes of a source to be replaced."""

    begin: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed source; `before` and `after` are the line where the change begins."""

    module: str
    line: int
    before: str
    after: str
    source: str
    nth: int = 0  # of those that read the same

    @property
    def key(self) -> tuple[str, str, str]:
        """What names it in the list of equivalent ones, wherever the line moves to."""
        return self.module, self.before, self.after


def mutants(module: str, source: str) -> list[Mutant]:
    """Return all mutants of a module, in the order of its lines."""
    raw = source.encode()
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for edit in sorted(set(_Finder(raw).edits(ast.parse(source))), key=lambda edit: (edit.begin, edit.end, edit.text)):
        changed = raw[: edit.begin] + edit.text.encode() + raw[edit.end :]
        begin = raw.rfind(b"\n", 0, edit.begin) + 1
        before, after = _line(raw, begin), _line(changed, begin)
        nth = seen[before, after]
        seen[before, after] += 1
        found.append(Mutant(module, raw.count(b"\n", 0, edit.begin) + 1, before, after, changed.decode(), nth))
    return found


def _line(raw: bytes, begin: int) -> str:
    return raw[begin:].partition(b"\n")[0].decode().strip()


def shuffled(found: Sequence[Mutant], seed: int) -> list[Mutant]:
    """Put mutants into an order that hangs on the seed and on each of them alone.

    Thus most of a sample stays the same when other lines of the module change.
    """
    return sorted(found, key=lambda one: hashlib.sha256(f"{seed} {one.key} {one.nth}".encode()).digest())


class _Finder:
    """Finds the edits in a tree; knows where its nodes stand in the source."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._starts = [0]
        for line in raw.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def edits(self, node: ast.AST) -> Iterator[Edit]:
        """Return those of a node and of all below it."""
        if _is_left_out(node):
            return
        yield from self._own(node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list") or (isinstance(node, ast.Raise) and name != "body"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self.edits(child)

    def _own(self, node: ast.AST) -> Iterator[Edit]:
        match node:
            case ast.Compare():
                yield from self._comparison(node)
                yield from self._texts(node.left, *node.comparators)
            case ast.BinOp(op=op) if type(op) in ARITHMETIC and not _may_be_a_type(node):
                yield self._between(node.left, node.right, *ARITHMETIC[type(op)])
            case ast.AugAssign(op=op) if type(op) in ARITHMETIC:
                old, new = ARITHMETIC[type(op)]
                yield self._between(node.target, node.value, f"{old}=", f"{new}=")
                yield self._between(node.target, node.value, f"{old}=", "=")
                yield self._replace(node, "pass")
            case ast.BoolOp(op=op):
                old, new = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                for left, right in zip(node.values, node.values[1:], strict=False):
                    yield self._between(left, right, old, new)
            case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
                yield self._replace(node, f"({self._text(node.operand)})")
            case ast.Constant(value=bool() | int() | float() as value):
                yield self._replace(node, _other(value))
            case ast.Return(value=ast.expr() as value) if not _is_none(value):
                yield self._replace(value, "None")
                yield from self._texts(value)
            case ast.If(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.Compare):
                yield self._negate(test)
            case ast.comprehension():
                yield from (self._negate(test) for test in node.ifs if not isinstance(test, ast.Compare))
            case ast.arguments():
                yield from self._texts(*node.defaults, *(each for each in node.kw_defaults if each))
            case ast.Continue():
                yield self._replace(node, "break")
            case ast.Break():
                yield self._replace(node, "continue")
            case ast.Raise() | ast.Delete() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield self._replace(node, "pass")
            case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()):
                yield self._replace(node, "pass")

    def _comparison(self, node: ast.Compare) -> Iterator[Edit]:
        for left, op, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            token = COMPARISON_TOKENS[type(op)]
            yield from (self._between(left, right, token, new) for new in COMPARISONS[token])

    def _texts(self, *nodes: ast.expr) -> Iterator[Edit]:
        """Change those that are plain texts: where they are compared, returned or a default."""
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield self._replace(node, repr(f"{node.value}?"))

    def _negate(self, test: ast.expr) -> Edit:
        return self._replace(test, f"(not ({self._text(test)}))")

    def _between(self, left: ast.expr, right: ast.expr, old: str, new: str) -> Edit:
        """Replace an operator, of which the tree does not say where it stands."""
        begin, end = self._span(left)[1], self._span(right)[0]
        at = self._raw.index(old.encode(), begin, end)
        return Edit(at, at + len(old), new)

    def _replace(self, node: ast.expr | ast.stmt, text: str) -> Edit:
        return Edit(*self._span(node), text)

    def _text(self, node: ast.expr) -> str:
        begin, end = self._span(node)
        return self._raw[begin:end].decode()

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        begin = self._starts[node.lineno - 1] + node.col_offset
        return begin, self._starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)


def _is_left_out(node: ast.AST) -> bool:
    match node:
        case ast.JoinedStr() | ast.Assert():
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case ast.keyword(arg="strict"):
            return True
    return False


def _other(value: bool | int | float) -> str:
    if isinstance(value, bool):
        return str(not value)
    return repr(value + 1 if value + 1 != value else 2 * value)


def _may_be_a_type(node: ast.BinOp) -> bool:
    """Return whether it reads like `int | None`."""
    return isinstance(node.op, ast.BitOr) and any(map(_is_none, (node.left, node.right)))


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
