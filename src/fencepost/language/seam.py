"""The engine's interface to modelling languages.

An engine explores a :class:`Model`: a protocol in Python, or a specification in TLA+ with its configuration. It asks
nothing of a model but what this module lists:

- **what a model has**: its name, its constants, the shapes of its variables, its declarations, its fairness;
- **how it runs**: a declaration's function is called with the model bound to a cursor, and does everything through
  that cursor (:mod:`fencepost.language.context`);
- **what else depends on the language**: a :class:`Language` has it, so that these names stay free for authors;
- **its values**: those of :mod:`fencepost.language.values`. Another language's values derive from
  :class:`fencepost.language.values.Foreign`, which says how they are encoded, ordered, shown and exchanged.

Python is one such language: :mod:`fencepost.language.python`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any, ClassVar

from fencepost.language.constants import Symmetric
from fencepost.language.context import Cursor
from fencepost.language.declarations import Configuration, Declared, Fairness
from fencepost.language.fields import Shape
from fencepost.language.values import ModelValue, Value


class Model:
    """What an engine explores. It is immutable, but for what its evaluations cache."""

    name: ClassVar[str] = ""
    """What reports call it."""

    fairness: ClassVar[Sequence[Fairness]] = []
    """The conditions that a behaviour must satisfy for a temporal property to be judged on it."""

    configurations: ClassVar[Mapping[str, Configuration]] = {}
    """Named values for its constants."""

    __language__: ClassVar[str] = ""
    """Its :class:`Language`, as ``module:name``. It is imported when it is asked for, since it may need a library."""

    @property
    def constants(self) -> Mapping[str, Value]:
        """The value of every constant."""
        raise NotImplementedError

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """The shape of every state variable, in the order of declaration."""
        raise NotImplementedError

    def declared(self, kind: str, /) -> list[Declared]:
        """The actions or properties of one kind, in the order of declaration. The kinds are those of
        :mod:`fencepost.language.declarations`, and no two declarations have one name.
        """
        raise NotImplementedError

    def bound_to(self, cursor: Cursor) -> Any:
        """What a declaration's function takes for a state: it reads from and writes to ``cursor`` alone."""
        raise NotImplementedError


class Language(ABC):
    """What an engine and its reports ask about a model besides what it has. A method that is not abstract has a default
    for languages without such a thing.
    """

    @abstractmethod
    def declarations(self, model: Any) -> Mapping[str, Declared]:
        """The actions and properties of a model, by name and in the order of declaration."""

    @abstractmethod
    def digest(self, model: Any) -> str:
        """A digest of all source of a model. Another version of the source may number its steps differently."""

    @abstractmethod
    def home(self, model: Any) -> str:
        """The argument with which :func:`fencepost.language.loading.find` loads the model. "" if there is none."""

    @abstractmethod
    def arguments(self, model: Any) -> list[str]:
        """The words that give the model on a command line, with its constants."""

    def words(self, model: Any) -> list[str]:
        """The words of :meth:`arguments`, for any working directory, if these alone restore the model: see
        :func:`fencepost.language.loading.given`. [] for a language whose constants are restored by value.
        """
        return []

    @abstractmethod
    def packed(self, model: Any) -> bytes | None:
        """The model in a form that another process can unpack. None if no other process can have it."""

    @abstractmethod
    def unpacked(self, content: bytes) -> Model:
        """The model that was packed. Raises :class:`ValueError` if this process does not come to the same one."""

    def refuse_changed(self, model: Any) -> None:
        """Raises :class:`fencepost.NotAProtocol` if the model's source has changed in this process since it was
        made.
        """
        return

    def options(self, model: Any) -> Mapping[str, Any]:
        """Options of a check that the model itself asks for. A user's own come before these."""
        return {}

    def hidden(self, model: Any) -> Collection[str]:
        """The names of variables that do not tell states apart, which begin the paths of their slots. Where two states
        differ in nothing else, the one that a search finds first stands for both.
        """
        return ()

    def for_search(self, model: Any, deadline: Any) -> Model:
        """The model as a search explores it. It has the same states, and may lay its variables out in other slots.
        ``deadline`` (:class:`fencepost.semantics.Deadline`) ends what this needs to evaluate.
        """
        found: Model = model
        return found

    def can_be_coarser(self, model: Any, variable: str) -> bool:
        """Whether :meth:`coarser` gives another layout."""
        return False

    def coarser(self, model: Any, variable: str) -> Model:
        """The model with a coarser layout of a variable, of all for "". A search has outgrown the one it had."""
        raise NotImplementedError

    def after_search(self, model: Any, stepper: Any) -> Model:
        """The model as another search explores it, after one (by a :class:`fencepost.semantics.Stepper`) that did not
        come to its end.
        """
        found: Model = model
        return found

    def settled(self, model: Any, stepper: Any) -> Model:
        """The model as a search explores it that begins again (:class:`fencepost.semantics.BeginAgain`), after the one
        by ``stepper``.
        """
        raise NotImplementedError

    def running(self, model: Any) -> AbstractContextManager[Any]:
        """Within this, a model is checked."""
        return nullcontext()

    def note_level(self, model: Any, level: int, found: int) -> None:
        """Steps from a level of a search, the first being 1, have led to ``found`` new states. Temporal properties are
        evaluated in the states of the level from now on.
        """
        return

    def parts(self, model: Any, name: str) -> Sequence[str]:
        """The names of the declarations that are judged for the property ``name``."""
        return [name]

    def notices(self, model: Any) -> list[str]:
        """What a user should know before an answer is relied on, a line each."""
        return []

    counts_as_tlc = False
    """Whether the number of generated states is TLC's: with repeated initial states, and with steps that a step
    constraint cuts. Then a model may also have no state at all.
    """

    exit_codes: ClassVar[Mapping[str, int]] = {}
    """The exit code of ``fencepost check`` for a violation, by its kind, where this language has another one."""

    may_hide_inputs = False
    """Whether what a declaration does may depend on more than the state, such as a clock."""

    steps_know_changes = False
    """Whether properties of steps know which slots a step changes. Then they read the others in one state alone, or
    in none (:func:`fencepost.language.context.slots_changed`).
    """

    trusts_views = False
    """Whether a user answers for a view that hides a part of the state, where temporal properties are judged. If not,
    these are refused.
    """

    has_trusted_symmetry = False
    """Whether a user answers for symmetry alone. If not, members are refused that constants or initial values tell
    apart.
    """

    def members(self, model: Any, constant: str) -> tuple[ModelValue, ...]:
        """The members of a symmetric constant."""
        found: tuple[ModelValue, ...] = model.constants[constant]
        return found

    def symmetric(self, model: Any) -> Mapping[str, Symmetric]:
        """The constants whose members may be exchanged, by name."""
        return {}

    def is_unordered(self, model: Any, constant: str) -> bool:
        """Whether a constant, though a tuple, is a set: the order of its members says nothing."""
        return False

    def lifelines(self, model: Any) -> Mapping[str, str]:
        """The lifeline of a sequence diagram to which a variable belongs, by variable."""
        return {}

    def packages(self, model: Any) -> Collection[str]:
        """The top-level packages of the author's own Python."""
        return ()

    def decoded(self, content: bytes, named: Callable[[str, str], Any]) -> Value:
        """The foreign value with this encoding, without its frame. ``named`` as for
        :func:`fencepost.language.decoding.decode`. Raises ValueError if there is none.
        """
        raise ValueError("this language has no values of its own")

    @abstractmethod
    def extended(
        self, model: Any, name: str, holds: Callable[[Any], bool], begin: Callable[[Any], None] | None
    ) -> Model:
        """The model with one more invariant. Its initial state is set up by ``begin``, if given."""

    def traces(self) -> Mapping[str, Callable[[Any], str]]:
        """Other ways to tell a behaviour, by name, each a function of a :class:`fencepost.Trace`."""
        return {}

    def expression(self, text: str, model: Any) -> Callable[[Any], Value] | None:
        """A user's expression, as a function of a bound model. None if users write expressions in Python.

        Raises :class:`fencepost.OptionError` if it cannot be read or names something unknown, with the column.
        """
        return None


def language_of(model: Model) -> Language:
    """The language that a model is written in."""
    return language_named(model.__language__)


def language_named(text: str) -> Language:
    """The language called ``module:name``."""
    module, _, name = text.partition(":")
    language: Language = getattr(import_module(module), name)
    return language
