"""The mutants of a protocol: its source with one rule changed, each.

A rule is what an action of the protocol, or a function that an action asks, does: a ``require``, a comparison, a field
that is written, a message that is sent. Properties, types, constants and configurations are no rules.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

ROOTS = ("action", "initial")
"""The decorators of functions that steps begin with."""

JUDGES = ("invariant", "step_invariant", "assumption", "leads_to", "always_eventually", "sometimes", "constraint")
"""The decorators of functions that judge, or bound what is explored."""

SHIFTED: dict[type[ast.cmpop], str] = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}


@dataclass(frozen=True)
class Mutant:
    """A module with one change.

    ``name`` stays the same when lines move: the function, and the change. ``before`` and ``after`` are the changed
    piece, on one line each; ``start`` and ``end`` are its place in the source, and ``text`` what stands there instead,
    on as many lines. ``lines``: of the statement that has it, without the statements in that.
    """

    module: str
    name: str
    function: str
    kind: str
    line: int
    lines: range
    before: str
    after: str
    start: int
    end: int
    text: str

    def mutated(self, source: str) -> str:
        """The source of the module with this change."""
        return source[: self.start] + self.text + source[self.end :]


@dataclass(frozen=True)
class Skipped:
    """A change that is none, and why."""

    module: str
    name: str
    reason: str


class _Source:
    """A module, and where its nodes are in it."""

    def __init__(self, module: str, text: str) -> None:
        self.module = module
        self.text = text
        self.tree = ast.parse(text)
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._ascii = text.isascii()

    def place(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        """Where the text of a node begins and ends."""
        assert self._ascii, f"{self.module} is not ASCII: columns are bytes there"
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[node.end_lineno - 1] + node.end_col_offset


@dataclass(frozen=True)
class _Change:
    """A node and its replacement. ``shown`` is the whole expression or statement around the change."""

    kind: str
    node: ast.expr | ast.stmt | ast.keyword
    text: str
    shown: ast.AST
    after: str


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    yield f"{node.name}.{inner.name}", inner


def _decorators(function: ast.FunctionDef) -> set[str]:
    names = set()
    for decorator in function.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(called, ast.Name):
            names.add(called.id)
    return names


def _mentioned(*nodes: ast.AST) -> set[str]:
    return {
        inner.id if isinstance(inner, ast.Name) else inner.attr
        for node in nodes
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name | ast.Attribute)
    }


def _tables(tree: ast.Module) -> dict[str, set[str]]:
    """What the dicts of a module mention, such as one of functions by the events that they are for."""
    assigned = [node for node in tree.body if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict)]
    return {
        node.target.id: _mentioned(node.value) for node in assigned if isinstance(node.target, ast.Name) and node.value
    }


def rules_of(sources: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The functions of these modules, (module, function), that actions reach by name; the first module has the
    protocol.
    """
    trees = [(module, ast.parse(text)) for module, text in sources]
    known = [(module, name, node) for module, tree in trees for name, node in _functions(tree)]
    tables = {name: names for _, tree in trees for name, names in _tables(tree).items()}
    judges = {(m, n) for m, n, node in known if _decorators(node) & {*JUDGES}}
    reached = [(m, n, node) for m, n, node in known if _decorators(node) & {*ROOTS}]
    seen = {(m, n) for m, n, _ in reached}
    for _, _, node in reached:  # which grows meanwhile
        names = _mentioned(*node.body)
        names |= {name for table in names & tables.keys() for name in tables[table]}
        for m, n, other in known:
            if n.rpartition(".")[2] in names and (m, n) not in seen | judges:
                seen.add((m, n))
                reached.append((m, n, other))
    return [(m, n) for m, n, _ in known if (m, n) in seen]


def _is_call(node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _is_field(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute | ast.Subscript)


def _truth(kind: str, test: ast.expr, value: bool, shown: ast.AST) -> _Change:
    return _Change(f"{kind} made {str(value).lower()}", test, str(value), shown, str(value))


class _Changes(ast.NodeVisitor):
    """All changes to one function."""

    def __init__(self) -> None:
        self.found: list[_Change] = []
        self._whole: set[int] = set()
        """Comparisons whose truth value another change already covers."""

    def _left_out(self, kind: str, node: ast.stmt) -> None:
        self.found.append(_Change(kind, node, "pass", node, "pass"))

    def _cover(self, test: ast.expr) -> None:
        """Another change makes this test true, or false."""
        self._whole.add(id(test))
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self._whole.add(id(test.operand))

    def visit_Assert(self, node: ast.Assert) -> None:
        """What is asserted is no rule."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        if _is_call(node.value, "require"):
            assert isinstance(node.value, ast.Call)
            self._left_out("require dropped", node)
            self._cover(node.value.args[0])
        elif isinstance(node.value, ast.Call):
            self._left_out("effect left out", node)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        fields = [target for target in node.targets if _is_field(target)]
        if len(node.targets) == 1 and fields:
            self._left_out("field not written", node)
        elif len(node.targets) > 1:
            for target in fields:
                self.found.append(_Change("field not written", target, "_", target, "_"))
        for target in node.targets:
            if isinstance(target, ast.Tuple):
                for element in target.elts:
                    if _is_field(element):
                        self.found.append(_Change("field not written", element, "_", node, "_"))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if _is_field(node.target):
            self._left_out("field not written", node)
        self.generic_visit(node)

    def _condition(self, kind: str, node: ast.If | ast.IfExp | ast.While, values: Sequence[bool]) -> None:
        for value in values:
            self.found.append(_truth(kind, node.test, value, node.test))
        self._cover(node.test)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        self._condition("condition", node, (True, False))

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition("condition", node, (True, False))

    def visit_While(self, node: ast.While) -> None:
        self._condition("condition", node, (False,))

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self.found.append(_truth("filter", test, True, test))
            self._cover(test)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for operand in node.values:
            neutral = isinstance(node.op, ast.And)
            rest = [ast.unparse(other) for other in node.values if other is not operand]
            word = " and " if neutral else " or "
            self.found.append(_Change("operand dropped", operand, str(neutral), node, word.join(rest)))
            self._cover(operand)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            other = SHIFTED.get(type(operator))
            if other is not None:
                after = ast.unparse(node).replace(
                    f"{ast.unparse(left)} {_SIGNS[type(operator)]} {ast.unparse(right)}",
                    f"{ast.unparse(left)} {other} {ast.unparse(right)}",
                )
                self.found.append(_Change("comparison shifted", node, f"({after})", node, after))
            left = right
        if id(node) not in self._whole and all(type(operator) not in SHIFTED for operator in node.ops):
            self.found += [_truth("comparison", node, value, node) for value in (True, False)]
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if _is_call(node, "max", "min") and len(node.args) == 2 and not node.keywords:
            for kept in node.args:
                text = ast.unparse(kept)
                self.found.append(_Change("bound dropped", node, f"({text})", node, text))
        for keyword in node.keywords:
            replaces = isinstance(node.func, ast.Attribute) and node.func.attr == "replace"
            if keyword.arg == "where" or (replaces and keyword.arg is not None):
                others = [other for other in node.keywords if other is not keyword]
                after = ast.unparse(ast.Call(node.func, node.args, others))
                kind = "field not written" if replaces else "condition dropped"
                self.found.append(_Change(kind, node, f"({after})", node, after))
        self.generic_visit(node)


_SIGNS: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


def _statements(function: ast.FunctionDef) -> Iterator[tuple[range, ast.stmt]]:
    """The statements of a function, the inner ones after those that have them, with the lines that are their own."""
    for node in ast.walk(function):
        if isinstance(node, ast.stmt) and node is not function:
            inner = [part.lineno for part in ast.walk(node) if isinstance(part, ast.stmt) and part is not node]
            assert node.end_lineno is not None
            yield range(node.lineno, max(node.lineno + 1, min(inner, default=node.end_lineno + 1))), node


def _one_line(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


def mutants_of(sources: Sequence[tuple[str, str]]) -> tuple[list[Mutant], list[Skipped]]:
    """The mutants of a protocol, in the order of its source, and the changes that are none.

    ``sources``: its modules, by name, with their text; the first has the protocol, the others the rules that it asks.
    """
    chosen = set(rules_of(sources))
    found: list[Mutant] = []
    skipped: list[Skipped] = []
    for module, text in sources:
        source = _Source(module, text)
        for function, node in _functions(source.tree):
            if (module, function) not in chosen:
                continue
            changes = _Changes()
            for statement in node.body:
                changes.visit(statement)
            counted: Counter[str] = Counter()
            lines_of = {id(part): lines for lines, statement in _statements(node) for part in ast.walk(statement)}
            for change in changes.found:
                before = _one_line(change.shown)
                name = f"{function}: {change.kind}: {before}"
                if change.after not in ("pass", "_"):
                    name += f" -> {change.after}"
                elif change.after == "_":
                    name += f": {_one_line(change.node)}"
                counted[name] += 1
                if counted[name] > 1:
                    name += f" ({counted[name]})"
                start, end = source.place(change.node)
                lines = text.count("\n", start, end)
                instead = change.text
                if lines:
                    gap = "\n" * lines
                    instead = f"pass{gap}" if isinstance(change.node, ast.stmt) else f"({instead}{gap})"
                mutant = Mutant(
                    *(module, name, function, change.kind, change.node.lineno, lines_of[id(change.node)]),
                    *(before, change.after, start, end, instead),
                )
                if before == change.after:
                    skipped.append(Skipped(module, name, "it is the same program"))
                else:
                    found.append(mutant)
    return found, skipped


def replaced(source: str, old: str, new: str) -> str:
    """A source in which a text that is there once is another one, on as many lines."""
    if source.count(old) != 1:
        raise ValueError(f"{old!r} is there {source.count(old)} times")
    return source.replace(old, new + "\n" * (old.count("\n") - new.count("\n")))
