"""Mistakes to plant: every place in a module's source where an operator applies, as an edit of its text.

Rules of this file: an edit changes one place and leaves every other character as it is. What is for people alone
(docstrings, texts of errors, lines of the log) and what no run looks at (annotations, assertions) is left out. Kinds
after the mutation operators of DeMillo, Lipton and Sayward (1978), as mutmut and cosmic-ray have them, and those that
the review of this project found people to make: a forgotten undo, a wrong field.
"""

import ast
from dataclasses import dataclass
from typing import Final

COMPARE: Final[dict[type[ast.cmpop], tuple[str, str]]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}  # fmt: skip
ARITHMETIC: Final[dict[type[ast.operator], tuple[str, str]]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "//"), ast.FloorDiv: ("//", "*"),
    ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"),
}  # fmt: skip
SWAPPED_NAMES: Final = {
    "min": "max", "max": "min", "any": "all", "all": "any", "popleft": "pop", "append": "appendleft",
    "appendleft": "append", "first": "last", "last": "first",
}  # fmt: skip
FOR_PEOPLE: Final = {"log", "warning", "warn", "info", "error", "record", "note", "progress", "print"}
"""Names of functions whose calls only tell somebody something."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake: `text[start:end]` of the file (characters) becomes `after`.

    `function`: where, as qualified name; `line`: of the place, from 1.
    """

    path: str
    kind: str
    function: str
    line: int
    start: int
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.function}: {self.kind}: {self.before!r} -> {self.after!r}"

    @property
    def key(self) -> str:
        """The same while the function's code is: without the line."""
        return f"{self.path} {self.function}: {self.before} -> {self.after}"

    def applied(self, text: str) -> str:
        """The module's source with the mistake."""
        assert text[self.start : self.end] == self.before, f"{self}: the source has changed"
        return text[: self.start] + self.after + text[self.end :]


def mutants_of(path: str, text: str) -> list[Mutant]:
    """All mistakes that can be planted in that module, in the order of their places."""
    found = _Finder(path, text)
    found.visit(ast.parse(text))
    return sorted(set(found.mutants), key=lambda mutant: (mutant.start, mutant.kind, mutant.after))


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.mutants: list[Mutant] = []
        self._scope: list[str] = []
        self._depth = 0
        """Of functions: nothing outside of one is changed, for constants are choices."""
        self._lines = [0]
        for line in text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._bytes = text.isascii()
        self._sources = text.splitlines(keepends=True)

    # ------------------------------------------------------------------------------------------------ places

    def _offset(self, line: int, column: int) -> int:
        """Of a place that the parser names by line and byte."""
        if not self._bytes:
            column = len(self._sources[line - 1].encode()[:column].decode())
        return self._lines[line - 1] + column

    def _span(self, node: ast.AST) -> tuple[int, int]:
        start = self._offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        return start, self._offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def _add(self, kind: str, node: ast.AST, start: int, end: int, after: str) -> None:
        if not self._depth:
            return
        line = self.text.count("\n", 0, start) + 1
        function = ".".join(self._scope)
        before = self.text[start:end]
        self.mutants.append(Mutant(self.path, kind, function, line, start, end, before, after))

    def _between(self, kind: str, node: ast.AST, left: ast.AST, right: ast.AST, old: str, new: str) -> None:
        """The operator between two operands, whatever brackets and spaces are there."""
        start, end = self._span(left)[1], self._span(right)[0]
        at = self.text.find(old, start, end)
        if at >= 0 and "#" not in self.text[start:end]:
            self._add(kind, node, at, at + len(old), new)

    # ------------------------------------------------------------------------------------------------ scopes

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scope.append(node.name)
        for item in node.body:
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                self.visit(item)
        self._scope.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in ("__repr__", "__str__"):
            return
        self._scope.append(node.name)
        self._depth += 1
        self._fields(node)
        for item in node.body:
            self.visit(item)
        self._depth -= 1
        self._scope.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    # ------------------------------------------------------------------------------------------------ left out

    def visit_Assert(self, node: ast.Assert) -> None:
        return

    def visit_Raise(self, node: ast.Raise) -> None:
        return

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        return

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._dropped_assignment(node, [node.target])
            self.visit(node.value)

    # ------------------------------------------------------------------------------------------------ operators

    def visit_Compare(self, node: ast.Compare) -> None:
        left: ast.AST = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            old, new = COMPARE[type(operator)]
            self._between("comparison", node, left, right, old, new)
            left = right
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        texts = (ast.JoinedStr, ast.List, ast.Tuple)
        plain = not any(
            isinstance(side, texts) or (isinstance(side, ast.Constant) and isinstance(side.value, (str, bytes)))
            for side in (node.left, node.right)
        )
        if plain and type(node.op) in ARITHMETIC:
            old, new = ARITHMETIC[type(node.op)]
            self._between("arithmetic", node, node.left, node.right, old, new)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between("and/or", node, left, right, old, new)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            start, end = self._span(node)
            self._add("not dropped", node, start, end, f"({self.text[slice(*self._span(node.operand))]})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        start, end = self._span(node)
        if isinstance(value, bool):
            self._add("constant", node, start, end, str(not value))
        elif isinstance(value, int):
            self._add("off by one", node, start, end, str(value + 1))

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negated(node, node.test)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._negated(node, node.test)
        self.generic_visit(node)

    def _negated(self, node: ast.AST, test: ast.expr) -> None:
        if isinstance(test, (ast.Compare, ast.UnaryOp)):
            return  # its own operators do that
        start, end = self._span(test)
        self._add("branch", node, start, end, f"not ({self.text[start:end]})")

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if name in FOR_PEOPLE:
            return
        if name in SWAPPED_NAMES:
            end = self._span(node.func)[1]
            self._add("wrong function", node, end - len(name), end, SWAPPED_NAMES[name])
        arguments = () if name in ("min", "max") else node.args  # of these the order says nothing
        if len(arguments) == 2 and all(isinstance(item, (ast.Name, ast.Attribute)) for item in arguments):
            one, other = self._span(node.args[0]), self._span(node.args[1])
            swapped = self.text[slice(*other)] + self.text[one[1] : other[0]] + self.text[slice(*one)]
            self._add("arguments swapped", node, one[0], other[1], swapped)
        self.generic_visit(node)

    # ------------------------------------------------------------------------------------------------ statements

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        if isinstance(node.value, ast.Call):
            function = node.value.func
            name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
            if name in FOR_PEOPLE:
                return
            self._dropped(node)
        self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._dropped_assignment(node, node.targets)
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._dropped(node)
        if type(node.op) in (ast.Add, ast.Sub):
            old, new = ("+=", "-=") if isinstance(node.op, ast.Add) else ("-=", "+=")
            self._between("arithmetic", node, node.target, node.value, old, new)
        self.visit(node.value)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._dropped(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add("statement dropped", node, *self._span(node), "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._add("statement dropped", node, *self._span(node), "pass")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self._add("statement dropped", node, *self._span(node), "pass")
            return
        self.visit(node.value)

    def _dropped(self, node: ast.stmt) -> None:
        self._add("statement dropped", node, *self._span(node), "pass")

    def _dropped_assignment(self, node: ast.stmt, targets: list[ast.expr]) -> None:
        """Only of what outlives the function: a local name would be missing at once."""
        made = self._scope[-1:] == ["__init__"]
        if not made and all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in targets):
            self._dropped(node)

    # ------------------------------------------------------------------------------------------------ wrong fields

    def _fields(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Where a function reads two plain fields of one object, the one instead of the other."""
        called = {id(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
        by_base: dict[str, list[ast.Attribute]] = {}
        for node in ast.walk(function):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Load)
                and id(node) not in called
                and isinstance(node.value, ast.Name)
                and not node.attr.isupper()
            ):
                by_base.setdefault(node.value.id, []).append(node)
        outer = {id(node.value) for node in ast.walk(function) if isinstance(node, ast.Attribute)}
        for nodes in by_base.values():
            last = [node for node in nodes if id(node) not in outer]
            names = sorted({node.attr for node in last})
            if len(names) < 2:
                continue
            for node in last:
                other = names[(names.index(node.attr) + 1) % len(names)]
                end = self._span(node)[1]
                self._add("wrong field", node, end - len(node.attr), end, other)
