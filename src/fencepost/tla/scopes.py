"""Scopes of a loaded specification: they find the symbol of each name.

A :class:`Loaded` is a module after reading: what each of its names is. It is shared by all uses of the module. A
:class:`Realm` is one use: the specification's own, or one ``INSTANCE``. In it, the module's declared names have their
meaning, and so each realm makes its own symbols, the first time that somebody looks them up. A module without constants
and variables means the same everywhere, and has one realm for all uses, as in TLC.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from fencepost.tla import ast
from fencepost.tla.levels import CONSTANT, Key, Level, Operand, Signature, signature, substituted
from fencepost.tla.operators import LANGUAGE
from fencepost.tla.symbols import (
    BuiltIn,
    Constant,
    Defined,
    Instantiated,
    Local,
    Substituted,
    Symbol,
    Variable,
)

# -- modules after reading ---------------------------------------------------------------------------------------------

Given = tuple[ast.Expression, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Shipped:
    """An operator of the library. ``module`` defines it. ``parameters`` has for each parameter how many arguments it
    takes itself: 0 for a value.
    """

    module: str
    parameters: tuple[int, ...]


Definition = ast.Operator | ast.Function | ast.Assumption | ast.Theorem


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """What a name of a module is.

    ``node`` says what: a ``Parameter`` of ``CONSTANT`` or ``VARIABLE``, a definition, an ``Instance`` with a name, or
    one that is ``Shipped`` in the library. ``owner`` is the module in which it stands. ``through`` is set if an
    ``INSTANCE`` without a name brings the definition in: it is that definition in the other module, and ``node`` is the
    ``Instance``. ``alias`` is the same definition, if it means the same here as where it stands.
    """

    name: str
    owner: Loaded
    node: ast.Parameter | Definition | ast.Instance | Shipped
    is_variable: bool = False
    is_local: bool = False
    through: Entry | None = None
    alias: Entry | None = None

    @property
    def original(self) -> Entry:
        """The entry that this one repeats in another module, or itself."""
        return self if self.alias is None else self.alias

    @property
    def is_declared(self) -> bool:
        return isinstance(self.node, ast.Parameter)

    @property
    def arity(self) -> int:
        """The number of arguments that it takes."""
        if self.through is not None:
            return self.through.arity
        match self.node:
            case ast.Parameter(arity=arity):
                return arity
            case ast.Operator(parameters=parameters) | Shipped(parameters=parameters):
                return len(parameters)
            case _:
                return 0

    @property
    def place(self) -> ast.Place | None:
        return None if isinstance(self.node, Shipped) else self.node.place


@dataclass(frozen=True, slots=True)
class Opening:
    """What an ``INSTANCE`` substitutes for the constants and variables of its module, as far as levels go. ``most``
    bounds the levels of what is substituted.
    """

    parameters: tuple[Local, ...]
    values: Mapping[str, Operand]
    most: Mapping[Key, int]


@dataclass(eq=False, slots=True)
class Loaded:
    """A module after reading. ``module`` is None for a module of the library. ``outer`` is the module around it.
    ``instances`` says which module each ``INSTANCE`` in it means, and ``openings`` what it substitutes. ``signatures``
    has the levels of its definitions by their bodies, and ``level`` what follows from all of them.
    """

    name: str
    module: ast.Module | None = None
    outer: Loaded | None = None
    extends: tuple[Loaded, ...] = ()
    names: dict[str, Entry] = field(default_factory=dict)
    modules: dict[str, Loaded] = field(default_factory=dict)
    instances: dict[ast.Instance, Loaded] = field(default_factory=dict)
    openings: dict[ast.Instance, Opening] = field(default_factory=dict)
    recursive: dict[str, ast.Parameter] = field(default_factory=dict)
    signatures: dict[ast.Node, Signature] = field(default_factory=dict)
    level: Level = field(default_factory=Level)
    is_pure: bool = True
    """Whether it means the same wherever it is used: it has no constants, no variables and no module around it."""

    def family(self) -> tuple[Loaded, ...]:
        """All modules that this one extends, each once and in the order of the text, and itself."""
        found: dict[Loaded, None] = {}
        for other in self.extends:
            found.update(dict.fromkeys(other.family()))
        found[self] = None
        return tuple(found)

    def declared(self) -> Iterator[Entry]:
        """The constants and variables, those of extended modules first."""
        return (entry for entry in self.names.values() if entry.is_declared)


def exported(loaded: Loaded, name: str) -> Entry | None:
    """The definition that an instance of a module offers under a name."""
    entry = loaded.names.get(name)
    return None if entry is None or entry.is_local or entry.is_declared else entry


# -- scopes ------------------------------------------------------------------------------------------------------------


class Chain:
    """A scope: names of its own, and the scope around it."""

    def __init__(self, outer: Chain | None) -> None:
        self.outer = outer
        self._lets: dict[ast.Let, LetScope] = {}
        self.parts: dict[ast.Part | ast.Qualified, tuple[Defined, Given]] = {}

    def own(self, name: str) -> Symbol | None:
        """The symbol of a name of this scope itself."""
        raise NotImplementedError

    def names(self) -> Iterable[str]:
        """The names of this scope itself."""
        raise NotImplementedError

    @cached_property
    def home(self) -> ModuleScope:
        """The scope of the module in which this one stands."""
        scope: Chain | None = self
        while scope is not None and not isinstance(scope, ModuleScope):
            scope = scope.outer
        assert scope is not None
        return scope

    def find(self, name: str) -> Symbol | None:
        """The symbol of a name, or None."""
        scope: Chain | None = self
        while scope is not None:
            symbol = scope.own(name)
            if symbol is not None:
                return symbol
            scope = scope.outer
        return None

    def instances(self, steps: tuple[ast.Step, ...]) -> list[Instantiated]:
        """The instances that the steps of a qualified name go through, as far as they are instances."""
        found: list[Instantiated] = []
        symbol = self.find(steps[0].name)
        while isinstance(symbol, Instantiated):
            found.append(symbol)
            if len(found) == len(steps):
                break
            symbol = self.realm_of(symbol).offered(steps[len(found)].name)
        return found

    def realm_of(self, instance: Instantiated) -> Realm:
        return self.home.realm.world.realms[instance]

    def find_qualified(self, steps: tuple[ast.Step, ...], name: str) -> Symbol | None:
        """The symbol of ``I!J!name``, or None."""
        instances = self.instances(steps)
        if len(instances) < len(steps):
            return None
        return self.realm_of(instances[-1]).seen(name, self.realm_of(instances[0]).depth)

    def symbol(self, name: ast.Name | ast.Qualified) -> Symbol:
        """The symbol of a name in an expression of this scope. Raises LookupError if it has none."""
        found = self.find(name.text) if isinstance(name, ast.Name) else self.find_qualified(name.steps, name.text)
        if found is None:
            raise LookupError(f"{name.place}: {name.text}")
        return found

    def inner(self, symbols: Mapping[str, Symbol]) -> InnerScope:
        """A scope in which these names are known as well."""
        return InnerScope(symbols, self)

    def let(self, node: ast.Let) -> LetScope:
        """The scope of the body of a ``LET``. The same for each call with the same node."""
        scope = self._lets.get(node)
        if scope is None:
            scope = self._lets[node] = LetScope(node, self)
        return scope


class Language(Chain):
    """What needs no definition."""

    def __init__(self) -> None:
        super().__init__(None)
        self._symbols = {name: BuiltIn(name, "", arity) for name, arity in LANGUAGE.items()}

    def own(self, name: str) -> Symbol | None:
        return self._symbols.get(name)

    def names(self) -> Iterable[str]:
        return self._symbols


class InnerScope(Chain):
    """Parameters and bound names."""

    def __init__(self, symbols: Mapping[str, Symbol], outer: Chain) -> None:
        super().__init__(outer)
        self.symbols = symbols

    def own(self, name: str) -> Symbol | None:
        return self.symbols.get(name)

    def names(self) -> Iterable[str]:
        return self.symbols


class LetScope(Chain):
    """The definitions of a ``LET``."""

    def __init__(self, node: ast.Let, outer: Chain) -> None:
        super().__init__(outer)
        self.node = node
        self.units = {unit.name: unit for unit in node.definitions if isinstance(unit, _NAMED)}
        self.recursive = recursive_names(node.definitions)
        self._symbols: dict[str, Symbol] = {}

    def own(self, name: str) -> Symbol | None:
        symbol = self._symbols.get(name)
        if symbol is None and name in self.units:
            symbol = self._symbols[name] = self._made(self.units[name])
        return symbol

    def names(self) -> Iterable[str]:
        return self.units

    def _made(self, unit: ast.Operator | ast.Function | ast.Instance) -> Symbol:
        if isinstance(unit, ast.Instance):
            return self.home.realm.world.open(unit, self, locals_around(self))
        return defined(unit, self, unit.name in self.recursive)


_NAMED = (ast.Operator, ast.Function, ast.Instance)


def recursive_names(units: tuple[ast.Unit, ...]) -> dict[str, ast.Parameter]:
    """The names that ``RECURSIVE`` declares."""
    return {each.name: each for unit in units if isinstance(unit, ast.Recursive) for each in unit.parameters}


def locals_around(scope: Chain) -> tuple[Local, ...]:
    """The parameters and bound names that are known in a scope, the outermost first."""
    found: list[Local] = []
    at: Chain | None = scope
    while at is not None and not isinstance(at, ModuleScope):
        if isinstance(at, InnerScope):
            found[:0] = [each for name, each in at.symbols.items() if isinstance(each, Local) and name != "@"]
        at = at.outer
    return tuple(found)


class ModuleScope(Chain):
    """The names of a module, in one realm."""

    def __init__(self, loaded: Loaded, realm: Realm, outer: Chain) -> None:
        super().__init__(outer)
        self.loaded = loaded
        self.realm = realm

    def own(self, name: str) -> Symbol | None:
        entry = self.loaded.names.get(name)
        return None if entry is None else self.realm.symbol(entry)

    def names(self) -> Iterable[str]:
        return self.loaded.names

    def around(self, loaded: Loaded) -> ModuleScope:
        """The scope of a module that is this one, one that it extends, or one around it."""
        scope: Chain | None = self
        while isinstance(scope, ModuleScope):
            if loaded in scope.realm.family:
                return scope.realm.scope(loaded)
            scope = scope.outer
        raise LookupError(loaded.name)


# -- symbols -----------------------------------------------------------------------------------------------------------


def local(parameter: ast.Parameter) -> Local:
    """The symbol of a parameter or a bound name."""
    return Local(parameter.name, parameter.arity, parameter.place)


def bound(scope: Chain, parameters: tuple[Local, ...]) -> Chain:
    """A scope in which the parameters are known as well."""
    return scope.inner({each.name: each for each in parameters}) if parameters else scope


def defined(unit: Definition, scope: Chain, is_recursive: bool) -> Defined:
    """The symbol of a definition that stands in a scope."""
    parameters = tuple(local(each) for each in unit.parameters) if isinstance(unit, ast.Operator) else ()
    body = unit if isinstance(unit, ast.Function) else unit.body
    assert body is not None
    home = scope.home
    return Defined(
        unit.name,
        home.loaded.name,
        parameters,
        body,
        bound(scope, parameters),
        _level_in(home, body),
        unit.place,
        home.realm.implied,
        is_recursive or (isinstance(unit, ast.Function) and _calls_itself(unit)),
        unit.comment if isinstance(unit, ast.Operator | ast.Function) else "",
    )


def _level_in(home: ModuleScope, body: ast.Node) -> int:
    """The level of a definition in its realm: what is substituted for the names in it may have a higher one."""
    found = home.loaded.signatures.get(body)
    if found is None:
        return CONSTANT
    level = found.level
    realm = home.realm
    while realm.instance is not None and realm.at is not None:
        opening = realm.at.home.loaded.openings.get(realm.instance)
        level = level if opening is None else substituted(level, opening.values)
        realm = realm.at.home.realm
    return level.own


def signature_of(symbol: Defined) -> Signature | None:
    """The levels of a definition as the module sees them that has the instance in which it is."""
    home: ModuleScope = symbol.scope.home  # type: ignore[attr-defined]
    found = home.loaded.signatures.get(symbol.body)
    realm = home.realm
    while found is not None and realm.instance is not None and realm.at is not None:
        found = _through(realm.at.home.loaded.openings[realm.instance], found)
        realm = realm.at.home.realm
    return found


def _through(opening: Opening, inside: Signature) -> Signature:
    """The levels of a definition in an instance, which takes the instance's parameters before its own."""
    bounded = {name: min(most, opening.most.get(name, most)) for name, most in inside.level.most.items()}
    outside = signature(substituted(replace(inside.level, most=bounded), opening.values), opening.parameters)
    count = len(opening.parameters)
    return Signature(
        outside.level,
        outside.counts + inside.counts,
        outside.most + inside.most,
        {**outside.allowed, **{(i + count, k): level for (i, k), level in inside.allowed.items()}},
        outside.carried | {(i + count, k, j + count) for i, k, j in inside.carried},
    )


def _calls_itself(unit: ast.Function) -> bool:
    return any(isinstance(node, ast.Name) and node.text == unit.name for node in walk(unit))


def walk(node: ast.Node) -> Iterator[ast.Node]:
    """A node and all nodes in it, in the order of the text."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(list(ast.parts_of(node))))


Item = tuple[ast.Expression, Chain]


def within(node: ast.Node, scope: Chain) -> list[Item]:
    """The expressions directly inside an expression or a function, each with its scope. Those in the definitions of a
    ``LET`` are left out: they belong to the symbols that its scope has.
    """
    match node:
        case ast.Let():
            return [(node.body, scope.let(node))]
        case ast.Quantified() | ast.FunctionOf() | ast.Function():
            return _bounded(node.bounds, node.body, scope)
        case ast.Collect():
            return _bounded(node.bounds, node.result, scope)
        case ast.Choose():
            return _bounded((node.bound,), node.body, scope)
        case ast.Filter():
            return _bounded((node.bound,), node.condition, scope)
        case ast.Unbounded(names=names) | ast.Lambda(parameters=names):
            return [(node.body, bound(scope, tuple(local(each) for each in names)))]
        case _:
            return [(each, scope) for each in expressions(node)]


def _bounded(bounds: tuple[ast.Bound, ...], body: ast.Expression, scope: Chain) -> list[Item]:
    names = tuple(local(name) for each in bounds for name in each.names)
    domains: list[Item] = [(each.domain, scope) for each in bounds if each.domain is not None]
    return [*domains, (body, bound(scope, names))]


def expressions(node: ast.Node) -> Iterator[ast.Expression]:
    """The expressions directly inside a node that binds no names."""
    for each in ast.parts_of(node):
        if isinstance(each, ast.Expression):
            yield each
        else:
            yield from expressions(each)


# -- realms ------------------------------------------------------------------------------------------------------------


class World:
    """All realms of a specification. ``replaced`` has the symbols of names that the configuration replaces: constants
    of the root module, and definitions, these also where instances of their module use them. ``replaced_everywhere``
    has those that it replaces in one module, and so in all instances of it.
    """

    def __init__(self) -> None:
        self.language = Language()
        self.realms: dict[Instantiated, Realm] = {}
        self.replaced: dict[Entry, Symbol] = {}
        self.replaced_everywhere: dict[Entry, Symbol] = {}
        self._own: dict[Loaded, Realm] = {}

    def own(self, loaded: Loaded, at: Chain | None = None) -> Realm:
        """The realm in which the constants and variables of a module are not replaced. ``at`` is the scope around it,
        if it is in another module.
        """
        realm = self._own.get(loaded)
        if realm is None:
            realm = self._own[loaded] = Realm(self, loaded, at=at)
        return realm

    def open(self, instance: ast.Instance, at: Chain, around: tuple[Local, ...] = ()) -> Instantiated:
        """The symbol of an ``INSTANCE`` that stands in a scope. ``around`` are the names bound there."""
        parameters = tuple(local(each) for each in instance.parameters)
        symbol = Instantiated(instance.name, parameters, instance.module, instance.place)
        outside = at.home.realm.implied + around
        self.realms[symbol] = Realm(
            self,
            at.home.loaded.instances[instance],
            instance=instance,
            at=bound(at, parameters),
            implied=outside + parameters,
            depth=len(outside),
        )
        return symbol


class Realm:
    """One use of a module.

    ``instance`` is the ``INSTANCE``, if it is one, and ``at`` the scope in which that stands. ``implied`` are the
    parameters of the definitions in it. The first ``depth`` of them are known where the ``INSTANCE`` stands.
    """

    def __init__(
        self,
        world: World,
        top: Loaded,
        *,
        instance: ast.Instance | None = None,
        at: Chain | None = None,
        implied: tuple[Local, ...] = (),
        depth: int = 0,
    ) -> None:
        self.world = world
        self.top = top
        self.instance = instance
        self.at = at
        self.implied = implied
        self.depth = depth
        self.values = {} if instance is None else {each.name: each.value for each in instance.substitutions}
        self._scopes: dict[Loaded, ModuleScope] = {}
        self._symbols: dict[Entry, Symbol] = {}
        self._imports: dict[ast.Instance, Realm] = {}
        self._seen: dict[tuple[str, int], Symbol | None] = {}

    @cached_property
    def family(self) -> frozenset[Loaded]:
        return frozenset(self.top.family())

    def scope(self, loaded: Loaded) -> ModuleScope:
        """The scope of the module or of one that it extends."""
        scope = self._scopes.get(loaded)
        if scope is None:
            scope = self._scopes[loaded] = ModuleScope(loaded, self, self._outer(loaded))
        return scope

    def _outer(self, loaded: Loaded) -> Chain:
        if loaded.outer is None:
            return self.world.language
        assert self.at is not None
        return self.at.home.around(loaded.outer)

    def symbol(self, entry: Entry) -> Symbol:
        """The symbol of a name of a module of this realm."""
        entry = entry.original
        realm = self.world.own(entry.owner) if entry.owner.is_pure else self
        return realm._own(entry)

    def _own(self, entry: Entry) -> Symbol:
        symbol = self._symbols.get(entry)
        if symbol is None:
            symbol = self._symbols[entry] = self._replaced(entry) or self._made(entry)
        return symbol

    def _replaced(self, entry: Entry) -> Symbol | None:
        if entry in self.world.replaced and (self.instance is None or not entry.is_declared):
            return self.world.replaced[entry]
        return self.world.replaced_everywhere.get(entry)

    def _made(self, entry: Entry) -> Symbol:
        node = entry.node
        if isinstance(node, Shipped):
            return BuiltIn(entry.name, node.module, len(node.parameters))
        if isinstance(node, ast.Parameter):
            return self._declared(entry, node) if self.instance is None else self._substituted(entry, self.instance)
        scope = self.scope(entry.owner)
        if entry.through is not None:
            assert isinstance(node, ast.Instance)
            return self._import(node, scope).symbol(entry.through)
        if isinstance(node, ast.Instance):
            return self.world.open(node, scope)
        return defined(node, scope, entry.name in entry.owner.recursive)

    def _declared(self, entry: Entry, node: ast.Parameter) -> Symbol:
        if not entry.is_variable:
            return Constant(entry.name, node.arity, node.place)
        variables = [each for each in self.top.declared() if each.is_variable]
        return Variable(entry.name, variables.index(entry), node.place)

    def _substituted(self, entry: Entry, instance: ast.Instance) -> Symbol:
        """A substitution that is a plain name is what the name stands for. But not a definition in the place of a
        variable: inside ``ENABLED`` the variable has a next value of its own.
        """
        assert self.at is not None
        value = self.values.get(entry.name) or ast.Name(entry.name, place=instance.place)
        symbol = self.at.symbol(value) if isinstance(value, ast.Name) else None
        if symbol is not None and not (entry.is_variable and isinstance(symbol, Defined)):
            return symbol
        return Substituted(entry.name, value, self.at, entry.is_variable)

    def _import(self, instance: ast.Instance, scope: ModuleScope) -> Realm:
        realm = self._imports.get(instance)
        if realm is None:
            realm = self._imports[instance] = self.world.realms[self.world.open(instance, scope)]
        return realm

    def offered(self, name: str) -> Symbol | None:
        """The symbol of a definition that an instance offers. It is what its own module sees, unless the configuration
        replaces the definition. Then the module uses the other one, and ``I!Op`` still is the module's own, as in TLC.
        """
        entry = exported(self.top, name)
        if entry is not None and entry.original in self.world.replaced and not entry.original.owner.is_pure:
            return self._made(entry.original)
        return None if entry is None else self.symbol(entry)

    def seen(self, name: str, outside: int) -> Symbol | None:
        """The symbol of a definition for a scope in which the first ``outside`` implied parameters are known."""
        key = name, outside
        if key not in self._seen:
            symbol = self.offered(name)
            given = self.implied[outside:]
            self._seen[key] = _taking(given, symbol, outside) if isinstance(symbol, Defined) and given else symbol
        return self._seen[key]


def _taking(given: tuple[Local, ...], symbol: Defined, outside: int) -> Defined:
    """A definition that takes parameters of its instance before its own."""
    return Defined(
        symbol.name,
        symbol.module,
        given + symbol.parameters,
        symbol.body,
        symbol.scope,
        symbol.level,
        symbol.place,
        symbol.implied[:outside],
        symbol.is_recursive,
        symbol.comment,
    )
