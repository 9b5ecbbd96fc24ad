"""Reads a specification: its root module, and every module that this one extends or instantiates.

A module is looked for in this order: among the modules inside the one that names it, among the standard modules, in the
same file, in the folder of the root module, in the folders of libraries, and among the community modules that ship with
Fencepost. So a user's own file takes the place of a community module, and never that of a standard module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from fencepost.files import regular
from fencepost.tla import ast, library, syntax
from fencepost.tla.checks import Checker, hint, recursive, taken, takes
from fencepost.tla.errors import ConfigurationError, SpecificationError
from fencepost.tla.scopes import (
    Definition,
    Entry,
    Loaded,
    ModuleScope,
    Shipped,
    World,
    exported,
)
from fencepost.tla.symbols import Constant, Defined, Substituted, Symbol, Variable


def load(path: str | Path, libraries: Iterable[str | Path] = ()) -> Specification:
    """The specification whose root module is in a file, with all that it extends and instantiates.

    ``libraries`` are more folders with modules. Raises :class:`SpecificationError` if a module is not found, is not
    TLA+, or breaks a rule of the language, and OSError if ``path`` cannot be read.
    """
    loader = _Loader(Path(path), [Path(each) for each in libraries])
    return Specification(loader.root(), loader.files)


@dataclass(frozen=True, slots=True, eq=False)
class Assumption:
    """An ``ASSUME`` of the root module or of one that it extends, and the scope of its expression."""

    name: str
    expression: ast.Expression
    scope: ModuleScope


@dataclass(frozen=True, slots=True)
class Replacements:
    """What a configuration replaces: ``names`` by other names (``x <- y``), and ``values``, which somebody gives.

    ``names_in`` and ``values_in`` do so in one module: ``x <- [M] y``. ``places`` has the places of names in the
    configuration, for errors.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    values: frozenset[str] = frozenset()
    names_in: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    values_in: Mapping[str, frozenset[str]] = field(default_factory=dict)
    places: Mapping[str, ast.Place] = field(default_factory=dict)


class Specification:
    """A root module with everything that it uses, checked."""

    def __init__(self, loaded: Loaded, files: Mapping[str, bytes], replacements: Replacements | None = None) -> None:
        self.loaded = loaded
        self.files = files
        self.replacements = replacements or Replacements()
        self._world = World()
        self.scope = self._world.own(loaded).scope(loaded)
        self._replace()

    @property
    def root(self) -> ast.Module:
        assert self.loaded.module is not None
        return self.loaded.module

    @cached_property
    def variables(self) -> tuple[Variable, ...]:
        """The variables of the root module and of those that it extends, in the order of their index."""
        return tuple(each for each in self._declared() if isinstance(each, Variable))

    @cached_property
    def constants(self) -> tuple[Constant, ...]:
        """The constants that need a value: those of the root module and of those that it extends, without those that
        are replaced by a definition, and then the definitions that are replaced by a value.
        """
        named = [self.scope.find(name) for name in self.replacements.values]
        every = [*self._declared(), *named, *self._world.replaced_everywhere.values()]
        return tuple(dict.fromkeys(each for each in every if isinstance(each, Constant)))

    def _declared(self) -> list[Symbol]:
        return [self.scope.realm.symbol(entry) for entry in self.loaded.declared()]

    @cached_property
    def definitions(self) -> Mapping[str, Defined]:
        """The definitions of the root module, with those that it extends or has from an instance without a name."""
        found = {name: self.scope.find(name) for name, entry in self.loaded.names.items() if not entry.is_declared}
        return {name: symbol for name, symbol in found.items() if isinstance(symbol, Defined)}

    @cached_property
    def assumptions(self) -> tuple[Assumption, ...]:
        """The assumptions of the root module and of those that it extends, in the order of the text."""
        return tuple(
            Assumption(unit.name, unit.body, self.scope.realm.scope(loaded))
            for loaded in self.loaded.family()
            if loaded.module is not None
            for unit in loaded.module.units
            if isinstance(unit, ast.Assumption) and unit.is_judged
        )

    def named(self, name: str, what: str, place: ast.Place | None = None) -> Symbol:
        """What a name of the configuration stands for, such as that of an invariant. Raises
        :class:`ConfigurationError`, which says ``what`` the name should be and where it stands.
        """
        symbol = self.scope.find(name)
        if symbol is None:
            known = [each for each, entry in self.loaded.names.items() if entry.place is not None]
            raise ConfigurationError(f"{what} {name} is not defined in {self.loaded.name}{hint(name, known)}", place)
        return symbol

    def with_replacements(self, replacements: Replacements) -> Specification:
        """The same specification, in which a configuration replaces names. Raises :class:`ConfigurationError` for a
        name that the module does not have.
        """
        return Specification(self.loaded, self.files, replacements)

    def _replace(self) -> None:
        given = self.replacements
        for name in given.values:
            entry = self._replaceable(name, self.loaded)
            if not entry.is_declared:
                self._world.replaced[entry] = _given(entry)
        for module, values in given.values_in.items():
            for name in values:
                entry = self._replaceable(name, self._module(module))
                self._world.replaced_everywhere[entry] = _given(entry)
        for name, other in given.names.items():
            entry = self._replaceable(name, self.loaded)
            self._world.replaced[entry] = self._other(entry, other, given.names)
        for module, names in given.names_in.items():
            for name, other in names.items():
                entry = self._replaceable(name, self._module(module))
                self._world.replaced_everywhere[entry] = self._other(entry, other, names)

    def _error(self, message: str, name: str) -> ConfigurationError:
        return ConfigurationError(message, self.replacements.places.get(name))

    def _replaceable(self, name: str, loaded: Loaded) -> Entry:
        entry = loaded.names.get(name)
        if entry is None:
            raise self._error(f"{loaded.name} does not define {name}{hint(name, loaded.names)}", name)
        return entry.original

    def _other(self, entry: Entry, other: str, names: Mapping[str, str]) -> Substituted:
        name = entry.name
        if other in names:
            raise self._error(f"{name} is replaced by {other}, which is replaced itself", name)
        symbol = self.scope.find(other)
        if symbol is None:
            raise self._error(f"{self.loaded.name} does not define {other}{hint(other, self.loaded.names)}", name)
        if entry.arity != len(takes(symbol)):
            raise self._error(f"{name} takes {taken(entry.arity)}, and {other} {len(takes(symbol))}", name)
        return Substituted(name, ast.Name(other, place=entry.place or self.root.place), self.scope)

    def _module(self, name: str) -> Loaded:
        found = modules_of(self.loaded)
        if name not in found:
            raise self._error(f"module {name} is not part of {self.loaded.name}{hint(name, found)}", name)
        return found[name]


def _given(entry: Entry) -> Constant:
    place = entry.place or ast.Place(entry.owner.name, 1, 1, 1, 1)
    return Constant(entry.name, 0, place)


def modules_of(root: Loaded) -> dict[str, Loaded]:
    """All modules that a module uses, by name, and itself."""
    found: dict[str, Loaded] = {}
    stack = [root]
    while stack:
        loaded = stack.pop()
        if loaded.name not in found:
            found[loaded.name] = loaded
            stack += [*loaded.extends, *loaded.instances.values(), *loaded.modules.values()]
    return found


# -- reading -----------------------------------------------------------------------------------------------------------


class _Loader:
    def __init__(self, path: Path, libraries: Sequence[Path]) -> None:
        self.path = path
        self.folders = [path.parent, *libraries]
        self.files: dict[str, bytes] = {}
        self.world = World()
        self._found: dict[str, Loaded] = {}
        self._modules: dict[str, ast.Module] = {}
        self._opening: list[str] = []

    def root(self) -> Loaded:
        self._read(self.path)
        name = self.path.stem
        if name not in self._modules:
            module = next(iter(self._modules.values()))
            raise SpecificationError(
                f"the file {self.path.name} has the module {module.name}: a file has the name of its module, so rename"
                f" one of them",
                module.place,
            )
        return self._load(self._modules[name], None)

    def _read(self, path: Path) -> None:
        text = regular.content(path)
        self.files[str(path)] = text
        for module in syntax.parse(text, str(path)):
            self._modules.setdefault(module.name, module)

    def find(self, name: str, by: Loaded, place: ast.Place) -> Loaded:
        """The module that a name in another module means."""
        within: Loaded | None = by
        while within is not None:
            if name in within.modules:
                return within.modules[name]
            within = within.outer
        if name not in self._found:
            self._found[name] = self._external(name, place)
        return self._found[name]

    def _external(self, name: str, place: ast.Place) -> Loaded:
        if name in self._opening:
            circle = [*self._opening[self._opening.index(name) :], name]
            raise SpecificationError(f"modules use each other in a circle: {', '.join(circle)}", place)
        if name in library.STANDARD:
            return self._shipped(name)
        if name not in self._modules:
            self._read_from_folders(name)
        if name in self._modules:
            return self._load(self._modules[name], None)
        if library.exports(name) is None:
            raise self._missing(name, place)
        return self._shipped(name)

    def _read_from_folders(self, name: str) -> None:
        for folder in self.folders:
            path = folder / f"{name}.tla"
            if path.is_file():
                self._read(path)
                if name not in self._modules:
                    raise SpecificationError(f"{path} has no module {name}: a file has the name of its module")
                return

    def _missing(self, name: str, place: ast.Place) -> SpecificationError:
        beside = [path.stem for folder in self.folders for path in sorted(folder.glob("*.tla"))]
        near = hint(name, [*library.modules(), *beside])
        folders = ", ".join(str(folder) for folder in self.folders)
        return SpecificationError(f"module {name} is not found in {folders}{near}", place)

    def _shipped(self, name: str) -> Loaded:
        """A module of the library. A name that comes two ways is one entry: that of the module which defines it."""
        if name not in self._found:
            loaded = self._found[name] = Loaded(name)
            for each, definition in (library.exports(name) or {}).items():
                if definition.module == name:
                    loaded.names[each] = Entry(each, loaded, Shipped(name, definition.parameters))
                else:
                    loaded.names[each] = self._shipped(definition.module).names[each]
        return self._found[name]

    def _load(self, module: ast.Module, outer: ModuleScope | None) -> Loaded:
        loaded = Loaded(module.name, module, None if outer is None else outer.loaded, is_pure=outer is None)
        self._opening.append(module.name)
        for extended in module.extends:
            _extend(loaded, self.find(extended.name, loaded, extended.place), extended.place)
        _Reader(self, loaded, outer).read(module.units)
        self._opening.pop()
        return loaded

    def load_inner(self, module: ast.Module, outer: ModuleScope) -> Loaded:
        """A module inside another."""
        return self._load(module, outer)


def _extend(loaded: Loaded, other: Loaded, place: ast.Place) -> None:
    loaded.extends = (*loaded.extends, other)
    loaded.is_pure = loaded.is_pure and other.is_pure
    loaded.modules.update({name: inner for name, inner in other.modules.items() if name not in loaded.modules})
    for entry in other.names.values():
        if not entry.is_local:
            _merge(loaded, entry, place)


def _merge(loaded: Loaded, entry: Entry, place: ast.Place) -> None:
    """Two modules may define a name, and the first counts, as in TLC. A declaration and a definition cannot both be."""
    known = loaded.names.setdefault(entry.name, entry)
    if known.is_declared != entry.is_declared:
        raise SpecificationError(
            f"{entry.name} of module {entry.owner.name} conflicts with {entry.name} of module {known.owner.name}", place
        )


def _is_like(one: Entry, other: Entry) -> bool:
    """Whether two declarations say the same. Then the second counts for nothing, as in TLC."""
    return one.is_declared and one.is_variable == other.is_variable and one.arity == other.arity


class _Reader:
    """Reads the units of a module one by one. A unit sees what stands above it."""

    def __init__(self, loader: _Loader, loaded: Loaded, outer: ModuleScope | None) -> None:
        self.loader = loader
        self.loaded = loaded
        self.scope = loader.world.own(loaded, outer).scope(loaded)
        self.checker = Checker(self.scope, self._find_instance)
        self.units: tuple[ast.Unit, ...] = ()
        self.promised: set[str] = set()

    def _find_instance(self, instance: ast.Instance) -> Loaded:
        found = self.loaded.instances[instance] = self.loader.find(instance.module, self.loaded, instance.place)
        return found

    def read(self, units: tuple[ast.Unit, ...]) -> None:
        self.units = units
        for unit in units:
            self._unit(unit)
        self.checker.finish()

    def _unit(self, unit: ast.Unit) -> None:
        if self.promised and not isinstance(unit, ast.Recursive | ast.Operator | ast.Function | ast.Instance):
            names = " and ".join(sorted(self.promised))
            raise SpecificationError(f"{names} is declared RECURSIVE: define it above this line", unit.place)
        match unit:
            case ast.Constants() | ast.Variables():
                self._declare(unit)
            case ast.Recursive():
                self._announce(unit)
            case ast.Operator():
                self.checker.check(unit)
                self._define(unit.name, unit, unit.is_local)
            case ast.Function():
                self._define(unit.name, unit, unit.is_local)
                self.checker.check(unit)
            case ast.Instance():
                self._instantiate(unit)
            case ast.Assumption() | ast.Theorem():
                self._formula(unit)
            case ast.Module():
                self._contain(unit)

    def _declare(self, unit: ast.Constants | ast.Variables) -> None:
        for parameter in unit.parameters:
            entry = Entry(parameter.name, self.loaded, parameter, is_variable=isinstance(unit, ast.Variables))
            known = self.loaded.names.get(parameter.name)
            if known is None or not _is_like(known, entry):
                self.checker.must_be_new(parameter.name, parameter.place)
                self.loaded.is_pure = False
                self._add(entry)

    def _add(self, entry: Entry) -> None:
        self.loaded.names[entry.name] = entry

    def _announce(self, unit: ast.Recursive) -> None:
        definitions = {each.name: each for each in self.units if isinstance(each, ast.Operator | ast.Function)}
        for parameter in unit.parameters:
            self.checker.must_be_new(parameter.name, parameter.place)
            definition = recursive(parameter, definitions)
            self.loaded.recursive[parameter.name] = parameter
            self.promised.add(parameter.name)
            self._add(Entry(parameter.name, self.loaded, definition, is_local=definition.is_local))

    def _define(self, name: str, unit: Definition, is_local: bool = False) -> None:
        known = self.loaded.names.get(name)
        self.promised.discard(name)
        if known is None or known.node is not unit:
            self.checker.must_be_new(name, unit.place)
            self._add(Entry(name, self.loaded, unit, is_local=is_local))

    def _formula(self, unit: ast.Assumption | ast.Theorem) -> None:
        self.checker.check(unit)
        if unit.name and unit.body is not None:
            self._define(unit.name, unit)

    def _contain(self, module: ast.Module) -> None:
        if module.name in self.loaded.modules:
            raise SpecificationError(f"there are two modules {module.name}", module.place)
        self.loaded.modules[module.name] = self.loader.load_inner(module, self.scope)

    def _instantiate(self, unit: ast.Instance) -> None:
        self.checker.check(unit)
        if unit.name:
            self._name_instance(unit)
            return
        other = self.loaded.instances[unit]
        for name in other.names:
            entry = exported(other, name)
            if entry is not None:
                self._import(unit, entry)

    def _name_instance(self, unit: ast.Instance) -> None:
        """The first of two instances with one name counts, as in TLC."""
        known = self.loaded.names.get(unit.name)
        if known is None or not isinstance(known.node, ast.Instance) or known.through is not None:
            self.checker.must_be_new(unit.name, unit.place)
            self._add(Entry(unit.name, self.loaded, unit, is_local=unit.is_local))

    def _import(self, unit: ast.Instance, entry: Entry) -> None:
        """A definition of a module that means the same everywhere is that definition, and no other."""
        is_shared = entry.original.owner.is_pure
        made = Entry(
            entry.name,
            self.loaded,
            entry.node if is_shared else unit,
            is_local=unit.is_local,
            through=None if is_shared else entry,
            alias=entry.original if is_shared else None,
        )
        known = self.loaded.names.setdefault(entry.name, made)
        if (known.is_declared, known.arity) != (made.is_declared, made.arity):
            raise SpecificationError(
                f"{entry.name} of module {entry.owner.name} conflicts with {entry.name} of module {known.owner.name}",
                unit.place,
            )
