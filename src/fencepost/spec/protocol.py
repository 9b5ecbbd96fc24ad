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

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, ClassVar

from fencepost.errors import FencepostError, NotAProtocol, OptionError
from fencepost.spec.constants import Constant
from fencepost.spec.context import Cursor
from fencepost.spec.declarations import NO_VERDICT, Configuration, Declared, Fairness
from fencepost.spec.fields import PerKeyOf, Shape, TableOf, VariableOf, shape_of
from fencepost.spec.network import NetworkOf, NetworkShape
from fencepost.spec.values import NotAValue, Value, show_parameters


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
    """The kind of thing that a class attribute declares, in words; empty if it declares nothing."""
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
        return f"{type(self).__name__}({show_parameters(self.constants)})"


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
