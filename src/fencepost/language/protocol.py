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

``Counter(limit=5)`` is a configured protocol. Inside an action or a property, ``self`` is one of its states.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property, partialmethod
from types import FunctionType, MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

from fencepost.errors import FencepostError, Misbehaved, NotAProtocol, OptionError
from fencepost.language.constants import Constant
from fencepost.language.contents import content_of
from fencepost.language.context import Cursor, Slot
from fencepost.language.declarations import NO_VERDICT, Configuration, Declared, Fairness
from fencepost.language.fields import PerKeyOf, Shape, ShapeOf, TableOf, VariableOf, shape_of
from fencepost.language.network import NetworkOf, NetworkShape
from fencepost.language.seam import Model
from fencepost.language.values import NotAValue, Value, show_parameters
from fencepost.text.plain import meant


class Variable:
    """A state variable as a class attribute. It passes ``self.name`` in an action to the cursor."""

    def __init__(self, name: str, declared: Any) -> None:
        self.name = name
        self.declared = declared
        self.held_by: str | None = getattr(declared, "held_by", None)

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        held = instance.__dict__
        cursor = held.get("_cursor")
        if cursor is None:
            raise FencepostError(f"{self.name} is a state variable: it has a value only inside an action or a property")
        part = held["_parts"].get(self.name)
        if part is None:
            part = held["_parts"][self.name] = held["_shapes"][self.name].access(cursor, (self.name,))
        return cursor.read(part) if type(part) is Slot else part

    def __set__(self, instance: Any, value: Any) -> None:
        cursor = instance.__dict__.get("_cursor")
        if cursor is None:
            raise FencepostError(f"{self.name} is a state variable: it can be assigned only inside an action")
        if getattr(value, "_path", None) == (self.name,):
            return  # self.table |= ... changed the view in place
        instance.__dict__["_shapes"][self.name].set(cursor, (self.name,), value)


def _role(attribute: Any) -> str:
    """What a class attribute declares, in words. "" if it is not a declaration."""
    if isinstance(attribute, Constant):
        return "a constant"
    if isinstance(attribute, (Variable, VariableOf, PerKeyOf, TableOf, ShapeOf, NetworkOf)):
        return "a state variable"
    if not isinstance(attribute, Declared):
        return ""
    kind = attribute.kind.replace("_", " ")
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


class _Body(dict[str, Any]):
    """The namespace of a protocol's class body. It refuses a second declaration of a name, which would silently replace
    the first.
    """

    def __setitem__(self, name: str, value: Any) -> None:
        first, second = _role(self.get(name)), _role(value) or "something else"
        if first and self[name] is not value:
            both = f"{first} and then as {second}" if first != second else first
            raise NotAProtocol(f"{name} is declared twice, as {both}: give one of them another name")
        super().__setitem__(name, value)


class _ProtocolType(type):
    """The metaclass of protocols. It checks the names that a class body declares, and those assigned to the class
    later.
    """

    @classmethod
    def __prepare__(cls, name: str, bases: tuple[type, ...], /, **kwargs: Any) -> _Body:
        return _Body()

    def __setattr__(cls, name: str, value: Any) -> None:
        before = inspect.getattr_static(cls, name, None)
        if _role(before) and _role(value) != _role(before):
            raise NotAProtocol(_hides(name, cls.__name__, value, cls.__name__, before))
        super().__setattr__(name, value)


class Protocol(Model, metaclass=_ProtocolType):
    """The base class of protocols. Keyword arguments override constants. An unknown name or a value of the wrong type
    raises :class:`fencepost.OptionError`.

    A protocol may set these class attributes: ``name`` (its name on the command line), ``configurations``, and
    ``fairness``: :func:`weak` and :func:`strong` conditions. Temporal properties are judged only on behaviours that
    satisfy them.
    """

    name: ClassVar[str] = ""
    configurations: ClassVar[Mapping[str, Configuration]] = {}
    fairness: ClassVar[Sequence[Fairness]] = []
    __language__ = "fencepost.language.python:PYTHON"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()
        _members(cls)
        _check_settings(cls)

    def __init__(self, /, **constants: Any) -> None:
        members = _members(type(self))
        _check_settings(type(self))
        values = {name: c.default for name, c in members.constants.items()}
        for name, argument in constants.items():
            if name not in members.constants:
                raise OptionError(unknown_name("constant", name, members.constants, self.name))
            values[name] = members.constants[name].convert(argument)
        self.__dict__["_members"] = members
        self.__dict__["_constants"] = values
        self.__dict__["_cursor"] = None
        self.__dict__["_shapes"] = {n: self._shape(n, v.declared) for n, v in members.variables.items()}

    def _shape(self, name: str, declared: Any) -> Shape:
        try:
            return NetworkShape(declared, self) if isinstance(declared, NetworkOf) else shape_of(declared, self)
        except NotAValue as error:
            raise NotAValue(f"state variable {name} cannot hold {error}") from None
        except Misbehaved as error:
            raise NotAProtocol(f"state variable {name} {error}") from error
        except (TypeError, ValueError) as error:
            raise NotAProtocol(f"state variable {name} is not declared rightly: {error}") from error

    @classmethod
    def configured(cls, configuration: str | None = None, /, **constants: Any) -> Self:
        """The protocol in one of its named configurations, with further constants."""
        overrides: dict[str, Any] = {}
        if configuration is not None:
            if configuration not in cls.configurations:
                raise OptionError(unknown_name("configuration", configuration, cls.configurations, cls.name))
            overrides.update(cls.configurations[configuration].constants)
        overrides.update(constants)
        return cls(**overrides)

    @property
    def constants(self) -> Mapping[str, Value]:
        """The value of every constant, read-only."""
        return MappingProxyType(self.__dict__["_constants"])

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """The shape of every state variable, in declaration order."""
        return MappingProxyType(self.__dict__["_shapes"])

    @classmethod
    def declared(cls, kind: str) -> list[Declared]:
        """The actions or properties of one kind, in declaration order."""
        return [d for d in _members(cls).declared.values() if d.kind == kind]

    def bound_to(self, cursor: Cursor) -> Protocol:
        """This protocol bound to one state: its variables are read from and written to ``cursor``."""
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__dict__)
        bound.__dict__["_cursor"] = cursor
        bound.__dict__["_parts"] = {}
        return bound

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__["_shapes"] or name in self.__dict__["_constants"]:
            object.__setattr__(self, name, value)
            return
        raise AttributeError(f"{name} is not a state variable of {self.name}: declare it with state(...) to assign it")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({show_parameters(self.constants)})"


class _Members(NamedTuple):
    """The declarations of a protocol, by name and in order of declaration."""

    constants: dict[str, Constant]
    variables: dict[str, Variable]
    declared: dict[str, Declared]


def _members(cls: type[Protocol]) -> _Members:
    """The current declarations of a protocol's class, in Python's own order of look-up: with all base classes, also
    plain ones, and with attributes assigned after the class bodies. The constants of plain classes come last.

    Raises :class:`NotAProtocol` if a declaration would be lost: hidden by another kind of attribute or by one of
    Fencepost's own, or wrapped in another decorator.
    """
    attributes: dict[str, list[tuple[type, Any]]] = {}
    for owner in reversed(cls.__mro__):
        if owner not in Protocol.__mro__:
            _check_own(owner, cls)
            for name, attribute in vars(owner).items():
                if name in attributes or _role(attribute) or _lost(attribute) is not None:
                    attributes.setdefault(name, []).append((owner, attribute))
    members = _Members({}, {}, {})
    for name, declared in attributes.items():
        owner, attribute = declared[-1]
        for base, before in declared[:-1]:
            if _role(before) and _role(attribute) != _role(before):
                raise NotAProtocol(_hides(name, owner.__name__, attribute, base.__name__, before))
        _add(members, owner, name, attribute)
    first = {name: each for name, each in members.constants.items() if issubclass(attributes[name][0][0], Protocol)}
    return members._replace(constants=first | members.constants)


def _add(members: _Members, owner: type, name: str, attribute: Any) -> None:
    if isinstance(attribute, (VariableOf, PerKeyOf, TableOf, ShapeOf, NetworkOf)):
        attribute = Variable(name, attribute)
        type.__setattr__(owner, name, attribute)
    if isinstance(attribute, Variable):
        members.variables[name] = attribute
    elif isinstance(attribute, (Constant, Declared)):
        if not attribute.name:  # it was assigned after the body
            attribute.__set_name__(owner, name)
        if attribute.name != name:
            raise NotAProtocol(
                f"{name} of {owner.__name__} is {_role(attribute)} that is named {attribute.name} already: declare"
                " another one"
            )
        if isinstance(attribute, Declared):
            members.declared[name] = attribute
        else:
            # Not in __set_name__: Python 3.11 wraps its errors.
            attribute.default = attribute.convert(attribute.default)
            members.constants[name] = attribute
    else:
        lost = _lost(attribute)
        if lost is not None:
            raise NotAProtocol(
                f"{name} of {owner.__name__} is {_role(lost)} inside another decorator, by which it would be lost:"
                f" write @{lost.kind} above all others"
            )


def _lost(attribute: Any) -> Declared | None:
    """The declaration that another decorator wraps, if any."""
    inner: list[Any] = []
    if isinstance(attribute, FunctionType):
        inner = [attribute.__dict__.get("__wrapped__"), *map(content_of, attribute.__closure__ or ())]
    elif isinstance(attribute, (staticmethod, classmethod)):
        inner = [attribute.__func__]
    elif isinstance(attribute, property):
        inner = [attribute.fget]
    elif isinstance(attribute, (cached_property, partialmethod)):
        inner = [attribute.func]
    return next((one for one in inner if isinstance(one, Declared) and not one.name), None)


def _check_own(owner: type, cls: type[Protocol]) -> None:
    """Raises :class:`NotAProtocol` if an attribute of ``owner`` hides one of Fencepost's own, or the other way
    round.
    """
    hides = cls.__mro__.index(owner) < cls.__mro__.index(Protocol)
    for name, attribute in vars(owner).items():
        if name in _own() and (hides or _role(attribute)):
            raise NotAProtocol(
                f"{name} cannot be {_role(attribute) or 'an attribute'} of {owner.__name__}: Protocol.{name} is"
                " Fencepost's own, choose another name"
            )


@cache
def _own() -> frozenset[str]:
    """The attributes of :class:`Protocol` that a protocol must not redefine."""
    return frozenset(name for name in vars(Protocol) if not name.startswith("__")) - {
        "name",
        "configurations",
        "fairness",
    }


def _hides(name: str, owner: str, attribute: Any, base: str, before: Any) -> str:
    """The message for an attribute of ``owner`` that would replace another kind of declaration."""
    role = _role(attribute)
    if isinstance(before, Declared) and not role:
        return (
            f"{name} of {owner} takes the place of {_role(before)} and is none itself: decorate it too, with"
            f" @{before.kind}{_domains_of(before)}, or choose another name"
        )
    instead = (
        f": write {name} = constant(...)" if isinstance(before, Constant) and not role else ": choose another name"
    )
    return f"{name} is {_role(before)} of {base}, which {role or 'an attribute'} of {owner} would hide{instead}"


def _domains_of(declared: Declared) -> str:
    return f"({', '.join(f'{name}=...' for name in declared.domains)})" if declared.domains else ""


def _check_settings(cls: type[Protocol]) -> None:
    """Raises :class:`NotAProtocol` if a protocol's ``name``, ``fairness`` or ``configurations`` has the wrong type."""
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
            actual = _role(settings[name]) or f"a {type(settings[name]).__name__}"
            raise NotAProtocol(f"{name} is a setting of Fencepost's own, {what}: it cannot be {actual}")
    properties = [d.name for d in _members(cls).declared.values() if d.kind not in NO_VERDICT]
    for name, one in cls.configurations.items():
        if one.expect not in ("holds", "deadlock", *properties):
            known = [*properties, "holds", "deadlock"]
            raise NotAProtocol(
                f"configuration {name} expects {one.expect!r}, which is no property of {cls.name}:"
                f" {meant(str(one.expect), known, 'there are')}"
            )


def _all_of(setting: Any, kind: type) -> bool:
    members = setting.values() if isinstance(setting, Mapping) else setting
    return isinstance(setting, Mapping if kind is Configuration else (tuple, list)) and all(
        isinstance(m, kind) for m in members
    )


def constants_of(protocol: type[Protocol] | Protocol) -> Mapping[str, Constant]:
    """The constants of a protocol, with inherited ones, by name and in order of declaration."""
    return _members(_class_of(protocol)).constants


def variables_of(protocol: type[Protocol] | Protocol) -> Mapping[str, Variable]:
    """The state variables of a protocol, with inherited ones, by name and in order of declaration."""
    return _members(_class_of(protocol)).variables


def declarations_of(protocol: type[Protocol] | Protocol) -> Mapping[str, Declared]:
    """The actions and properties of a protocol, by name and in order of declaration."""
    return _members(_class_of(protocol)).declared


def _class_of(protocol: type[Protocol] | Protocol) -> type[Protocol]:
    return protocol if isinstance(protocol, type) else type(protocol)


def refuse_changed(protocol: Protocol) -> None:
    """Raises :class:`NotAProtocol` if the constants or state variables of its class changed after it was made."""
    made, now = protocol.__dict__["_members"], _members(type(protocol))
    if (made.constants, made.variables) != (now.constants, now.variables):
        raise NotAProtocol(
            f"{type(protocol).__name__} has got other constants or state variables since {protocol!r} was made: make it"
            " anew"
        )


def cursor_of(bound: Any) -> Cursor:
    """The cursor of a bound protocol. See :meth:`Protocol.bound_to`."""
    cursor: Cursor = bound.__dict__["_cursor"]
    return cursor


def unknown_name(what: str, name: str, known: Iterable[str], owner: str) -> str:
    """The message for a name that ``owner`` does not have. It suggests the nearest of the ``known`` names. ``what``:
    the kind of name.
    """
    return f"{owner} has no {what} named {name}: {meant(name, known)}"
