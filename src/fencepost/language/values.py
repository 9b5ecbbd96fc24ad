"""The values in a protocol's state: immutable, canonically ordered, hashed by content.

A value is ``None``, a bool, an int, a float, a string, bytes, an enum member, a :class:`ModelValue`, a tuple, a frozen
set, a :class:`Map`, a :class:`Record`, or a :class:`Foreign` value. :func:`freeze` converts an author's object to such
a value, or raises with the reason. :func:`encode` gives a value bytes that are equal exactly when the values are, in
every process and with any hash seed. ``True``, ``1`` and ``1.0`` are three values, ``0.0`` and ``-0.0`` are two, and
members of two enums differ even if their names are equal. :func:`order_key` defines the canonical order, the only order
of iteration.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import struct
import weakref
import zlib
from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, Mapping, ValuesView
from functools import cache
from itertools import combinations, islice
from math import comb, copysign
from operator import attrgetter, is_
from typing import Any, ClassVar, TypeVar, dataclass_transform

from fencepost.errors import NotAProtocol
from fencepost.text.plain import abbreviated, printable

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R", bound="Record")

Value = Any
"""Any immutable value as listed above. Python has no useful type for the recursive union."""


MAX_MEMBERS = 1 << 16
"""The most members of a declared collection: the domain of a parameter, the bindings of an action's parameters, the
keys of a map, the senders or receivers of a network's route.
"""


def finite(items: Iterable[T], what: str) -> list[T]:
    """``items`` as a list. Raises :class:`fencepost.NotAProtocol` if there are more than :data:`MAX_MEMBERS`. ``what``
    describes them in the message.
    """
    members = list(islice(items, MAX_MEMBERS + 1))
    if len(members) > MAX_MEMBERS:
        raise NotAProtocol(f"{what} has more than {MAX_MEMBERS:,} members: is it infinite?")
    return members


class NotAValue(TypeError):
    """An object that cannot be part of a state: mutable, unhashable or of an unknown kind."""


class ModelValue:
    """A name that equals only itself, like a model value of TLC: a bookie ``b1``, a client ``c2``.

    ``index`` is its position in the constant that declares it, and sorts it in the canonical order.
    """

    __slots__ = ("_code", "_hash", "index", "name")
    name: str
    index: int
    _code: bytes

    def __init__(self, name: str, index: int = 0) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "index", index)
        # Not hash(name): it depends on the hash seed, and so would Python's order of iteration over a set of these.
        object.__setattr__(self, "_hash", zlib.crc32(name.encode("utf-8", "surrogatepass")))
        object.__setattr__(self, "_code", _text(b"m", name))

    def __setattr__(self, key: str, value: object) -> None:
        raise AttributeError(f"model value {self.name} is immutable")

    def __delattr__(self, key: str) -> None:
        raise AttributeError(f"model value {self.name} is immutable")

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, ModelValue) and other.name == self.name)

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined, no-any-return]

    def __lt__(self, other: ModelValue) -> bool:
        return (self.index, self.name) < (other.index, other.name)

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return (ModelValue, (self.name, self.index))


class Set(frozenset[T_co]):
    """A frozen set that iterates in canonical order. Every set read from a state is one."""

    __slots__ = ("_code", "_frozen")
    _code: bytes  # cached by encode
    _frozen: bool  # whether every element is known to be a value

    def __iter__(self) -> Iterator[T_co]:
        return iter(canonical(frozenset.__iter__(self)))

    def __repr__(self) -> str:
        return show(self)

    # The inherited methods would return plain frozen sets, whose order depends on the hash seed.
    def union(self, *others: Iterable[Any]) -> Any:
        return Set(frozenset.union(self, *others))

    def intersection(self, *others: Iterable[Any]) -> Any:
        return Set(frozenset.intersection(self, *others))

    def difference(self, *others: Iterable[Any]) -> Any:
        return Set(frozenset.difference(self, *others))

    def symmetric_difference(self, other: Iterable[Any]) -> Any:
        return Set(frozenset.symmetric_difference(self, other))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Set, (list(frozenset.__iter__(self)),))


def _set_operator(name: str) -> Any:
    """An operator of frozen sets whose result is a :class:`Set`."""
    plain = getattr(frozenset, name)

    def combined(self: Any, other: Any) -> Any:
        result = plain(self, other)
        return result if result is NotImplemented else Set(result)

    return combined


for _operator in ("or", "and", "sub", "xor"):
    for _name in (f"__{_operator}__", f"__r{_operator}__"):
        setattr(Set, _name, _set_operator(_name))


class Map(Mapping[K, V]):
    """An immutable mapping that iterates in the canonical order of its keys.

    ``m.set(k, v)`` and ``m.without(k)`` return changed copies. ``m | other`` merges as for ``dict``.
    """

    __slots__ = ("_code", "_frozen", "_hash", "_items")

    def __init__(self, items: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        pairs = dict(items)
        self._take({k: pairs[k] for k in canonical(pairs)} if pairs else pairs)

    def _take(self, items: dict[K, V]) -> None:
        """Store items that are already in canonical order."""
        self._items = items
        self._frozen = False
        self._hash: int | None = None
        self._code: bytes | None = None

    @staticmethod
    def _of(items: dict[K, V]) -> Map[K, V]:
        made: Map[K, V] = Map.__new__(Map)
        made._take(items)
        return made

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    # The inherited methods call the ones above for each key.
    def __contains__(self, key: object) -> bool:
        return key in self._items

    def get(self, key: K, default: Any = None) -> Any:
        """The value under a key, or ``default`` if there is no such key."""
        return self._items.get(key, default)

    def items(self) -> ItemsView[K, V]:
        """The keys with their values, in canonical order."""
        return self._items.items()

    def values(self) -> ValuesView[V]:
        """The values, in the canonical order of their keys."""
        return self._items.values()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and self._items == dict(other)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._items.items()))
        return self._hash

    def __or__(self, other: Mapping[K, V]) -> Map[K, V]:
        return Map({**self._items, **other})

    def set(self, key: K, value: V) -> Map[K, V]:
        """A copy in which ``key`` has ``value``."""
        changed = {**self._items, key: value}
        made = Map._of(changed) if len(changed) == len(self._items) else Map(changed)
        made._frozen = self._frozen and _is_frozen(key) and _is_frozen(value)
        return made

    def without(self, key: K) -> Map[K, V]:
        """A copy without ``key``, or the same map if it has no such key."""
        made = Map._of({k: v for k, v in self._items.items() if k != key})
        made._frozen = self._frozen
        return made

    def __repr__(self) -> str:
        return show(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Map, (self._items,))  # without the hash, which differs between processes


PROTOCOL_MODULE = "_protocol_"
"""The prefix of the names of modules made from protocol files. See :func:`fencepost.language.loading.from_file`."""

ENCODED_AS = {
    "fencepost.language.linearizability": "fencepost.linearizability",
    "fencepost.language": "fencepost.spec",
    "fencepost.ledger": "fencepost.store",
    "fencepost.protocols.log.leader": "fencepost.log.checked.leading",
    "fencepost.protocols.log": "fencepost.log.checked",
    "fencepost.protocols.quorum.replica": "fencepost.quorum.checked.replicas",
    "fencepost.protocols.quorum": "fencepost.quorum.checked",
    "fencepost.protocols.store": "fencepost.store.checked",
}
"""The modules of Fencepost whose classes are encoded under another name, the longest first. Fingerprints are a file
format: a module that moves must not change them.
"""

_MAIN = ("__main__", "__mp_main__")
_named: dict[str, weakref.ref[type]] = {}
shared_names: set[str] = set()
"""Full names that several classes of this process share, for example because a file was loaded twice or a function
makes a class.
"""


def full_name(cls: type) -> str:
    """The name that encodes a class: ``module:Outer.Inner``.

    For a class in the protocol's own file it is ``Outer.Inner``, since that module's name depends on how the file is
    run.
    """
    module = cls.__module__
    is_own = module in _MAIN or module.startswith(PROTOCOL_MODULE)
    return cls.__qualname__ if is_own else f"{_encoded_module(module)}:{cls.__qualname__}"


@cache
def _encoded_module(module: str) -> str:
    return _renamed(module, list(ENCODED_AS.items()))


@cache
def module_of(encoded: str) -> str:
    """The module whose classes are encoded under this module name."""
    modules = {name: module for module, name in ENCODED_AS.items()}
    return _renamed(encoded, sorted(modules.items(), key=lambda each: -len(each[0])))


def _renamed(module: str, names: Iterable[tuple[str, str]]) -> str:
    for name, other in names:
        if module == name or module.startswith(f"{name}."):
            return other + module[len(name) :]
    return module


def _text(tag: bytes, text: str) -> bytes:
    raw = text.encode("utf-8", "surrogatepass")
    return tag + str(len(raw)).encode() + b":" + raw


def _register(cls: type) -> None:
    """Register a class by its full name, and record in ``shared_names`` if another class has it."""
    name = full_name(cls)
    known = _named.get(name)
    if known is not None and known() not in (None, cls):
        shared_names.add(name)
    _named[name] = weakref.ref(cls)


@dataclass_transform()
class Record:
    """A named group of values, declared like a dataclass.

    ``_fields`` has the names of its fields, as for a named tuple.

    As the type of a state variable, a record is flattened: each field is a separate part of the state, which actions
    read and assign one by one (``self.writer.status = ...``). Everywhere else it is one immutable value.
    :meth:`replace` makes a changed copy.
    """

    _fields: ClassVar[tuple[str, ...]] = ()
    _full_name: ClassVar[str] = ""
    _code_of_class: ClassVar[bytes] = b""
    _contents: ClassVar[Any]
    """A function of a record that gives the values of its fields."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("__eq__", "__hash__"):
            if name in cls.__dict__:
                raise NotAValue(
                    f"record {cls.__name__} defines {name}, but records are equal by class and content: compare with a"
                    " method"
                )
        has_own_init = "__init__" in cls.__dict__
        dataclasses.dataclass(eq=False, repr=False)(cls)
        cls._fields = tuple(f.name for f in dataclasses.fields(cls))  # type: ignore[arg-type]
        cls._contents = staticmethod(_reader(cls._fields))
        if not has_own_init and _is_plain(cls):
            cls.__init__ = _plain_init(cls)  # type: ignore[method-assign]
        cls._full_name = full_name(cls)
        cls._code_of_class = _text(b"r", cls._full_name)
        _register(cls)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sealed", True)

    def __setattr__(self, name: str, value: object) -> None:
        # A class may bypass __post_init__. Its records become immutable when they are encoded or frozen.
        held = self.__dict__
        if "_sealed" in held or "_code" in held or "_frozen" in held:
            raise AttributeError(
                f"a {type(self).__name__} is an immutable value: make a changed copy with .replace({name}=...)"
            )
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a {type(self).__name__} is an immutable value: its field {name} cannot be deleted")

    def replace(self: R, **changes: Any) -> R:
        """A copy with the named fields changed."""
        return type(self)(**{name: changes.pop(name, getattr(self, name)) for name in self._fields}, **changes)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        if other is self:
            return True
        mine, others = self.__dict__.get("_code"), other.__dict__.get("_code")
        if mine is not None and others is not None and not shared_names:
            return bool(mine == others)
        if not all(getattr(self, n) == getattr(other, n) for n in self._fields):
            return False
        try:
            return encode(self) == encode(other)  # 1 in a field of one is not True in the other
        except NotAValue:
            return True

    def __hash__(self) -> int:
        held = self.__dict__
        known: int | None = held.get("_hash")
        if known is None:
            known = hash((type(self).__name__, *self._contents(self)))
            if "_frozen" in held or "_code" in held:  # it is a value, so its hash is fixed
                held["_hash"] = known
        return known

    def __getstate__(self) -> dict[str, Any]:
        """Without the hash, which differs between processes."""
        return {name: value for name, value in self.__dict__.items() if name != "_hash"}

    def __repr__(self) -> str:
        return show(self)

    def __parts__(self) -> dict[str, Value]:
        """The fields by name, for display."""
        return {name: getattr(self, name) for name in self._fields}

    def __shown__(self) -> str:
        """The record as text for people."""
        parts = ", ".join(f"{name}={show(value)}" for name, value in self.__parts__().items())
        return f"{self.__title__()}({parts})"

    def __title__(self) -> str:
        return type(self).__name__


def _reader(fields: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the values of these fields of a record."""
    if len(fields) > 1:
        return attrgetter(*fields)
    return lambda record: tuple([getattr(record, name) for name in fields])


def _is_plain(cls: type[Record]) -> bool:
    """Whether the constructor of a class only assigns its arguments to the fields."""
    code = cls.__init__.__code__
    is_usual = cls.__post_init__ is Record.__post_init__ and cls.__setattr__ is Record.__setattr__
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    return (
        is_usual
        and "self" not in cls._fields
        and code.co_varnames[1 : code.co_argcount] == cls._fields
        and not code.co_kwonlyargcount
        and all(field.default_factory is dataclasses.MISSING for field in fields)
        and not any(hasattr(inspect.getattr_static(cls, name, None), "__set__") for name in cls._fields)
    )


def _plain_init(cls: type[Record]) -> Callable[..., None]:
    """An ``__init__`` like that of a dataclass, but faster: assignments are not checked."""
    made = cls.__init__
    lines = [f"    self.__dict__[{name!r}] = {name}" for name in cls._fields]
    source = "\n".join(
        [f"def __init__(self, {', '.join(cls._fields)}):", *lines, "    self.__dict__['_sealed'] = True"]
    )
    names: dict[str, Any] = {}
    exec(source, {"__name__": cls.__module__}, names)
    init: Any = names["__init__"]
    init.__defaults__, init.__annotations__, init.__qualname__ = (
        made.__defaults__,
        made.__annotations__,
        made.__qualname__,
    )
    return init  # type: ignore[no-any-return]


class Message(Record):
    """A record that is sent over a :class:`~fencepost.language.network.Network`. Its class is the kind of message.

    ``topic`` may name one of its fields. Then the messages that a channel has in flight are a separate part of the
    state for each value of that field, and a message is received by its topic. Use it for kinds with many different
    messages in flight on one channel.
    """

    topic: ClassVar[str | None] = None


class Foreign:
    """A value of another modelling language. Its class implements these methods, and nothing else is asked of it.

    It is immutable and hashable, and equals only what is the same value: :func:`freeze` returns it as it is. Whatever
    is not yet a value, such as a lazy one, must be of a class that does not derive from this one.
    """

    __slots__ = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _ATOMS.add(cls)

    def encoded(self) -> bytes:
        """The value as bytes, from :func:`framed`. Equal exactly for equal values, in every process. Cache them."""
        raise NotImplementedError

    def order(self) -> Any:
        """A key that sorts it among all foreign values of its language."""
        raise NotImplementedError

    def shown(self) -> str:
        """The value as text for people, on one line."""
        raise NotImplementedError

    def permuted(self, swap: Mapping[ModelValue, ModelValue]) -> Value:
        """The value with model values exchanged throughout."""
        raise NotImplementedError

    def python(self) -> Value:
        """The nearest value of Python, one level deep: a bool, an int, a string, a :class:`Set`, a tuple, a
        :class:`Map`, or a ``dict`` by field for a record. Its parts are values for :func:`show`.
        """
        raise NotImplementedError

    def bracketed(self) -> tuple[str, str, list[tuple[str, Value]]] | None:
        """The value over several lines: its opening and closing bracket, and its parts, each with its label. None for
        a value that stays on one line.
        """
        return None

    def __repr__(self) -> str:
        return self.shown()


def framed(content: bytes) -> bytes:
    """The encoding of a foreign value with this content."""
    return b"w%d:" % len(content) + content


def canonical(items: Iterable[T]) -> list[T]:
    """``items`` in canonical order, which is the same in every process."""
    members = list(items)
    if len(members) > 1 or (members and type(members[0]) not in _ATOMS and not isinstance(members[0], Record)):
        members.sort(key=order_key)
    return members


def subsets(items: Iterable[T], size: int | None = None) -> list[frozenset[T]]:
    """Every subset of ``items``, or only those with ``size`` elements: smallest first, in canonical order."""
    members = canonical(set(finite(items, "what subsets(...) is asked of")))
    number = 2 ** len(members) if size is None else comb(len(members), size)
    if number > MAX_MEMBERS:
        raise NotAProtocol(
            f"subsets(...) of {len(members):,} members would be more than {MAX_MEMBERS:,}: take those of one small size"
        )
    sizes = range(len(members) + 1) if size is None else (size,)
    return [Set(chosen) for n in sizes for chosen in combinations(members, n)]


def order_key(value: Value) -> tuple[Any, ...]:
    """A sort key over all values: by kind, then naturally (numbers by size, enum members and model values in order of
    declaration).
    """
    kind = type(value)
    if kind is int:
        return (2, value)
    if kind is ModelValue:
        return (6, value.index, value.name)
    if value is None:
        return (0,)
    if kind is tuple:
        return (7, len(value), tuple([order_key(v) for v in value]))
    if isinstance(value, Foreign):
        return (12, value.order())
    if isinstance(value, Record):
        return (9, kind.__name__, kind._full_name, tuple(map(order_key, value._contents(value))))
    if isinstance(value, enum.Enum):
        place = value.value if isinstance(value, enum.Flag) else list(type(value)).index(value)
        return (5, type(value).__name__, full_name(type(value)), place)
    if isinstance(value, bool):
        return (1, value)
    if isinstance(value, int):
        return (2, value)
    if isinstance(value, float):
        return (3, value, copysign(1.0, value))
    if isinstance(value, str):
        return (4, value)
    if isinstance(value, tuple):
        return (7, len(value), tuple(order_key(v) for v in value))
    if isinstance(value, (frozenset, set)):
        return (8, len(value), tuple(sorted(order_key(v) for v in frozenset.__iter__(frozenset(value)))))
    if isinstance(value, Mapping):
        return (10, len(value), tuple((order_key(k), order_key(value[k])) for k in value))
    if isinstance(value, bytes):
        return (11, value)
    frozen = freeze(value)
    if type(frozen) is type(value):
        raise NotAValue(f"{value!r} ({type(value).__name__}) has no canonical order")
    return order_key(frozen)


_INTS = {number: b"i%d;" % number for number in range(-1, 1024)}
"""The bytes of the whole numbers that states hold most often."""


def encode(value: Value) -> bytes:
    """The value as bytes. Two values have equal bytes exactly when they are equal by type and content. Interning and
    fingerprints use them.

    Records, sets and maps cache their bytes.
    """
    kind = type(value)
    if kind is int:
        code: bytes | None = _INTS.get(value)
        if code is None:
            # Hexadecimal: decimal output takes quadratic time, and Python limits its length.
            code = b"i%d;" % value if value.bit_length() < 64 else b"x%x;" % value
        return code
    if kind is ModelValue:
        return value._code  # type: ignore[no-any-return]
    if kind is bool:
        return b"T" if value else b"F"
    if isinstance(value, Record):
        code = value.__dict__.get("_code")
        if code is None:
            code = value._code_of_class + b"".join(map(encode, value._contents(value))) + b"."
            value.__dict__["_code"] = code
        return code
    if isinstance(value, Foreign):
        return value.encoded()
    if value is None:
        return b"N"
    if kind is str:
        return _text(b"s", value)
    if kind is tuple:
        return b"(" + b"".join(map(encode, value)) + b")"
    if kind is Set:
        code = getattr(value, "_code", None)
        if code is None:
            code = value._code = b"{" + b"".join(sorted(map(encode, frozenset.__iter__(value)))) + b"}"
        return code
    if kind is Map:
        code = value._code
        if code is None:
            code = value._code = b"[" + b"".join(sorted([encode(k) + encode(v) for k, v in value.items()])) + b"]"
        return code
    if kind is frozenset:
        return b"{" + b"".join(sorted(map(encode, value))) + b"}"
    if isinstance(value, enum.Enum):
        # A combination of flags has no name.
        return _text(b"e", f"{full_name(kind)}.{value.value if isinstance(value, enum.Flag) else value.name}")
    if kind is float:
        return b"f" + struct.pack("<d", value)
    if kind is bytes:
        return bytes(b"b" + str(len(value)).encode() + b":" + value)
    raise NotAValue(f"{value!r} ({kind.__name__}) is not a value")


_ATOMS: set[type] = {type(None), bool, int, str, ModelValue, bytes}  # and every enum class met so far
_ADVICE: dict[type, str] = {
    list: "a tuple",
    set: "a frozenset",
    dict: "a fencepost.Map",
    bytearray: "bytes",
}


def freeze(value: Value) -> Value:
    """The value as a state stores it: the same content, with sets and maps in their canonical classes and record views
    as records.

    Raises :class:`NotAValue` for a mutable or unknown object, and names a replacement.
    """
    kind = type(value)
    if kind in _ATOMS:
        return value
    result: Value
    if isinstance(value, Record):
        if "_frozen" in value.__dict__:
            return value
        changed: dict[str, Value] = {}
        for name in value._fields:
            field = getattr(value, name)
            if type(field) not in _ATOMS:
                frozen = _frozen_field(value, name, field)
                if frozen is not field:
                    changed[name] = frozen
        result = value.replace(**changed) if changed else value
        result.__dict__["_frozen"] = True
        return result
    if kind is tuple:
        for place, part in enumerate(value):
            if type(part) not in _ATOMS and freeze(part) is not part:
                return (*value[:place], *map(freeze, value[place:]))
        return value
    if kind is Map:
        if not value._frozen:
            items = [(freeze(k), freeze(v)) for k, v in value.items()]
            if not all(k is key and v is held for (k, v), (key, held) in zip(items, value.items(), strict=True)):
                value = Map(items)
            value._frozen = True
        return value
    if isinstance(value, enum.Enum):
        _ATOMS.add(kind)
        _register(kind)
        return value
    if isinstance(value, frozenset):
        if kind is Set and getattr(value, "_frozen", False):
            return value
        members = [freeze(v) for v in frozenset.__iter__(value)]
        is_same = kind is Set and all(map(is_, members, frozenset.__iter__(value)))
        result = value if is_same else Set(members)
        result._frozen = True
        return result
    if kind is float:
        if value != value:
            raise NotAValue("NaN, which is not a value: it does not equal itself")
        return value
    view: Callable[[], Value] | None = getattr(value, "__value__", None)
    if view is not None:
        return freeze(view())
    if isinstance(value, tuple):
        raise NotAValue(f"a named tuple ({kind.__name__}); declare a fencepost.Record")
    for mutable, instead in _ADVICE.items():
        if isinstance(value, mutable):
            raise NotAValue(f"a {mutable.__name__}, which is mutable; use {instead}")
    try:
        hash(value)
    except TypeError:
        raise NotAValue(f"a {kind.__name__}, which is unhashable") from None
    raise NotAValue(f"a {kind.__name__}, which Fencepost does not know; declare a fencepost.Record or an enum")


def _is_frozen(value: Value) -> bool:
    """Whether :func:`freeze` is known to return this value as it is."""
    return type(value) in _ATOMS or (isinstance(value, Record) and "_frozen" in value.__dict__)


def same(one: Value, other: Value) -> bool:
    """Whether two values are the same, by type and content: 1 is not True, and 0.0 is not -0.0. Objects that are no
    values are the same if they are equal.
    """
    kind = type(one)
    if kind in _ATOMS:
        return type(other) is kind and bool(one == other)
    try:
        if isinstance(one, Record) and type(other) is kind:  # their comparison would encode both too
            return encode(freeze(one)) == encode(freeze(other))
        return bool(one == other) and encode(freeze(one)) == encode(freeze(other))
    except NotAValue:
        return bool(one == other)


def kind_of(value: Value) -> type | bytes:
    """What distinguishes a value from others that Python considers equal: the class of an atom, or else the encoded
    content.
    """
    kind = type(value)
    return kind if kind in _ATOMS or issubclass(kind, enum.Enum) else encode(value)


def refuse_equal(keys: Collection[Value], key: Value, where: str) -> None:
    """Raises :class:`NotAValue` if ``key`` equals one of ``keys`` for Python but is another value, as 1 and True are.
    In a set or a map, one would silently replace the other.
    """
    for other in keys if key in keys else ():
        if other == key and not same(other, key):
            raise NotAValue(
                f"{show(key)} and {show(other)} are two values, but one key of {where}: Python takes them for equal"
            )


def _frozen_field(record: Record, name: str, value: Value) -> Value:
    try:
        return freeze(value)
    except NotAValue as error:
        raise NotAValue(f"a {type(record).__name__} whose field {name} is {error}") from None


def show(value: Value) -> str:
    """A value as text for people: ``{b1, b2}``, ``Entry(id=1, data=1)``, ``OPEN``.

    The text is printable. A whole number of more than :data:`MOST_DIGITS` digits is abbreviated.
    """
    if type(value) is int:
        return abbreviated(value)
    if isinstance(value, enum.Enum):
        return printable(value.name or repr(value))  # the empty flag has no name
    if isinstance(value, ModelValue):
        return printable(value.name)
    if isinstance(value, tuple):
        return "⟨" + ", ".join(map(show, value)) + "⟩"
    if isinstance(value, (frozenset, set)):
        return "{" + ", ".join(map(show, canonical(frozenset.__iter__(frozenset(value))))) + "}"
    if isinstance(value, Record):
        return value.__shown__()
    if isinstance(value, Foreign):
        return value.shown()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{show(k)}: {show(v)}" for k, v in value.items()) + "}"
    return repr(value)


def constant_text(value: Value) -> str:
    """The value of a constant as the command line takes it: ``b1,b2,b3``, ``True``, ``{1, 2}``."""
    if isinstance(value, tuple):
        if value and all(isinstance(v, ModelValue) for v in value):
            return ",".join(map(show, value))
        return "(" + ", ".join(map(show, value)) + ")"
    if isinstance(value, str):
        return value if value.isidentifier() else repr(value)
    return show(value)


def show_parameters(parameters: Mapping[str, Value]) -> str:
    """Parameters or constants with their values: ``b=b1, e=2``."""
    return ", ".join(f"{name}={show(value)}" for name, value in parameters.items())


def show_call(name: str, parameters: Mapping[str, Value]) -> str:
    """A name with its parameters: ``bookie_confirms_add(b=b1)``. Without parameters: the name alone."""
    return f"{name}({show_parameters(parameters)})" if parameters else name
