"""The syntax of TLA+: from the text of a file to the syntax tree of its modules.

The parser is tree-sitter's grammar of TLA+, which knows the nesting of everything but operators: it ignores that some
operators do not mix. So an expression with operators is taken as a flat sequence of operators and operands, and put
together by SANY's ranges of precedence.

Nothing here calls itself for an expression inside an expression. Each rule is a generator that hands out the nodes of
the parser which it needs, and `_Builder.build` keeps the stack.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from fencepost.errors import naming_extra
from fencepost.tla import ast
from fencepost.tla.diagnosis import check_syntax
from fencepost.tla.errors import SpecificationError
from fencepost.tla.operators import OPERATORS, RESERVED, Operator, name_of
from fencepost.tla.source import Source

Steps = Generator[Any, Any, Any]
"""A rule at work: it yields nodes of the parser and is sent what became of them."""


def parse(text: bytes, file: str) -> tuple[ast.Module, ...]:
    """The modules at the top of a file, in their order.

    Raises :class:`SpecificationError` for the first error of syntax, and :class:`fencepost.errors.OptionError` if the
    parser is not installed.
    """
    source = Source(text, file)
    recognised = check_syntax(source)
    root = _parser().parse(source.code).root_node
    if root.has_error:
        where = "" if recognised else ", in an expression that is nested deeply"
        raise SpecificationError(
            f"an error of syntax is here or below{where}", _Builder(source).place(_first_error(root))
        )
    return tuple(_Builder(source).build(node) for node in root.named_children if node.type == "module")


@cache
def _parser() -> Any:
    with naming_extra("reading TLA+ files", "tla"):
        import tree_sitter
        import tree_sitter_tlaplus
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_tlaplus.language()))


def _first_error(root: Any) -> Any:
    """The first node that the parser could not make sense of, and rather a short one."""
    errors = [each for each in _walk(root) if each.is_error or each.is_missing]
    return min(errors, key=lambda each: (each.end_point[0] - each.start_point[0] > 1, each.start_byte))


def _walk(node: Any) -> Iterator[Any]:
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


@dataclass(frozen=True, slots=True)
class _Term:
    """An operand, with the place of the parentheses around it."""

    expression: ast.Expression
    place: ast.Place
    is_product: bool = False


@dataclass(frozen=True, slots=True)
class _Sign:
    """An operator where it stands."""

    operator: Operator
    place: ast.Place
    spelling: str


_Making = Callable[[ast.Expression, ast.Place], ast.Expression]


def _name(builder: _Builder, node: Any) -> ast.Expression:
    return ast.Name(text=builder.identifier(node), place=builder.place(node))


def _natural(builder: _Builder, node: Any) -> ast.Expression:
    return builder.number(node, node, 10)


def _based(base: int) -> Callable[[_Builder, Any], ast.Expression]:
    return lambda builder, node: builder.number(node, node.named_children[-1], base)


def _decimal(builder: _Builder, node: Any) -> ast.Expression:
    return ast.Decimal(text=builder.text(node), place=builder.place(node))


_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "\\": "\\", '"': '"'}


def _string(builder: _Builder, node: Any) -> ast.Expression:
    place = builder.place(node)
    text = builder.text(node)[1:-1]
    if unknown := next((each for each in _ESCAPE.findall(text) if each not in _ESCAPED), None):
        raise SpecificationError(f"\\{unknown} is no escape of a string: write \\\\ for a backslash", place)
    return ast.String(value=_ESCAPE.sub(lambda match: _ESCAPED[match[1]], text), place=place)


def _at(builder: _Builder, node: Any) -> ast.Expression:
    return ast.At(place=builder.place(node))


def _operator_name(builder: _Builder, node: Any) -> ast.Expression:
    return ast.Name(text=name_of(builder.text(node)), place=builder.place(node))


_LEAVES: dict[str, Callable[[_Builder, Any], ast.Expression]] = {
    **dict.fromkeys(("identifier", "identifier_ref"), _name),
    **dict.fromkeys(("boolean", "boolean_set", "string_set"), _name),
    **dict.fromkeys(("nat_number_set", "int_number_set", "real_number_set"), _name),
    **dict.fromkeys(("prefix_op_symbol", "infix_op_symbol", "postfix_op_symbol"), _operator_name),
    "nat_number": _natural,
    "binary_number": _based(2),
    "octal_number": _based(8),
    "hex_number": _based(16),
    "real_number": _decimal,
    "string": _string,
    "prev_func_val": _at,
}

_BEHIND = {"function_evaluation": "index", "record_value": "field"}
_OPERATIONS = frozenset(("bound_infix_op", "bound_prefix_op", "bound_postfix_op", *_BEHIND))
_SETS_OF_NUMBERS = {"ℕ": "Nat", "ℤ": "Int", "ℝ": "Real"}
_SKIPPED = frozenset(("single_line", "use_or_hide", "header_line", "double_line", "identifier", "extends"))


class _Builder:
    """Makes the syntax tree of what the parser found."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def build(self, root: Any) -> Any:
        """What a node of the parser becomes."""
        stack, value = [self._start(root)], None
        while stack:
            try:
                node = stack[-1].send(value)
            except StopIteration as finished:
                stack.pop()
                value = finished.value
            else:
                if node.type in _LEAVES:
                    value = _LEAVES[node.type](self, node)
                else:
                    stack.append(self._start(node))
                    value = None
        return value

    def _start(self, node: Any) -> Steps:
        if _is_operation(node):
            return self._operation(node)
        rule = getattr(self, f"_{node.type}", None)
        if rule is None:
            raise SpecificationError(f"{node.type.replace('_', ' ')}: not supported", self.place(node))
        made: Steps = rule(node)
        return made

    # -- texts and places ----------------------------------------------------------------------------------------------

    def place(self, node: Any) -> ast.Place:
        """Where a node of the parser stands."""
        source = self._source
        row, byte = node.start_point
        end_row, end_byte = source.end_of(*node.end_point)
        first, last = source.column(row, byte), source.column(end_row, end_byte)
        return ast.Place(source.file, row + 1, first + 1, end_row + 1, last)

    def text(self, node: Any) -> str:
        """The text of a node on one line."""
        row, byte = node.start_point
        line: str = self._source.lines[row]
        return line[self._source.column(row, byte) : self._source.column(row, node.end_point[1])]

    def identifier(self, node: Any) -> str:
        """The name that a node is. The parser takes some reserved words for names."""
        text = self.text(node)
        if text in RESERVED:
            raise SpecificationError(f"{text} is a reserved word, not a name", self.place(node))
        return _SETS_OF_NUMBERS.get(text, text)

    def number(self, node: Any, digits: Any, base: int) -> ast.Number:
        """The number that a node is."""
        text = self.text(digits)
        if len(text) > 4000:
            raise SpecificationError(f"a number of {len(text)} digits is too long", self.place(node))
        return ast.Number(value=int(text, base), place=self.place(node))

    # -- operators -----------------------------------------------------------------------------------------------------

    def _operation(self, node: Any) -> Steps:
        operations = _Operations()
        for kind, each in _flat(node):
            if kind == "operand":
                operations.operand((yield each), self.place(each))
            elif kind == "sign":
                operations.sign(self._sign(each))
            elif kind == "field":
                operations.behind(self.place(each), self._field(each.named_children[-1]))
            else:
                arguments = yield from _each(each.named_children[1:])
                operations.behind(self.place(each), self._index(arguments))
        return operations.result()

    def _sign(self, node: Any) -> _Sign:
        spelling = self.text(node)
        name = "-." if node.type == "negative" else name_of(spelling)
        return _Sign(OPERATORS[name], self.place(node), spelling)

    def _field(self, node: Any) -> _Making:
        name = self.identifier(node)
        return lambda record, place: ast.Field(record=record, name=name, place=place)

    def _index(self, arguments: tuple[ast.Expression, ...]) -> _Making:
        return lambda function, place: ast.Index(function=function, arguments=arguments, place=place)

    def _parentheses(self, node: Any) -> Steps:
        return (yield node.named_children[0])

    def _bound_op(self, node: Any) -> Steps:
        operator, *arguments = node.named_children
        called = yield operator
        return ast.Apply(operator=called, arguments=(yield from _each(arguments)), place=self.place(node))

    _bound_nonfix_op = _bound_op

    def _lambda(self, node: Any) -> Steps:
        *names, body = node.named_children
        parameters = tuple(self._parameter(each) for each in names)
        return ast.Lambda(parameters=parameters, body=(yield body), place=self.place(node))

    # -- qualified names and parts of definitions ----------------------------------------------------------------------

    def _prefixed_op(self, node: Any) -> Steps:
        *before, last = _components(node)
        named = last.named_children[0] if last.type in ("bound_op", "bound_nonfix_op") else last
        name = yield from self._path(node, before, named)
        if named is last:
            return name
        arguments = yield from _each(last.named_children[1:])
        if isinstance(name, ast.Part):
            step = replace(name.selectors[-1], arguments=arguments)  # type: ignore[type-var]
            return replace(name, selectors=(*name.selectors[:-1], step))
        return ast.Apply(operator=name, arguments=arguments, place=self.place(node))

    def _subexpression(self, node: Any) -> Steps:
        *before, last = _components(node)
        return (yield from self._path(node, before, last))

    def _path(self, node: Any, before: list[Any], last: Any) -> Steps:
        """The names up to the first selector are one qualified name. All that follows selects parts of it."""
        steps: list[ast.Step] = []
        selectors: list[Any] = []
        of: ast.Expression | None = None
        for each in (*before, last):
            if each.type == "subexpr_tree_nav":
                of = of or self._called(node, steps)
                selectors.append((yield from self._selector(each)))
            else:
                step = yield from self._step(each)
                (selectors if of else steps).append(step)
        if of:
            return ast.Part(of=of, selectors=tuple(selectors), place=self.place(node))
        return self._qualified(node, steps)

    def _qualified(self, node: Any, steps: list[ast.Step]) -> ast.Expression:
        *instances, last = steps
        place = self.place(node)
        if not instances:
            return ast.Name(text=last.name, place=last.place)
        return ast.Qualified(steps=tuple(instances), text=last.name, place=place)

    def _called(self, node: Any, steps: list[ast.Step]) -> ast.Expression:
        name = self._qualified(node, steps)
        arguments = steps[-1].arguments
        return ast.Apply(operator=name, arguments=arguments, place=steps[-1].place) if arguments else name

    def _step(self, node: Any) -> Steps:
        bound = node.type in ("bound_op", "bound_nonfix_op")
        name = yield node.named_children[0] if bound else node
        arguments = (yield from _each(node.named_children[1:])) if bound else ()
        return ast.Step(name=name.text, arguments=arguments, place=self.place(node))

    def _selector(self, node: Any) -> Steps:
        inner = node.named_children[0]
        if inner.type == "operator_args":
            return (yield from _each(inner.named_children))
        if inner.type == "child_id":
            return self.number(inner, inner, 10).value
        return _SELECTORS[inner.type]

    def _proof_step_ref(self, node: Any) -> Steps:
        raise SpecificationError("the name of a proof's step means nothing outside the proof", self.place(node))
        yield

    # -- binding -------------------------------------------------------------------------------------------------------

    def _parameter(self, node: Any) -> ast.Parameter:
        if node.type != "operator_declaration":
            return ast.Parameter(name=self.identifier(node), place=self.place(node))
        name = node.child_by_field_name("name")
        arity = sum(each.type == "placeholder" for each in node.named_children)
        return ast.Parameter(name=self._defined(name), arity=arity, place=self.place(node))

    def _defined(self, node: Any) -> str:
        return name_of(self.text(node)) if node.type.endswith("_op_symbol") else self.identifier(node)

    def _parameters(self, nodes: Iterable[Any]) -> tuple[ast.Parameter, ...]:
        return tuple(self._parameter(each) for each in nodes)

    def _bounds(self, nodes: Iterable[Any]) -> Steps:
        return (yield from _each(each for each in nodes if each.type == "quantifier_bound"))

    def _quantifier_bound(self, node: Any) -> Steps:
        intro = _named(node, "intro")
        domain = yield node.child_by_field_name("set")
        return self._bound(self.place(node), intro, domain)

    def _bound(self, place: ast.Place, intro: list[Any], domain: ast.Expression | None) -> ast.Bound:
        is_tuple = intro[0].type == "tuple_of_identifiers"
        names = intro[0].named_children[1:-1] if is_tuple else intro
        return ast.Bound(names=self._parameters(names), domain=domain, is_tuple=is_tuple, place=place)

    def _bounded_quantification(self, node: Any) -> Steps:
        bounds = yield from self._bounds(node.named_children)
        quantifier = _QUANTIFIERS[node.named_children[0].type]
        body = yield node.child_by_field_name("expression")
        return ast.Quantified(quantifier=quantifier, bounds=bounds, body=body, place=self.place(node))

    def _unbounded_quantification(self, node: Any) -> Steps:
        quantifier, *names, body = node.named_children
        return ast.Unbounded(
            quantifier=_QUANTIFIERS[quantifier.type],
            names=self._parameters(names),
            body=(yield body),
            place=self.place(node),
        )

    def _choose(self, node: Any) -> Steps:
        intro, domain = node.child_by_field_name("intro"), node.child_by_field_name("set")
        bound = self._bound(self.place(intro), [intro], (yield domain) if domain else None)
        return ast.Choose(bound=bound, body=(yield node.child_by_field_name("expression")), place=self.place(node))

    # -- sets, functions, records --------------------------------------------------------------------------------------

    def _finite_set_literal(self, node: Any) -> Steps:
        return ast.SetOf(items=(yield from _each(node.named_children)), place=self.place(node))

    def _set_filter(self, node: Any) -> Steps:
        bound, condition = node.named_children
        return ast.Filter(bound=(yield bound), condition=(yield condition), place=self.place(node))

    def _set_map(self, node: Any) -> Steps:
        result, *bounds = node.named_children
        return ast.Collect(result=(yield result), bounds=(yield from _each(bounds)), place=self.place(node))

    def _tuple_literal(self, node: Any) -> Steps:
        return ast.Tuple(items=(yield from _each(node.named_children[1:-1])), place=self.place(node))

    def _function_literal(self, node: Any) -> Steps:
        *bounds, _, body = node.named_children
        return ast.FunctionOf(bounds=(yield from _each(bounds)), body=(yield body), place=self.place(node))

    def _set_of_functions(self, node: Any) -> Steps:
        domain, _, range_ = node.named_children
        return ast.FunctionSet(domain=(yield domain), range=(yield range_), place=self.place(node))

    def _record_literal(self, node: Any) -> Steps:
        children = [each for each in node.named_children if each.type != "all_map_to"]
        return ast.Record(fields=(yield from self._field_values(children)), place=self.place(node))

    def _set_of_records(self, node: Any) -> Steps:
        return ast.RecordSet(fields=(yield from self._field_values(node.named_children)), place=self.place(node))

    def _field_values(self, nodes: list[Any]) -> Steps:
        made = []
        for name, value in zip(nodes[::2], nodes[1::2], strict=True):
            made.append(ast.FieldValue(name=self.identifier(name), value=(yield value), place=self.place(name)))
        return tuple(made)

    def _except(self, node: Any) -> Steps:
        function, *updates = node.named_children
        return ast.Except(function=(yield function), updates=(yield from _each(updates)), place=self.place(node))

    def _except_update(self, node: Any) -> Steps:
        path = []
        for each in node.named_children[0].named_children:
            is_field = each.type == "except_update_record_field"
            path.append(
                self.identifier(each.named_children[0]) if is_field else (yield from _each(each.named_children))
            )
        return ast.Update(path=tuple(path), value=(yield node.named_children[-1]), place=self.place(node))

    # -- actions -------------------------------------------------------------------------------------------------------

    def _step_expr_or_stutter(self, node: Any) -> Steps:
        action, subscript = node.named_children
        return ast.Square(action=(yield action), subscript=(yield subscript), place=self.place(node))

    def _step_expr_no_stutter(self, node: Any) -> Steps:
        _, action, _, subscript = node.named_children
        return ast.Angle(action=(yield action), subscript=(yield subscript), place=self.place(node))

    def _fairness(self, node: Any) -> Steps:
        kind = node.children[0].type[:2]
        subscript, action = node.named_children
        return ast.Fairness(kind=kind, subscript=(yield subscript), action=(yield action), place=self.place(node))

    # -- control -------------------------------------------------------------------------------------------------------

    def _if_then_else(self, node: Any) -> Steps:
        condition, then, otherwise = yield from _each(node.named_children)
        return ast.If(condition=condition, then=then, otherwise=otherwise, place=self.place(node))

    def _case(self, node: Any) -> Steps:
        arms = yield from _each(each for each in node.named_children if each.type == "case_arm")
        last = node.named_children[-1]
        other = (yield last.named_children[-1]) if last.type == "other_arm" else None
        return ast.Case(arms=arms, other=other, place=self.place(node))

    def _case_arm(self, node: Any) -> Steps:
        condition, _, result = node.named_children
        return ast.Arm(condition=(yield condition), result=(yield result), place=self.place(node))

    def _let_in(self, node: Any) -> Steps:
        *definitions, body = node.named_children
        return ast.Let(definitions=(yield from _each(definitions)), body=(yield body), place=self.place(node))

    def _conj_list(self, node: Any) -> Steps:
        items = yield from _each(each.named_children[-1] for each in node.named_children)
        operator = "/\\" if node.type == "conj_list" else "\\/"
        return ast.Junction(operator=operator, items=items, place=self.place(node))

    _disj_list = _conj_list

    def _label(self, node: Any) -> Steps:
        name, *parameters, _, body = node.named_children
        return ast.Label(
            name=self.identifier(name),
            parameters=tuple(self.identifier(each) for each in parameters),
            body=(yield body),
            place=self.place(node),
        )

    # -- units ---------------------------------------------------------------------------------------------------------

    def _module(self, node: Any) -> Steps:
        units = yield from _each(each for each in node.named_children if each.type not in _SKIPPED)
        extends = [each for each in node.named_children if each.type == "extends"]
        return ast.Module(
            name=self.identifier(node.child_by_field_name("name")),
            extends=tuple(self._extended(each) for clause in extends for each in clause.named_children),
            units=units,
            place=self.place(node),
        )

    def _extended(self, node: Any) -> ast.Extended:
        return ast.Extended(name=self.identifier(node), place=self.place(node))

    def _constant_declaration(self, node: Any) -> Steps:
        yield from ()
        return ast.Constants(parameters=self._parameters(node.named_children), place=self.place(node))

    def _variable_declaration(self, node: Any) -> Steps:
        yield from ()
        return ast.Variables(parameters=self._parameters(node.named_children), place=self.place(node))

    def _recursive_declaration(self, node: Any) -> Steps:
        yield from ()
        return ast.Recursive(parameters=self._parameters(node.named_children), place=self.place(node))

    def _local_definition(self, node: Any) -> Steps:
        return replace((yield node.named_children[0]), is_local=True)

    def _operator_definition(self, node: Any) -> Steps:
        return ast.Operator(
            name=self._defined(node.child_by_field_name("name")),
            parameters=self._parameters(_named(node, "parameter")),
            body=(yield node.child_by_field_name("definition")),
            comment=self._source.comment_above(node.start_point[0] + 1),
            place=self.place(node),
        )

    def _function_definition(self, node: Any) -> Steps:
        return ast.Function(
            name=self.identifier(node.child_by_field_name("name")),
            bounds=(yield from self._bounds(node.named_children)),
            body=(yield node.child_by_field_name("definition")),
            comment=self._source.comment_above(node.start_point[0] + 1),
            place=self.place(node),
        )

    def _instance(self, node: Any) -> Steps:
        module, *substitutions = node.named_children
        return ast.Instance(
            name="",
            parameters=(),
            module=self.identifier(module),
            substitutions=(yield from _each(substitutions)),
            place=self.place(node),
        )

    def _substitution(self, node: Any) -> Steps:
        name, _, value = node.named_children
        return ast.Substitution(name=self._defined(name), value=(yield value), place=self.place(node))

    def _module_definition(self, node: Any) -> Steps:
        instance = yield node.child_by_field_name("definition")
        name = self.identifier(node.child_by_field_name("name"))
        parameters = self._parameters(_named(node, "parameter"))
        return replace(instance, name=name, parameters=parameters, place=self.place(node))

    def _assumption(self, node: Any) -> Steps:
        body = yield node.named_children[-1]
        is_judged = self.text(node.children[0]) != "AXIOM"
        return ast.Assumption(name=self._name_of_unit(node), body=body, is_judged=is_judged, place=self.place(node))

    def _theorem(self, node: Any) -> Steps:
        statement = node.child_by_field_name("statement")
        body = None if statement.type == "assume_prove" else (yield statement)
        return ast.Theorem(name=self._name_of_unit(node), body=body, place=self.place(node))

    def _name_of_unit(self, node: Any) -> str:
        name = node.child_by_field_name("name")
        return self.identifier(name) if name else ""


_QUANTIFIERS = {"forall": "\\A", "exists": "\\E", "temporal_forall": "\\AA", "temporal_exists": "\\EE"}
_SELECTORS = {"langle_bracket": "<<", "rangle_bracket": ">>", "colon": ":", "address": "@"}


def _each(nodes: Iterable[Any]) -> Steps:
    made = []
    for node in nodes:
        made.append((yield node))
    return tuple(made)


def _named(node: Any, field: str) -> list[Any]:
    """The nodes of a field. The parser puts commas and parentheses into it as well."""
    return [each for each in node.children_by_field_name(field) if each.is_named]


def _components(node: Any) -> list[Any]:
    """What stands between the ``!`` of a name."""
    prefix, last = node.named_children
    parts = [each.named_children[0] if each.type == "subexpr_component" else each for each in prefix.named_children]
    return [*parts, last]


# -- precedence --------------------------------------------------------------------------------------------------------


class _Operations:
    """Puts a sequence of operators and operands together, as SANY does."""

    def __init__(self) -> None:
        self._stack: list[_Term | _Sign] = []

    def operand(self, expression: ast.Expression, place: ast.Place) -> None:
        self._stack.append(_Term(expression, place))

    def sign(self, sign: _Sign) -> None:
        """The next operator. Raises :class:`SpecificationError` if it and the one before it need parentheses."""
        if sign.operator.fixity == "prefix":
            self._check_minus(sign)
            self._stack.append(sign)
            return
        self._reduce(sign)
        if sign.operator.fixity == "infix":
            self._stack.append(sign)
        else:
            name = ast.Name(text=sign.operator.name, place=sign.place)
            self.behind(sign.place, lambda operand, place: ast.Apply(operator=name, arguments=(operand,), place=place))

    def behind(self, end: ast.Place, making: _Making) -> None:
        """What is made of the last operand by something behind it."""
        term = self._pop()
        place = _from_to(term.place, end)
        self.operand(making(term.expression, place), place)

    def result(self) -> ast.Expression:
        while len(self._stack) > 1:
            self._combine()
        return self._pop().expression

    def _check_minus(self, sign: _Sign) -> None:
        before = self._stack[-1] if self._stack else None
        if sign.operator.name == "-." and isinstance(before, _Sign) and before.operator.binds_tighter(sign.operator):
            raise SpecificationError(f"put parentheses around what is negated after {before.spelling}", sign.place)

    def _reduce(self, sign: _Sign) -> None:
        while len(self._stack) > 1:
            before = self._stack[-2]
            assert isinstance(before, _Sign)
            if not _goes_first(before, sign):
                return
            self._combine()

    def _combine(self) -> None:
        right, sign = self._pop(), self._stack.pop()
        assert isinstance(sign, _Sign)
        operands = (right,) if sign.operator.fixity == "prefix" else (self._pop(), right)
        place = _from_to(min(sign.place, operands[0].place, key=_start_of), right.place)
        self._stack.append(
            _product(operands, place) if sign.operator.name == "\\X" else _applied(sign, operands, place)
        )

    def _pop(self) -> _Term:
        term = self._stack.pop()
        assert isinstance(term, _Term)
        return term


def _goes_first(before: _Sign, sign: _Sign) -> bool:
    left, right = before.operator, sign.operator
    if left.binds_tighter(right) or (left is right and left.is_associative):
        return True
    if right.binds_tighter(left):
        return False
    raise SpecificationError(_conflict(before, sign), sign.place)


def _conflict(before: _Sign, sign: _Sign) -> str:
    if sign.spelling == "=" and before.place.line < sign.place.line:
        return "a definition needs ==, not ="
    if before.operator is sign.operator:
        return f"{sign.spelling} twice needs parentheses: it is not associative"
    return f"{before.spelling} and {sign.spelling} need parentheses: neither binds more tightly than the other"


def _applied(sign: _Sign, operands: tuple[_Term, ...], place: ast.Place) -> _Term:
    name = ast.Name(text=sign.operator.name, place=sign.place)
    arguments = tuple(each.expression for each in operands)
    return _Term(ast.Apply(operator=name, arguments=arguments, place=place), place)


def _product(operands: tuple[_Term, ...], place: ast.Place) -> _Term:
    first, last = operands
    inner = first.expression
    before = inner.factors if isinstance(inner, ast.Product) and first.is_product else (inner,)
    return _Term(ast.Product(factors=(*before, last.expression), place=place), place, is_product=True)


def _start_of(place: ast.Place) -> tuple[int, int]:
    return place.line, place.column


def _from_to(start: ast.Place, end: ast.Place) -> ast.Place:
    return ast.Place(start.file, start.line, start.column, end.end_line, end.end_column)


def _is_operation(node: Any) -> bool:
    return node.type in _OPERATIONS or _is_prefix_before_parentheses(node)


def _is_prefix_before_parentheses(node: Any) -> bool:
    """For the parser, ``~(a)`` is a call. It binds like ``~a``."""
    return bool(node.type == "bound_nonfix_op" and node.named_children[0].type == "prefix_op_symbol")


def _flat(root: Any) -> Iterator[tuple[str, Any]]:
    """An expression with operators from left to right, each part with its kind: an operand, an operator's sign, or an
    index or a field behind an operand.
    """
    stack = [("", root)]
    while stack:
        kind, node = stack.pop()
        if kind:
            yield kind, node
        elif node.type in _BEHIND:
            stack += [(_BEHIND[node.type], node), ("", node.named_children[0])]
        elif _is_prefix_before_parentheses(node):
            symbol, operand = node.named_children
            stack += [("operand", operand), ("sign", symbol)]
        elif node.type in _OPERATIONS:
            stack += [
                ("sign" if each == node.child_by_field_name("symbol") else "", each)
                for each in node.named_children[::-1]
            ]
        else:
            yield "operand", node
