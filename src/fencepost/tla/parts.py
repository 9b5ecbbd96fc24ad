"""Parts of definitions: ``Op!2!<<``, ``Op(x)!:``, ``Op!lab(y)``.

The rules are those of Lamport's *TLA+2: a preliminary guide*. A part is a definition of its own. It takes what the
definition takes around it, and then a value for each name that is bound on the way to it. ``Op!2`` without arguments is
an operator if ``Op`` is one.
"""

from __future__ import annotations

from fencepost.tla import ast
from fencepost.tla.errors import SpecificationError
from fencepost.tla.scopes import Chain, Given, within
from fencepost.tla.symbols import Defined, Local, Symbol


def resolve(node: ast.Part | ast.Qualified, scope: Chain) -> tuple[Defined, Given]:
    """The definition that a part is, and the arguments that it is given in the text. The same for each call with the
    same node and scope. Raises :class:`SpecificationError` if there is no such part.
    """
    if node not in scope.parts:
        scope.parts[node] = _resolved(node, scope)
    return scope.parts[node]


def _resolved(node: ast.Part | ast.Qualified, scope: Chain) -> tuple[Defined, Given]:
    if isinstance(node, ast.Qualified):
        return _start(node, (), scope).result()
    of, arguments = (node.of.operator, node.of.arguments) if isinstance(node.of, ast.Apply) else (node.of, ())
    if not isinstance(of, ast.Name | ast.Qualified):
        raise SpecificationError("only a definition has parts", node.place)
    path = _start(of, arguments, scope)
    for selector in node.selectors:
        path.select(selector)
    return path.result()


def _start(of: ast.Name | ast.Qualified, arguments: Given, scope: Chain) -> _Path:
    """Follows a name to its definition, and labels after it."""
    if isinstance(of, ast.Name):
        return _Path(of, scope.find(of.text), arguments)
    steps = (*of.steps, ast.Step(of.text, arguments, place=of.place))
    count = len(scope.instances(of.steps))
    name = steps[count].name
    symbol = scope.find_qualified(steps[:count], name) if count else scope.find(name)
    path = _Path(of, symbol, tuple(each for step in steps[: count + 1] for each in step.arguments))
    for step in steps[count + 1 :]:
        path.select(step)
    return path


class _Path:
    """The way to a part. ``at`` is the node that was reached; only the parts of a ``CASE`` arm are behind one that is
    not an expression.
    """

    def __init__(self, node: ast.Name | ast.Qualified, symbol: Symbol | None, given: Given) -> None:
        if not isinstance(symbol, Defined):
            name = node.text if isinstance(node, ast.Name) else node.steps[0].name
            raise SpecificationError(f"{name} is no definition, so it has no parts", node.place)
        self.node = node
        self.symbol = symbol
        self.at: ast.Node = symbol.body
        self.scope: Chain = symbol.scope  # type: ignore[assignment]
        self.parameters = symbol.parameters
        self.given = given
        self.written = symbol.name
        self.is_inside = False

    def result(self) -> tuple[Defined, Given]:
        if not isinstance(self.at, ast.Expression | ast.Function):
            raise self._missing("an arm of CASE has the parts 1 and 2")
        symbol = self.symbol
        part = Defined(
            self.written,
            symbol.module,
            self.parameters,
            self.at,
            self.scope,
            symbol.level,
            self.at.place,
            symbol.implied,
        )
        return part, self.given

    def select(self, selector: int | str | Given | ast.Step) -> None:
        """Goes on to a part of what was reached."""
        if isinstance(selector, ast.Step):
            self._label(selector)
        elif selector != ":":
            self._skip_labels()
            if isinstance(selector, tuple) or selector == "@":
                self._body(selector)
            else:
                self._operand(selector)
        self.written += f"!{_shown(selector)}"

    def _skip_labels(self) -> None:
        while isinstance(self.at, ast.Label):
            self.at = self.at.body

    def _missing(self, why: str) -> SpecificationError:
        return SpecificationError(f"there is no such part: {why}", self.node.place)

    def _operand(self, selector: int | str) -> None:
        operands = _operands(self.at, self.scope)
        number = selector if isinstance(selector, int) else 1 if selector == "<<" else 2 if len(operands) == 2 else 0
        if not 1 <= number <= len(operands):
            raise self._missing(f"{self.written} has {len(operands)} parts, and {_shown(selector)} is chosen")
        self.at, self.scope = operands[number - 1]
        self.is_inside = True

    def _body(self, selector: Given | str) -> None:
        names = _bound_in(self.at)
        if not names:
            raise self._missing(f"{self.written} binds no names")
        body, scope = within(self.at, self.scope)[-1]
        self._bind(scope, names, selector if isinstance(selector, tuple) else ())
        self.at, self.scope = body, scope

    def _bind(self, scope: Chain, names: tuple[str, ...], given: Given) -> None:
        symbols = tuple(scope.find(name) for name in names)
        self.parameters += tuple(each for each in symbols if isinstance(each, Local))
        if given and len(given) != len(names):
            raise self._missing(f"{self.written} binds {len(names)} names, and {len(given)} values are given")
        self.given += given

    def _label(self, step: ast.Step) -> None:
        """Looks for a label, or for a definition if a ``LET`` was reached."""
        if self.is_inside and isinstance(self.at, ast.Let) and self._defined_in(self.scope.let(self.at), step):
            return
        waiting: list[tuple[ast.Node, Chain, tuple[str, ...]]] = [(self.at, self.scope, ())]
        while waiting:
            at, scope, names = waiting.pop()
            if isinstance(at, ast.Label) and at.name == step.name:
                self._go_to(at, scope, names, step)
                return
            if not isinstance(at, ast.Label) or at is self.at:
                inside = within(at, scope)
                waiting += [(each, inner, names) for each, inner in inside[:-1]]
                waiting += [(each, inner, names + _bound_in(at)) for each, inner in inside[-1:]]
        raise SpecificationError(f"{self.written} has no part {step.name}", step.place)

    def _go_to(self, label: ast.Label, scope: Chain, names: tuple[str, ...], step: ast.Step) -> None:
        if set(label.parameters) != set(names):
            raise self._missing(f"label {label.name} must have the parameters {', '.join(names)}")
        self._bind(scope, label.parameters, step.arguments)
        self.at, self.scope = label.body, scope

    def _defined_in(self, scope: Chain, step: ast.Step) -> bool:
        """A definition of a ``LET`` that was reached."""
        symbol = scope.own(step.name)
        if not isinstance(symbol, Defined):
            return False
        self.parameters += symbol.parameters
        self.given += step.arguments
        self.at, self.scope = symbol.body, symbol.scope  # type: ignore[assignment]
        return True


def _shown(selector: int | str | Given | ast.Step) -> str:
    if isinstance(selector, ast.Step):
        return selector.name
    return "(...)" if isinstance(selector, tuple) else str(selector)


def _bound_in(node: ast.Node) -> tuple[str, ...]:
    match node:
        case ast.Quantified(bounds=bounds) | ast.FunctionOf(bounds=bounds) | ast.Function(bounds=bounds):
            return tuple(name.name for each in bounds for name in each.names)
        case ast.Collect(bounds=bounds):
            return tuple(name.name for each in bounds for name in each.names)
        case ast.Choose(bound=one) | ast.Filter(bound=one):
            return tuple(name.name for name in one.names)
        case ast.Unbounded(names=names) | ast.Lambda(parameters=names):
            return tuple(name.name for name in names)
        case _:
            return ()


def _operands(node: ast.Node, scope: Chain) -> list[tuple[ast.Node, Chain]]:
    """The numbered parts of a node, each with its scope."""
    match node:
        case ast.Case(arms=arms, other=other):
            return [*((each, scope) for each in arms), *([] if other is None else [(other, scope)])]
        case ast.Apply(arguments=arguments):
            return [(each, scope) for each in arguments]
        case ast.Except(function=function):
            return [(function, scope)]
        case ast.Index(function=function, arguments=arguments) if len(arguments) > 1:
            return [(function, scope), (ast.Tuple(arguments, place=node.place), scope)]
        case ast.Function() | ast.Quantified() | ast.FunctionOf() | ast.Collect() | ast.Choose() | ast.Filter():
            return list(within(node, scope)[:-1])
        case _ if isinstance(node, ast.Unbounded | ast.Lambda):
            return []
        case _:
            return list(within(node, scope))
