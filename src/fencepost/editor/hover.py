"""What an editor shows beside a word: the states in which an action is enabled, and the values of an expression."""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fencepost.editor import places
from fencepost.editor.places import Place
from fencepost.editor.space import Enabled, Space
from fencepost.errors import FencepostError, OptionError
from fencepost.language.declarations import Declared
from fencepost.language.protocol import Protocol
from fencepost.language.seam import language_of
from fencepost.language.values import Foreign, Value, show
from fencepost.text.numbers import plural

VALUES = 8
"""The most values that are listed of an expression."""

BINDINGS = 4
"""The most bindings of parameters for which an expression is evaluated."""


def hover(space: Space, title: str, text: str, line: int, column: int) -> tuple[str, Place | None] | None:
    """What to show at a place of the file that ``space`` is of, as Markdown, and the words that it is about. None if
    there is nothing to show. ``title``: of the configuration. ``text``: of the file.
    """
    find = _in_python if isinstance(space.model, Protocol) else _in_specification
    of = plural(len(space.states), "state")
    whole = f"in all {of}" if space.complete else f"in the first {of}"
    found = find(space, text, line, column)
    return None if found is None or not space.states else (f"{found[0]}\n\n*{title}, {whole}*", found[1])


# -- in words ----------------------------------------------------------------------------------------------------------


def declaration(space: Space, declared: Declared) -> str | None:
    """Where an action is enabled, or a property true."""
    known: Enabled | None
    if declared.kind == "action":
        known, said = space.enabled.get(declared.name), "enabled"
    else:
        known, said = space.false.get(declared.name), "false"
    if known is None:
        return None
    every = plural(len(space.states), "state")
    lines = [f"**{declared.name}** is {said} in {known.states:,} of {every}"]
    lines += [f"- `{name}`: {count:,}" for name, count in known.by.most_common(VALUES)]
    if len(known.by) > VALUES:
        lines.append(f"- and {len(known.by) - VALUES:,} more")
    return "\n".join(lines)


def _values(counts: Counter[str], none: Counter[str]) -> list[str]:
    lines = [f"- `{text}`: {plural(count, 'state')}" for text, count in counts.most_common(VALUES)]
    if len(counts) > VALUES:
        more = sum(count for _, count in counts.most_common()[VALUES:])
        lines.append(f"- {plural(len(counts) - VALUES, 'more value')}: {plural(more, 'state')}")
    return lines + [f"- no value, {text}: {plural(count, 'state')}" for text, count in none.most_common(2)]


def _expression(space: Space, shown: str, text: str, bindings: Sequence[Mapping[str, Any]], let: Any) -> str | None:
    """The values of an expression, for each binding of the parameters in it. None if it has none anywhere."""
    lines, any_value = [f"`{shown}`"], False
    for binding in bindings[:BINDINGS]:
        try:
            counts, none = space.values(let(text, binding), binding if isinstance(space.model, Protocol) else {})
        except OptionError:
            return None
        any_value = any_value or bool(counts)
        names = ", ".join(f"{name}={show(value)}" for name, value in binding.items())
        lines += ["", *([f"{names}"] if names else []), *([""] if names else []), *_values(counts, none)]
    if len(bindings) > BINDINGS:
        lines += ["", f"and {len(bindings) - BINDINGS} more bindings"]
    return "\n".join(lines) if any_value else None


# -- in Python ---------------------------------------------------------------------------------------------------------


def _in_python(space: Space, text: str, line: int, column: int) -> tuple[str, Place | None] | None:
    protocol = type(space.model)
    assert issubclass(protocol, Protocol)
    rows = text.split("\n")
    column = len(rows[line - 1][: column - 1].encode()) + 1 if line <= len(rows) else column  # as Python counts
    for owner in places.classes(protocol, space.file):
        if not owner.lineno <= line <= (owner.end_lineno or 0):
            continue
        for node in owner.body:
            first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
            if not first <= line <= (node.end_lineno or 0):
                continue
            if isinstance(node, ast.FunctionDef):
                return _in_method(space, text, node, line, column)
            if isinstance(node, ast.AnnAssign | ast.Assign):
                return _in_variable(space, node, line, column)
    return None


def _in_variable(
    space: Space, node: ast.AnnAssign | ast.Assign, line: int, column: int
) -> tuple[str, Place | None] | None:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in targets:
        if not (isinstance(target, ast.Name) and _spans(target, line, column)):
            continue
        if target.id in space.model.constants:
            return f"`{target.id}` is `{show(space.model.constants[target.id])}`", _place(space, target)
        if target.id in space.model.shapes:
            said = _expression(space, target.id, f"self.{target.id}", [{}], lambda text, _: text)
            return None if said is None else (said, _place(space, target))
    return None


def _in_method(
    space: Space, text: str, node: ast.FunctionDef, line: int, column: int
) -> tuple[str, Place | None] | None:
    declarations = language_of(space.model).declarations(space.model)
    declared = declarations.get(node.name)
    if line == node.lineno and node.col_offset <= column - 1 < node.col_offset + len("def ") + len(node.name):
        said = None if declared is None else declaration(space, declared)
        return None if said is None else (said, None)
    begins = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    for one in _around(node, line, column):
        if isinstance(one, ast.Name | ast.arg):
            name = one.id if isinstance(one, ast.Name) else one.arg
            held = space.local.get((node.name, begins, name))
            if held and name != "self":
                lines = [f"- `{value}`: {plural(count, 'time')}" for value, count in held.most_common(VALUES)]
                if len(held) > VALUES:
                    lines.append(f"- and {plural(len(held) - VALUES, 'more value')}")
                heading = f"`{name}`, when `{node.name}` was run to find steps"
                return "\n".join([heading, "", *lines]), _place(space, one)
        if not isinstance(one, ast.expr):
            continue
        bindings = _bindings(space, declared, one)
        if bindings is None:
            continue
        source = ast.get_source_segment(text, one) or ""
        said = _expression(space, " ".join(source.split()), ast.unparse(_read(one)), bindings, lambda text, _: text)
        if said is not None:
            return said, _place(space, one)
    return None


def _around(node: ast.FunctionDef, line: int, column: int) -> Iterator[ast.AST]:
    """The nodes at a place within a function, the smallest first. For the name of a function that is called, the call
    comes first, and of ``require(...)`` its condition.
    """
    found: list[ast.AST] = []
    inner: ast.AST | None = node
    while inner is not None:
        inner = next((each for each in _children(inner) if _spans(each, line, column)), None)
        if inner is not None:
            found.append(inner)
    found.reverse()
    for number, one in enumerate(found):
        above = found[number + 1] if number + 1 < len(found) else None
        if isinstance(above, ast.Call) and one is above.func:
            if isinstance(one, ast.Name) and one.id == "require" and above.args:
                yield above.args[0]
            continue
        yield one


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that have places, with those of a node that has none instead of it."""
    for child in ast.iter_child_nodes(node):
        if hasattr(child, "lineno"):
            yield child
        else:
            yield from _children(child)


def _spans(node: Any, line: int, column: int) -> bool:
    return bool((node.lineno, node.col_offset) <= (line, column - 1) < (node.end_lineno, node.end_col_offset))


def _place(space: Space, node: Any) -> Place:
    return places.of_node(node, space.file)


def _read(node: ast.expr) -> ast.expr:
    """An expression, also where it is assigned to, as one that is read."""
    read: ast.expr = ast.parse(ast.unparse(node), mode="eval").body
    return read


def _bindings(space: Space, declared: Declared | None, node: ast.expr) -> list[dict[str, Value]] | None:
    """The bindings of the parameters in an expression. None if it has names that have no value between steps."""
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    bound = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}
    if isinstance(node, ast.Name):
        bound = set()
    bound |= {one.arg for one in ast.walk(node) if isinstance(one, ast.arg)}
    module = _globals(space)
    parameters = names & {*declared.domains} if declared is not None else set[str]()
    if names - bound - parameters - module - {"self"} or (parameters | {"self"}).isdisjoint(names):
        return None
    if not parameters or declared is None:
        return [{}]
    try:
        every = declared.parameters(space.model)
    except FencepostError:
        return None
    found: list[dict[str, Value]] = []
    for binding in every:
        one = {name: binding[name] for name in binding if name in parameters}
        if one not in found:
            found.append(one)
    return found


def _globals(space: Space) -> set[str]:
    function = next((d.function for d in language_of(space.model).declarations(space.model).values()), None)
    return {*getattr(function, "__globals__", {}), *vars(builtins)}


# -- in TLA+ -----------------------------------------------------------------------------------------------------------


def _in_specification(space: Space, text: str, line: int, column: int) -> tuple[str, Place | None] | None:
    from fencepost.tla import ast as tla

    model: Any = space.model
    unit = next((each for each in places.units(model) if _covers(each.place, line, column)), None)
    if unit is None:
        return None
    actions = [each for each in model.declared("action") if each.name.partition(":")[0] == getattr(unit, "name", "")]
    if isinstance(unit, tla.Operator) and (line, column) < _begin(unit.body.place):
        for each in [*actions, *(d for d in model.declared("invariant") if d.name == unit.name)]:
            said = declaration(space, each)
            if said is not None:
                return said, None
        return None if unit.parameters else _of_node(space, text, unit.body, [{}])
    bindings: list[dict[str, Any]] = [{}]
    if actions and actions[0].names:
        bindings = [dict(zip(map(str, actions[0].names), arguments, strict=False)) for arguments in actions[0].of]
    word = _word(text, line, column)
    variables = {each.name for each in model.setup.specification.variables}
    if isinstance(unit, tla.Variables) and word in variables:
        said = _expression(space, word, word, [{}], lambda text, _: text)
        return None if said is None else (said, None)
    if isinstance(unit, tla.Constants) and word in model.constants:
        return f"`{word}` is `{show(model.constants[word])}`", None
    for node in _inside(unit, line, column):
        named = next((each for each in model.declared("action") if each.name == getattr(node, "text", None)), None)
        if named is not None:
            said = declaration(space, named)
            return None if said is None else (said, places.of_specification(node.place))
        if isinstance(node, tla.Expression):
            found = _of_node(space, text, node, bindings)
            if found is not None:
                return found
    return None


def _of_node(
    space: Space, text: str, node: Any, bindings: Sequence[Mapping[str, Foreign]]
) -> tuple[str, Place | None] | None:
    source = _slice(text, node.place)
    names = {each.text for each in _every(node) if hasattr(each, "text")}
    if names & {"'", "UNCHANGED", *space.enabled}:  # it is about a step
        return None
    own: list[dict[str, Foreign]] = []
    for binding in bindings:
        one = {name: value for name, value in binding.items() if name in names}
        if one not in own:
            own.append(one)

    def let(text: str, binding: Mapping[str, Foreign]) -> str:
        given = "\n".join(f"{name} == {value.shown()}" for name, value in binding.items())
        return f"LET {given}\nIN\n{text}" if given else text

    # The lines keep their columns, on which lists of conjuncts depend.
    said = _expression(space, " ".join(source.split()), "\n" + " " * (node.place.column - 1) + source, own, let)
    return None if said is None else (said, places.of_specification(node.place))


def _every(node: Any) -> Iterator[Any]:
    from fencepost.tla.ast import parts_of

    yield node
    for part in parts_of(node):
        yield from _every(part)


def _inside(node: Any, line: int, column: int) -> Iterator[Any]:
    """The nodes at a place, the smallest first."""
    from fencepost.tla.ast import parts_of

    for part in parts_of(node):
        if _covers(part.place, line, column):
            yield from _inside(part, line, column)
            yield part
            return


def _begin(place: Any) -> tuple[int, int]:
    return place.line, place.column


def _covers(place: Any, line: int, column: int) -> bool:
    return (place.line, place.column) <= (line, column) <= (place.end_line, place.end_column)


def _slice(text: str, place: Any) -> str:
    lines = text.split("\n")[place.line - 1 : place.end_line]
    if place.end_line == place.line:
        return lines[0][place.column - 1 : place.end_column]
    return "\n".join([lines[0][place.column - 1 :], *lines[1:-1], lines[-1][: place.end_column]])


def _word(text: str, line: int, column: int) -> str:
    lines = text.split("\n")
    row = lines[line - 1] if line <= len(lines) else ""
    start = end = min(column - 1, len(row))
    while start > 0 and (row[start - 1].isalnum() or row[start - 1] == "_"):
        start -= 1
    while end < len(row) and (row[end].isalnum() or row[end] == "_"):
        end += 1
    return row[start:end]
