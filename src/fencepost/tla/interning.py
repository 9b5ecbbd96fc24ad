"""In which order TLC meets the strings of a specification: what :func:`fencepost.tla.order.use` takes.

TLC numbers every token and every string when it first meets it. It reads the configuration, then its own operators,
then the files: first the root module, then always the first module that some module extends and that is not yet read,
and only if there is none, the first one that is instantiated (`SpecObj` of `tla2sany`). Names, keywords and numbers
count when the file is read. The text of a string counts when its expression is analysed, which happens module by
module, after all files are read, the used modules before those that use them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from fencepost.language.values import ModelValue
from fencepost.tla import ast
from fencepost.tla.library.words import UNITS, Unit
from fencepost.tla.modules import Specification, modules_of
from fencepost.tla.values import Value


def interned(configured: Iterable[Value], root: str, units: Mapping[str, Unit]) -> tuple[str, ...]:
    """All strings and names in TLC's order. ``configured`` are the values of the configuration, as it lists them: sets
    and arguments are tuples.
    """
    met: dict[str, None] = dict.fromkeys(_strings_of(configured))
    met.update(dict.fromkeys(OPERATORS))
    order = loading_order(root, units)
    for name in order:
        met.update(dict.fromkeys(units[name].words))
    for name in analysis_order(root, units):
        met.update(dict.fromkeys(units[name].strings))
    return tuple(met)


def strings_of(specification: Specification, configured: Iterable[Value]) -> tuple[str, ...]:
    """All strings and names of a loaded specification in TLC's order. ``configured`` as for :func:`interned`."""
    units = dict(UNITS)
    for name, loaded in modules_of(specification.loaded).items():
        if loaded.module is not None and loaded.outer is None:
            text = specification.files[loaded.module.place.file]
            units[name] = unit_of(loaded.module, text.decode("utf-8", "surrogateescape"))
    return interned(configured, specification.root.name, units)


def _strings_of(values: Iterable[Value]) -> Iterator[str]:
    for value in values:
        if isinstance(value, tuple):
            yield from _strings_of(value)
        elif isinstance(value, ModelValue):
            yield value.name
        elif isinstance(value, str):
            yield value


# -- which module when -------------------------------------------------------------------------------------------------


_Search = Callable[[Unit, set[str]], "tuple[str, str] | None"]


class _Loading:
    """Goes through the modules as `SpecObj` does. A link is a module that another one extends or instantiates."""

    def __init__(self, units: Mapping[str, Unit]) -> None:
        self.units = units
        self.linked: set[tuple[str, str]] = set()

    def next_extended(self, unit: Unit, seen: set[str]) -> tuple[str, str] | None:
        """The first link that is not yet followed to a module that some module extends."""
        return self._next(unit, seen, unit.extends, self.next_extended)

    def next_instantiated(self, unit: Unit, seen: set[str]) -> tuple[str, str] | None:
        """The first link that is not yet followed to a module that some module instantiates."""
        inner = {each.name for each in unit.inner}
        wanted = tuple(each for each in unit.instances if each not in inner)
        return self._next(unit, seen, wanted, self.next_instantiated)

    def _next(self, unit: Unit, seen: set[str], wanted: tuple[str, ...], again: _Search) -> tuple[str, str] | None:
        if unit.name in seen:
            return None
        seen.add(unit.name)
        for name in wanted:
            if (unit.name, name) not in self.linked and name in self.units:
                return unit.name, name
        for below in self._below(unit):
            if found := again(below, seen):
                return found
        return None

    def _below(self, unit: Unit) -> Iterator[Unit]:
        for name in (*unit.extends, *unit.instances):
            if (unit.name, name) in self.linked:
                yield self.units[name]
        yield from unit.inner


def loading_order(root: str, units: Mapping[str, Unit]) -> tuple[str, ...]:
    """The modules in the order in which their files are read."""
    loading, found = _Loading(units), {root: None}
    while True:
        link = loading.next_extended(units[root], set()) or loading.next_instantiated(units[root], set())
        if link is None:
            return tuple(found)
        loading.linked.add(link)
        found.setdefault(link[1])


def analysis_order(root: str, units: Mapping[str, Unit]) -> tuple[str, ...]:
    """The modules in the order in which their expressions are analysed: the used ones first."""
    found: dict[str, None] = {}
    ahead = [(root, False)]
    while ahead:
        name, is_done = ahead.pop()
        if is_done:
            found.setdefault(name)
        elif name in units and name not in found:
            ahead.append((name, True))
            ahead += [(each, False) for each in reversed(_uses(units[name]))]
    return tuple(found)


def _uses(unit: Unit) -> tuple[str, ...]:
    inner = [each for module in unit.inner for each in _uses(module)]
    return (*unit.extends, *unit.instances, *inner)


# -- what counts of a file ---------------------------------------------------------------------------------------------


def unit_of(module: ast.Module, text: str) -> Unit:
    """A module that is the first in its file, with the text of the file."""
    return Unit(
        module.name,
        tuple(dict.fromkeys(words(text))),
        tuple(dict.fromkeys(_literals(module))),
        tuple(each.name for each in module.extends),
        tuple(_instances(module)),
        tuple(_inner(each) for each in module.units if isinstance(each, ast.Module)),
    )


def _inner(module: ast.Module) -> Unit:
    extends = tuple(each.name for each in module.extends)
    inner = tuple(_inner(each) for each in module.units if isinstance(each, ast.Module))
    return Unit(module.name, extends=extends, instances=tuple(_instances(module)), inner=inner)


def _literals(module: ast.Module) -> Iterator[str]:
    return (each.value for each in _nodes(module, ()) if isinstance(each, ast.String))


def _instances(module: ast.Module) -> Iterator[str]:
    return (each.module for each in _nodes(module, (ast.Module,)) if isinstance(each, ast.Instance))


def _nodes(root: ast.Node, without: tuple[type[ast.Node], ...]) -> Iterator[ast.Node]:
    """The nodes in the order in which TLC analyses them."""
    ahead = [root]
    while ahead:
        node = ahead.pop()
        yield node
        parts = (*node.bounds, node.result) if isinstance(node, ast.Collect) else tuple(ast.parts_of(node))
        ahead += [each for each in reversed(parts) if not isinstance(each, without)]


_HEADER = re.compile(r"-{4,}[ \t]*MODULE")
_TOKEN = re.compile(
    r"""(?P<blank>\s+|\\\*[^\n]*)|(?P<comment>\(\*)|(?P<string>"(?:\\.|[^"\\\n])*"?)
    |(?P<header>-{4,}[ \t]*MODULE)|(?P<rule>-{4,})|(?P<end>={4,})
    |(?P<step><(?:\d+|\*|\+)>\w*)|(?P<fair>[WS]F_)|(?P<word>\w+)|(?P<command>\\[A-Za-z]+)
    |(?P<subscript>>>_|\]_)|(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT = re.compile(r"\(\*|\*\)")


def words(text: str) -> Iterator[str]:
    """The names, keywords and numbers of the first module in a file, without comments and strings."""
    header = _HEADER.search(text)
    at, depth = (header.start() if header else 0), 0
    while token := _TOKEN.match(text, at):
        at, kind = token.end(), token.lastgroup
        if kind == "comment":
            at = _end_of_comment(text, at)
        elif kind in ("word", "fair"):
            yield token.group()
        depth += (kind == "header") - (kind == "end")
        if kind == "end" and depth <= 0:
            return


def _end_of_comment(text: str, at: int) -> int:
    depth = 1
    while depth and (mark := _COMMENT.search(text, at)):
        depth += 1 if mark.group() == "(*" else -1
        at = mark.end()
    return at if depth == 0 else len(text)


# -- what TLC knows at the start ---------------------------------------------------------------------------------------

OPERATORS: tuple[str, ...] = tuple(
    r"""
    STRING FALSE TRUE BOOLEAN = /= . ' \lnot \neg \land \lor \equiv => SUBSET UNION DOMAIN \subseteq \in \notin \
    \intersect \union \times ~> [] <> ENABLED UNCHANGED \cdot -+-> $AngleAct $BoundedChoose $BoundedExists
    $BoundedForall $CartesianProd $Case $ConjList $DisjList $Except $FcnApply $FcnConstructor $IfThenElse
    $NonRecursiveFcnSpec $Pair $RcdConstructor $RcdSelect $RecursiveFcnSpec $Seq $SetEnumerate $SetOfAll $SetOfFcns
    $SetOfRcds $SF $SquareAct $SubsetOf $TemporalExists $TemporalForall $TemporalWhile $Tuple $UnboundedChoose
    $UnboundedExists $UnboundedForall $WF $Nop $Qed $Pfcase $Have $Take $Pick $Witness $Suffices Formal_0 Formal_1 [| ^
    / * - -. + ^+ ^* ^# < \leq > \geq ... .. | || && & $$ $ ?? %% % ## ++ -- ** // ^^ @@ !! |- |= -| =| <: :> := ::=
    \oplus \ominus \odot \oslash \otimes \uplus \sqcap \sqcup \div \wr \star \o \bigcirc \bullet \prec \succ \preceq
    \succeq \sim \simeq \ll \gg \asymp \subset \supset \supseteq \approx \cong \sqsubset \sqsubseteq \sqsupset
    \sqsupseteq \doteq \propto ~ /\ \/ <=> # <= =< >= \X \cap \cup \circ (+) (-) (.) (/) (\X) @
    """.split()
)
"""The names that TLC's parser numbers before it reads a file, as the table of a run shows them."""
