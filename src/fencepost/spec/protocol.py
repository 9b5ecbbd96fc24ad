"""A protocol: a class of constants, state variables, actions and properties.

    class Counter(Protocol):
        limit: int = constant(3)
        count: int = state(0)

        @action
        def tick(self) -> None:
            require(self.count < self.limit)
            self.count += 1

        @invariant
        def never_above_the_limit(self) -> bool:
            return self.count <= self.limit

``Counter(limit=5)`` is a configured protocol. Inside an action or a property, ``self`` is one state of it.
"""

from __future__ import annotations

import enum
import inspect
import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar, cast, overload

from fencepost.errors import FencepostError, NotAProtocol, OptionError
from fencepost.spec.context import Cursor
from fencepost.spec.fields import PerKeyOf, Shape, TableOf, VariableOf, resolve, shape_of
from fencepost.spec.network import NetworkOf, NetworkShape
from fencepost.spec.text import whole_number
from fencepost.spec.values import MAX_MEMBERS, ModelValue, NotAValue, Set, Value, canonical, finite, freeze, show

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


# -- constants --------------------------------------------------------------------------------------------------------

Symmetric = bool | Callable[[Any], str]
"""Whether exchanging members of a constant changes nothing: a function of the protocol returns "", or why not."""


class Constant:
    """A constant of a protocol: its default, its type, and how a user's text becomes a value of it."""

    def __init__(self, default: Any, doc: str = "", prefix: str | None = None, symmetric: Symmetric = False) -> None:
        self.prefix = prefix
        self.symmetric = symmetric
        self.doc = doc
        self.name = ""
        self.default = default
        self.__constant_name__ = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.__constant_name__ = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        return instance.__dict__["_constants"][self.name]

    def __set__(self, instance: Any, value: Any) -> None:
        raise AttributeError(f"{self.name} is a constant: actions can only assign state variables")

    @property
    def kind(self) -> str:
        """The type as a user reads it."""
        if self.prefix is not None:
            return "set of model values"
        if isinstance(self.default, enum.Enum):
            return "one of " + ", ".join(type(self.default).__members__)
        if isinstance(self.default, (frozenset, tuple)):
            return "set" if isinstance(self.default, frozenset) else "sequence"
        return {bool: "true or false", int: "a whole number", str: "text", float: "a number"}.get(
            type(self.default), type(self.default).__name__
        )

    def _wrong(self, given: Any) -> OptionError:
        if self.prefix is not None:
            hint = f", for example {self.name}=3 or {self.name}={self.prefix}1,{self.prefix}2"
        else:
            values = self.default if isinstance(self.default, (frozenset, tuple)) else (self.default,)
            hint = f", for example {self.name}={','.join(v if isinstance(v, str) else show(v).lower() for v in values)}"
        kind = f"a {self.kind}" if self.kind.startswith(("set", "sequence")) else self.kind
        return OptionError(f"constant {self.name} is {kind}, not {given!r}{hint}")

    def convert(self, given: Any) -> Value:
        """``given`` (from Python or, as text, from a command line) as a value of this constant.

        Raises :class:`OptionError` if it is of another type.
        """
        if self.prefix is not None:
            return self._model_values(given)
        default = self.default
        if type(given) is str and type(default) is not str:
            return self._parse(given)
        if isinstance(default, frozenset) and isinstance(given, (set, frozenset, list, tuple)):
            return Set(self._frozen(tuple(given)))
        if isinstance(default, tuple) and isinstance(given, (list, tuple)):
            return self._frozen(tuple(given))
        if default is not None and type(given) is not type(default):
            raise self._wrong(given)
        return self._frozen(given)

    def _frozen(self, given: Any) -> Value:
        try:
            return freeze(given)
        except NotAValue as error:
            raise OptionError(f"constant {self.name} can not be {error}") from None

    def _parse(self, text: str) -> Value:
        return self._parse_like(self.default, text)

    def _parse_like(self, default: Value, text: str) -> Value:
        if type(default) is str:
            return text
        if isinstance(default, bool):
            if text.lower() in ("true", "yes", "on"):
                return True
            if text.lower() in ("false", "no", "off"):
                return False
            raise self._wrong(text)
        if isinstance(default, enum.Enum):
            for member in type(default):
                if member.name.lower() == text.lower():
                    return member
            raise self._wrong(text)
        if isinstance(default, (int, float)):
            try:
                return self._frozen(whole_number(text) if isinstance(default, int) else float(text))
            except ValueError:
                raise self._wrong(text) from None
        if isinstance(default, (frozenset, tuple)):
            element = next(iter(default), "")
            parts = [p.strip() for p in text.strip("{}()").split(",") if p.strip()]
            parsed = [self._parse_like(element, p) for p in parts]
            return Set(parsed) if isinstance(default, frozenset) else tuple(parsed)
        raise self._wrong(text)

    def _model_values(self, given: Any) -> tuple[ModelValue, ...]:
        if isinstance(given, bool):
            raise self._wrong(given)
        if isinstance(given, str):
            try:
                given = int(given)
            except ValueError:
                given = [name.strip() for name in given.strip("{}").split(",")]
        if isinstance(given, int):
            least = 1 if self.default else 0
            if not least <= given <= 1000:
                raise OptionError(f"constant {self.name} needs between {least} and 1000 model values, not {given}")
            return tuple(ModelValue(f"{self.prefix}{i + 1}", i) for i in range(given))
        if not isinstance(given, (list, tuple, set, frozenset)):
            raise self._wrong(given)
        ordered = canonical(given) if isinstance(given, (set, frozenset)) else list(given)
        names = [v.name if isinstance(v, ModelValue) else v for v in ordered]
        for name in names:
            if not isinstance(name, str) or not re.fullmatch(r"\w+", name):
                raise self._wrong(name)
        if len(set(names)) != len(names):
            raise OptionError(f"constant {self.name} names a model value twice: {', '.join(names)}")
        if not names and self.default:
            raise self._wrong("")
        return tuple(ModelValue(name, i) for i, name in enumerate(names))


def constant(default: T, doc: str = "") -> T:
    """A constant: a number, a boolean, text, an enum member, a frozenset or a tuple. Its type is its default's."""
    return cast(T, Constant(default, doc))


def model_values(
    prefix: str, count: int | Iterable[str], doc: str = "", *, symmetric: Symmetric = False
) -> tuple[ModelValue, ...]:
    """A constant set of model values, in declaration order: ``count`` of them (``b1``, ``b2``, ...) or the given names.

    It can be empty only if it is by default (a ``count`` of 0): what has nobody to act holds too easily.

    ``symmetric`` declares that no action and no property tells them apart, so that ``--symmetry`` may take states that
    differ only in who is who for one. Where that depends on the constants it is a function of them: "" where it is so,
    else the reason.
    """
    given = count if isinstance(count, int) else tuple(count)
    return cast("tuple[ModelValue, ...]", Constant(given, doc, prefix, symmetric))


# -- actions and properties -------------------------------------------------------------------------------------------


@dataclass
class Declared:
    """A method of a protocol that Fencepost runs: an action or a property."""

    kind: str
    function: Callable[..., Any]
    domains: Mapping[str, Any] = field(default_factory=dict)
    by: Any = None
    when: Callable[[Any], bool] | None = None
    name: str = ""

    @property
    def doc(self) -> str:
        """The docstring, tidied; empty if there is none."""
        return inspect.getdoc(self.function) or ""

    def parameters(self, protocol: Any) -> list[dict[str, Value]]:
        """Every binding of the parameters to members of their domains, in canonical order; one empty binding if
        none.
        """
        names = list(self.domains)
        domains: list[list[Any]] = []
        for name in names:
            domain = resolve(self.domains[name], protocol)
            members = finite(domain, f"the domain of parameter {name} of {self.kind.replace('_', ' ')} {self.name}")
            if isinstance(domain, (set, frozenset)):
                members = canonical(members)
            domains.append([freeze(v) for v in members])
        bindings = math.prod(map(len, domains))
        if bindings > MAX_MEMBERS:
            raise NotAProtocol(
                f"{self.kind.replace('_', ' ')} {self.name} has {bindings:,} bindings of its parameters, and at most"
                f" {MAX_MEMBERS:,} are possible: choose the rest with one_of(...)"
            )
        return [dict(zip(names, values, strict=True)) for values in itertools.product(*domains)]

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else self.function.__get__(instance)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name


def _declare(kind: str, function: Callable[..., Any], **details: Any) -> Any:
    return Declared(kind, function, **details)


@overload
def action(function: F, /) -> F: ...
@overload
def action(*, by: Any = None, **domains: Any) -> Callable[[F], F]: ...
def action(function: Any = None, /, *, by: Any = None, **domains: Any) -> Any:
    """An action: it asks ``require(...)`` for what enables it, and assigns to the state.

    Each parameter of the method is drawn from the domain given for its name: ``@action(b=bookies)``, a constant, any
    iterable, or a function of the protocol. ``by`` tells who acts, for the reader of a trace: a name, or a parameter's
    name.
    """
    if function is not None:
        return _declare("action", function)
    return lambda f: _declare("action", f, domains=domains, by=by)


@overload
def invariant(function: F, /) -> F: ...
@overload
def invariant(*, when: Callable[[Any], bool] | None = None, **domains: Any) -> Callable[[F], F]: ...
def invariant(function: Any = None, /, *, when: Any = None, **domains: Any) -> Any:
    """A state invariant: it must be true in every state, for every binding of its parameters (declared as an action's
    are).

    What it reads together is remembered together, so an invariant over all bookies is best written over each:
    ``@invariant(b=bookies)``. ``when`` (a function of the protocol's constants) turns it off by default.
    """
    if function is not None:
        return _declare("invariant", function)
    return lambda f: _declare("invariant", f, when=when, domains=domains)


@overload
def step_invariant(function: F, /) -> F: ...
@overload
def step_invariant(*, when: Callable[[Any], bool] | None = None, **domains: Any) -> Callable[[F], F]: ...
def step_invariant(function: Any = None, /, *, when: Any = None, **domains: Any) -> Any:
    """A step invariant: ``def fenced_stays(self, after)`` must be true of every state and each of its successors, for
    every binding of its further parameters. ``when`` turns it off by default, as for :func:`invariant`.
    """
    if function is not None:
        return _declare("step_invariant", function)
    return lambda f: _declare("step_invariant", f, when=when, domains=domains)


@overload
def sometimes(function: F, /) -> F: ...
@overload
def sometimes(*, when: Callable[[Any], bool] | None = None, **domains: Any) -> Callable[[F], F]: ...
def sometimes(function: Any = None, /, *, when: Any = None, **domains: Any) -> Any:
    """A state that can be reached: it must be true in some reachable state, for every binding of its parameters in one
    of its own.

    The check tells the shortest behaviour that leads there, a witness, and goes on; it is violated if every state was
    explored and it was true in none. Stateright calls it ``sometimes``; in TLA+ one asks TLC for it by the invariant
    that it is never so. ``when`` turns it off by default, as for :func:`invariant`.
    """
    if function is not None:
        return _declare("sometimes", function)
    return lambda f: _declare("sometimes", f, when=when, domains=domains)


TEMPORAL = ("always_eventually", "eventually_always", "leads_to")
"""The kinds of temporal properties: what must be true of every fair, endless behaviour."""

JUDGED = ("invariant", "step_invariant", "refinement", "sometimes", *TEMPORAL)
"""The kinds of properties that a check judges, and that can be picked by name."""


def _temporal(kind: str, function: Any, when: Any, domains: Mapping[str, Any]) -> Any:
    if function is not None:
        return _declare(kind, function)
    return lambda f: _declare(kind, f, when=when, domains=domains)


@overload
def always_eventually(function: F, /) -> F: ...
@overload
def always_eventually(*, when: Callable[[Any], bool] | None = None, **domains: Any) -> Callable[[F], F]: ...
def always_eventually(function: Any = None, /, *, when: Any = None, **domains: Any) -> Any:
    """Always eventually (TLA+: ``[]<>``): in every fair behaviour it is true again and again, for every binding of its
    parameters.

    ``when`` turns it off by default, as for :func:`invariant`. Fair: see :attr:`Protocol.fairness`.
    """
    return _temporal("always_eventually", function, when, domains)


@overload
def eventually_always(function: F, /) -> F: ...
@overload
def eventually_always(*, when: Callable[[Any], bool] | None = None, **domains: Any) -> Callable[[F], F]: ...
def eventually_always(function: Any = None, /, *, when: Any = None, **domains: Any) -> Any:
    """Eventually always (TLA+: ``<>[]``): in every fair behaviour it becomes true at some point and stays true from
    there on.
    """
    return _temporal("eventually_always", function, when, domains)


@overload
def leads_to(function: F, /) -> F: ...
@overload
def leads_to(*, when: Callable[[Any], bool] | None = None, **domains: Any) -> Callable[[F], F]: ...
def leads_to(function: Any = None, /, *, when: Any = None, **domains: Any) -> Any:
    """Leads to (TLA+: ``~>``): the method returns a pair of truths, and whenever the first holds the second holds then
    or later.
    """
    return _temporal("leads_to", function, when, domains)


def constraint(function: F, /) -> F:
    """A state constraint: states in which it is false are checked but neither counted nor explored further."""
    return cast(F, _declare("constraint", function))


def step_constraint(function: F, /) -> F:
    """A step constraint: ``def f(self, after)``; steps of which it is false are not taken."""
    return cast(F, _declare("step_constraint", function))


def assumption(function: F, /) -> F:
    """An assumption about the constants, checked before anything is explored."""
    return cast(F, _declare("assumption", function))


def initial(function: F, /) -> F:
    """Sets up the initial state, starting from the declared values; with ``one_of`` there is a set of them."""
    return cast(F, _declare("initial", function))


def view(function: F, /) -> F:
    """A view: two states for which it returns equal values count as one state."""
    return cast(F, _declare("view", function))


# -- fairness ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fairness:
    """What :func:`weak` and :func:`strong` declare: no ``actions`` stands for all of them."""

    strong: bool
    actions: tuple[str, ...]
    per: tuple[str, ...] | None


def weak(*actions: Callable[..., Any], per: Sequence[str] | None = None) -> Fairness:
    """Weak fairness (TLA+: ``WF``): what stays enabled is taken at last. Part of :attr:`Protocol.fairness`.

    By default each of the actions is fair by itself, for each binding of its parameters. ``per`` names parameters: then
    the actions are fair together, one demand for each value of those (PlusCal's fair process: ``per=("p",)``). Without
    actions it means all of them, so ``weak(per=())`` only says that the protocol does not stop while a step is
    possible.
    """
    return _fairness(False, actions, per)


def strong(*actions: Callable[..., Any], per: Sequence[str] | None = None) -> Fairness:
    """Strong fairness (TLA+: ``SF``): what is enabled again and again is taken at last. Arguments as for
    :func:`weak`.
    """
    return _fairness(True, actions, per)


def _fairness(strong: bool, actions: Sequence[Any], per: Sequence[str] | None) -> Fairness:
    for one in actions:
        if not isinstance(one, Declared) or one.kind != "action":
            raise NotAProtocol(
                f"{'strong' if strong else 'weak'}(...) is given {one!r}: give it actions, as the methods themselves"
            )
    return Fairness(strong, tuple(a.name or a.function.__name__ for a in actions), None if per is None else tuple(per))


# -- configurations ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Configuration:
    """Named values for the constants, with the verdict that is expected: ``holds``, ``deadlock`` or the name of what is
    violated.
    """

    constants: Mapping[str, Any]
    expect: str = "holds"
    doc: str = ""


NO_VERDICT = ("action", "constraint", "step_constraint", "initial", "view")
"""The kinds of declarations that are no properties: a check has no verdict about them."""


def configuration(expect: str = "holds", doc: str = "", **constants: Any) -> Configuration:
    """A named configuration of a protocol, for ``--config``; see :attr:`Protocol.configurations`.

    ``expect`` is the verdict that a check is to have: ``holds``, the name of a property that is violated, or
    ``deadlock``, for which the check then looks too.
    """
    return Configuration(constants, expect, doc)


# -- the protocol -----------------------------------------------------------------------------------------------------


class Variable:
    """A state variable as a class attribute: the way from ``self.name`` in an action to the cursor."""

    def __init__(self, name: str, declared: Any) -> None:
        self.name = name
        self.declared = declared
        self.held_by: str | None = getattr(declared, "held_by", None)

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        cursor = instance.__dict__.get("_cursor")
        if cursor is None:
            raise FencepostError(f"{self.name} is a state variable: it has a value only inside an action or a property")
        return instance.__dict__["_shapes"][self.name].get(cursor, (self.name,))

    def __set__(self, instance: Any, value: Any) -> None:
        cursor = instance.__dict__.get("_cursor")
        if cursor is None:
            raise FencepostError(f"{self.name} is a state variable: it can be assigned only inside an action")
        if getattr(value, "_path", None) == (self.name,):
            return  # self.table |= ... and the like: the view was changed in place
        instance.__dict__["_shapes"][self.name].set(cursor, (self.name,), value)


def _role(attribute: Any) -> str:
    """What a class attribute declares, in words; empty if it declares nothing."""
    if isinstance(attribute, Constant):
        return "a constant"
    if isinstance(attribute, (Variable, VariableOf, PerKeyOf, TableOf, NetworkOf)):
        return "a state variable"
    if not isinstance(attribute, Declared):
        return ""
    kind = attribute.kind.replace("_", " ")
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


class _Body(dict[str, Any]):
    """The body of a protocol's class while Python runs it. A name that is declared twice would lose its first
    declaration in silence.
    """

    def __setitem__(self, name: str, value: Any) -> None:
        first, second = _role(self.get(name)), _role(value) or "something else"
        if first and self[name] is not value:
            both = f"{first} and then as {second}" if first != second else first
            raise NotAProtocol(f"{name} is declared twice, as {both}: give one of them another name")
        super().__setitem__(name, value)


class _ProtocolType(type):
    """The type of protocols, which are classes: it watches over the names in their bodies."""

    @classmethod
    def __prepare__(cls, name: str, bases: tuple[type, ...], /, **kwargs: Any) -> _Body:
        return _Body()


class Protocol(metaclass=_ProtocolType):
    """The base of every protocol. Keyword arguments override constants; an unknown or ill-typed one raises
    :class:`fencepost.OptionError`.

    Class attributes a protocol may set: ``name`` (how the command line calls it), ``configurations``, and ``fairness``:
    what every behaviour that temporal properties are judged by does, as :func:`weak` and :func:`strong` say it.
    """

    name: ClassVar[str] = ""
    configurations: ClassVar[Mapping[str, Configuration]] = {}
    fairness: ClassVar[Sequence[Fairness]] = []
    _declared_constants: ClassVar[dict[str, Constant]] = {}
    _declared_variables: ClassVar[dict[str, Variable]] = {}
    _declared: ClassVar[dict[str, Declared]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()
        constants: dict[str, Constant] = {}
        variables: dict[str, Variable] = {}
        declared: dict[str, Declared] = {}
        for base in reversed(cls.__bases__):
            constants |= getattr(base, "_declared_constants", {})
            variables |= getattr(base, "_declared_variables", {})
            declared |= getattr(base, "_declared", {})
        _check_names(cls, {**constants, **variables, **declared})
        for name, attribute in list(cls.__dict__.items()):
            if isinstance(attribute, Constant):
                # Not in __set_name__, of which Python 3.11 wraps the errors.
                attribute.default = attribute.convert(attribute.default)
                constants[name] = attribute
            elif isinstance(attribute, (VariableOf, PerKeyOf, TableOf, NetworkOf)):
                variables[name] = Variable(name, attribute)
                setattr(cls, name, variables[name])
            elif isinstance(attribute, Declared):
                declared[name] = attribute
        cls._declared_constants, cls._declared_variables, cls._declared = constants, variables, declared
        _check_settings(cls)

    def __init__(self, /, **constants: Any) -> None:
        values = {name: c.default for name, c in self._declared_constants.items()}
        for name, given in constants.items():
            if name not in self._declared_constants:
                raise OptionError(unknown_name("constant", name, self._declared_constants, self.name))
            values[name] = self._declared_constants[name].convert(given)
        self.__dict__["_constants"] = values
        self.__dict__["_cursor"] = None
        self.__dict__["_shapes"] = {n: self._shape(n, v.declared) for n, v in self._declared_variables.items()}

    def _shape(self, name: str, declared: Any) -> Shape:
        try:
            return NetworkShape(declared, self) if isinstance(declared, NetworkOf) else shape_of(declared, self)
        except NotAValue as error:
            raise NotAValue(f"state variable {name} can not hold {error}") from None
        except (TypeError, ValueError) as error:
            raise NotAProtocol(f"state variable {name} is not declared rightly: {error}") from error

    @classmethod
    def configured(cls, configuration: str | None = None, /, **constants: Any) -> Protocol:
        """The protocol in one of its named configurations, with further constants on top of it."""
        given: dict[str, Any] = {}
        if configuration is not None:
            if configuration not in cls.configurations:
                raise OptionError(unknown_name("configuration", configuration, cls.configurations, cls.name))
            given.update(cls.configurations[configuration].constants)
        given.update(constants)
        return cls(**given)

    @property
    def constants(self) -> Mapping[str, Value]:
        """The value of every constant; it can not be changed."""
        return MappingProxyType(self.__dict__["_constants"])

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """The shape of every state variable, in declaration order."""
        return MappingProxyType(self.__dict__["_shapes"])

    @classmethod
    def declared(cls, kind: str) -> list[Declared]:
        """The actions or properties of one kind, in declaration order."""
        return [d for d in cls._declared.values() if d.kind == kind]

    def bound_to(self, cursor: Cursor) -> Protocol:
        """This protocol with its variables read from and written to ``cursor``: one state, as an action sees it."""
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__dict__)
        bound.__dict__["_cursor"] = cursor
        return bound

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._declared_variables or name in self._declared_constants:
            object.__setattr__(self, name, value)
            return
        raise AttributeError(f"{name} is not a state variable of {self.name}: declare it with state(...) to assign it")

    def __repr__(self) -> str:
        given = ", ".join(f"{n}={show(v)}" for n, v in self.constants.items())
        return f"{type(self).__name__}({given})"


def _check_names(cls: type[Protocol], inherited: Mapping[str, Any]) -> None:
    """Raises :class:`NotAProtocol` if an attribute of ``cls`` hides one of Fencepost's own, or a declaration of another
    kind.
    """
    own = {name for name in vars(Protocol) if not name.startswith("__")} - {"name", "configurations", "fairness"}
    for name, attribute in vars(cls).items():
        role, before = _role(attribute), _role(inherited.get(name))
        if name in own:
            raise NotAProtocol(
                f"{name} can not be {role or 'an attribute'} of {cls.__name__}: Protocol.{name} is Fencepost's own,"
                " choose another name"
            )
        hides = role != before if role else isinstance(inherited.get(name), (Constant, Variable))
        if before and hides:
            instead = (
                f": write {name} = constant(...)" if before == "a constant" and not role else ": choose another name"
            )
            base = next(base.__name__ for base in cls.__mro__[1:] if name in vars(base))
            raise NotAProtocol(
                f"{name} is {before} of {base}, which {role or 'an attribute'} of {cls.__name__} would hide{instead}"
            )
    for name, declared in inherited.items():
        owner, attribute = next((owner, vars(owner)[name]) for owner in cls.__mro__ if name in vars(owner))
        if isinstance(declared, Declared) and not isinstance(attribute, Declared):
            raise NotAProtocol(
                f"{name} of {owner.__name__} takes the place of {_role(declared)} and is none itself: decorate it too,"
                f" with @{declared.kind}{_domains_of(declared)}, or choose another name"
            )


def _domains_of(declared: Declared) -> str:
    return f"({', '.join(f'{name}=...' for name in declared.domains)})" if declared.domains else ""


def _check_settings(cls: type[Protocol]) -> None:
    """Raises :class:`NotAProtocol` if the name, the fairness or the configurations of a protocol are something else."""
    settings: dict[str, Any] = {
        name: inspect.getattr_static(cls, name) for name in ("name", "fairness", "configurations")
    }
    wanted = {
        "name": ("what the command line calls the protocol, a str", isinstance(settings["name"], str)),
        "fairness": ("a list of weak(...) and strong(...)", _all_of(settings["fairness"], Fairness)),
        "configurations": ("a dict of configuration(...) by name", _all_of(settings["configurations"], Configuration)),
    }
    for name, (what, right) in wanted.items():
        if not right:
            given = _role(settings[name]) or f"a {type(settings[name]).__name__}"
            raise NotAProtocol(f"{name} is a setting of Fencepost's own, {what}: it can not be {given}")
    properties = [d.name for d in cls._declared.values() if d.kind not in NO_VERDICT]
    for name, one in cls.configurations.items():
        if one.expect not in ("holds", "deadlock", *properties):
            known = [*properties, "holds", "deadlock"]
            near = get_close_matches(str(one.expect), known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise NotAProtocol(
                f"configuration {name} expects {one.expect!r}, which is no property of {cls.name}: {hint}"
            )


def _all_of(setting: Any, kind: type) -> bool:
    members = setting.values() if isinstance(setting, Mapping) else setting
    return isinstance(setting, Mapping if kind is Configuration else (tuple, list)) and all(
        isinstance(m, kind) for m in members
    )


def constants_of(protocol: type[Protocol] | Protocol) -> Mapping[str, Constant]:
    """The constants that a protocol declares, inherited ones included, by name and in order of declaration."""
    return MappingProxyType(protocol._declared_constants)


def variables_of(protocol: type[Protocol] | Protocol) -> Mapping[str, Variable]:
    """The state variables that a protocol declares, inherited ones included, by name and in order of declaration."""
    return MappingProxyType(protocol._declared_variables)


def declarations_of(protocol: type[Protocol] | Protocol) -> Mapping[str, Declared]:
    """The actions and properties of all kinds that a protocol declares, by name and in order of declaration."""
    return MappingProxyType(protocol._declared)


def cursor_of(bound: Protocol) -> Cursor:
    """The cursor of a protocol that is bound to one; see :meth:`Protocol.bound_to`."""
    cursor: Cursor = bound.__dict__["_cursor"]
    return cursor


def unknown_name(what: str, name: str, known: Iterable[str], owner: str) -> str:
    """The message for a name that is none of those ``known``, with the nearest of these: ``what`` it was to be, and who
    has none of this name, the ``owner``.
    """
    names = list(known)
    near = get_close_matches(name, names, n=1)
    listed = f"did you mean {near[0]}?" if near else f"it has {', '.join(names) or 'none'}"
    return f"{owner} has no {what} named {name}: {listed}"
