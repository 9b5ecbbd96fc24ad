"""The options of each engine, one class each, with every reason to refuse an option.

An error names options as they are named here. The command line translates the names to its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fencepost.checker.engines.resources import cores
from fencepost.errors import OptionError
from fencepost.language.protocol import unknown_name
from fencepost.language.seam import language_of

if TYPE_CHECKING:
    from fencepost.semantics import Stepper

RANGES: dict[str, tuple[int, int]] = {
    "workers": (1, 1024),
    "max_states": (1, 1 << 60),
    "max_depth": (1, 1 << 60),
    "max_memory": (1, 1 << 60),
    "checkpoint_levels": (1, 1 << 60),
    "handover": (0, 1 << 60),
    "walks": (1, 1 << 60),
    "depth": (1, 1_000_000),
    "seed": (0, (1 << 64) - 1),
    "walk": (0, 1 << 60),
}
"""The smallest and largest value of each integer option."""

FREE = {"on resume": "free"}
"""Marks an option that a resumed search may change. Any other option affects the levels already explored, so the search
keeps it.
"""
LATER = {"on resume": "later"}
"""Marks an option that a resumed search may add, but not remove."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options that every engine has.

    ``workers``: threads, by default one for each core. ``max_memory``: bytes that the process may occupy, by default
    most of the machine's. ``timeout``: seconds, by default no limit. ``deadlock``: report states without successors.
    ``keep_going``: continue after a violation, to one counterexample of every property. ``checking``: run the author's
    Python again on a sample of the states, also in processes with other hash seeds, and compare.
    """

    engine: ClassVar[str] = "auto"
    """The engine that these options are for; ``auto`` leaves it open."""

    workers: int = field(default_factory=cores, metadata=FREE)
    max_memory: int | None = field(default=None, metadata=FREE)
    timeout: float | None = field(default=None, metadata=FREE)
    deadlock: bool = False
    keep_going: bool = field(default=False, metadata=LATER)
    checking: bool = False

    def validate(self, stepper: Stepper | None = None) -> None:
        """Raise :class:`fencepost.OptionError` for an option that is out of its range or conflicts with another one.
        With a ``stepper``, also for one that conflicts with what is checked.
        """
        for name, (least, most) in RANGES.items():
            given = getattr(self, name, None)
            if given is not None and not least <= given <= most:
                raise OptionError(f"{{{name}}} is {given:,}: give a number from {least:,} to {most:,}", name)
        if self.timeout is not None and not self.timeout >= 0:
            raise OptionError(f"{{timeout}} is {self.timeout:g}: give 0 or more seconds", "timeout")
        if stepper is None or language_of(stepper.protocol).trusts_views or not stepper.protocol.declared("view"):
            return
        if name := _temporal(stepper):
            raise OptionError(
                f"{_instead(name)} take out the view, which makes one state of several that may go on differently",
                "invariants",
            )


@dataclass(frozen=True, kw_only=True)
class SearchOptions(Options):
    """The options of every search: of the engines that go through all states, level by level.

    ``max_states`` (distinct states) and ``max_depth`` (levels, the initial states being the first): by default there
    is no limit. ``bits``: of a fingerprint, 64 or 128. ``symmetry``: explore only one of the states that differ by a
    permutation of the members of these constants; True stands for all constants declared symmetric. ``states``: a
    directory or URL to which to write the state space as a table, by default none. ``edges``: write its steps too.
    """

    max_states: int | None = field(default=None, metadata=FREE)
    max_depth: int | None = field(default=None, metadata=FREE)
    bits: int = 64
    symmetry: bool | Sequence[str] = False
    states: Path | str | None = field(default=None, metadata=FREE)
    edges: bool = field(default=False, metadata=FREE)

    def validate(self, stepper: Stepper | None = None) -> None:
        super().validate(stepper)
        if self.bits not in (64, 128):
            raise OptionError(f"{{bits}} is {self.bits}: give 64 or 128", "bits")
        if self.edges and self.states is None:
            raise OptionError(
                "{edges} are written next to the states: give {states} a directory too", "edges", "states"
            )
        if self.states is not None and self.symmetry:
            raise OptionError(
                "{states} is for the whole state space as a table, and it has every state: leave out {symmetry}",
                "states", "symmetry",
            )  # fmt: skip
        if self.states is not None and self.bits != 64:
            raise OptionError(
                "{states} is for the whole state space as a table, and its fingerprints have 64 bits: leave out the 128"
                " of {bits}",
                "states", "bits",
            )  # fmt: skip
        if stepper is not None and self.symmetry and (name := _temporal(stepper)):
            raise OptionError(
                f"{{symmetry}} and the temporal property {name} do not go together: a path through representatives is"
                " no behaviour; name the invariants to check with {invariants}",
                "symmetry", "invariants",
            )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ReferenceOptions(SearchOptions):
    """The options of the reference engine, which is plain Python and has no checkpoints."""

    engine: ClassVar[str] = "reference"


@dataclass(frozen=True, kw_only=True)
class SavedOptions(SearchOptions):
    """The options of a search that can be resumed.

    ``checkpoint``: where to save the search between levels, by default nowhere. ``resume``: where the search to go on
    from was saved.
    """

    checkpoint: Path | str | None = field(default=None, metadata=FREE)
    resume: Path | str | None = field(default=None, metadata=FREE)

    def validate(self, stepper: Stepper | None = None) -> None:
        super().validate(stepper)
        if self.states is not None and self.checkpoint is not None:
            from fencepost.files.storage import is_within

            if is_within(self.checkpoint, self.states):
                raise OptionError(
                    f"{{states}} and {{checkpoint}} are both to be written to {self.states}: give the checkpoint a"
                    " folder of its own",
                    "states", "checkpoint",
                )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EmbeddedOptions(SavedOptions):
    """The options of the embedded engine: compiled loops, on all cores of one machine.

    ``checkpoint`` and ``resume`` are directories. The engine saves at most every ``checkpoint_every`` seconds, and
    spends at most a tenth of the time on it. 0 saves every level.

    ``reduce``: with the engine ``auto``, a partial order reduction, which is interpreted.
    """

    engine: ClassVar[str] = "embedded"

    checkpoint_every: float = field(default=2.0, metadata=FREE)
    reduce: bool = field(default=False, metadata=FREE)

    def validate(self, stepper: Stepper | None = None) -> None:
        super().validate(stepper)
        if self.reduce:
            self._refuse_to_reduce(stepper)
        if not self.checkpoint_every >= 0:
            raise OptionError(
                f"{{checkpoint_every}} is {self.checkpoint_every:g}: give 0 seconds or more", "checkpoint_every"
            )
        for name, place in (("checkpoint", self.checkpoint), ("resume", self.resume)):
            if isinstance(place, str) and "://" in place:
                raise OptionError(
                    f"{{{name}}} {place}: only {{engine}} spark keeps checkpoints at a URL", name, "engine"
                )
        if self.states is not None and self.resume is not None:
            raise OptionError(
                "{states} is for the whole state space as a table, and only {engine} spark can go on with one: leave"
                " out {resume}",
                "states", "engine", "resume",
            )  # fmt: skip
        saves = self.checkpoint is not None or self.resume is not None
        if stepper is not None and saves and (name := _temporal(stepper)):
            raise OptionError(
                f"{_instead(name)} leave out {{checkpoint}} and {{resume}}: what is saved holds no steps, but for that"
                " of {engine} spark",
                "invariants", "checkpoint", "resume", "engine",
            )  # fmt: skip

    def _refuse_to_reduce(self, stepper: Stepper | None) -> None:
        """Raise :class:`fencepost.OptionError` for what a partial order reduction cannot, or need not, do."""
        for name in ("symmetry", "checking", "checkpoint", "resume", "states"):
            if getattr(self, name):
                raise OptionError(f"{{reduce}} and {{{name}}} do not go together: leave one out", "reduce", name)
        if stepper is None:
            return
        for kind in NOT_REDUCED:
            for declared in stepper.protocol.declared(kind):
                raise OptionError(
                    f"{{reduce}} is for protocols without {kind.replace('_', ' ')}s, and {declared.name} is one: leave"
                    " out {reduce}",
                    "reduce",
                )
        stepwise = [root.name for root in stepper.of_kind("step_invariant", "refinement")]
        if name := next(iter(stepwise), "") or _temporal(stepper):
            raise OptionError(
                f"{name} is judged on all steps, and {{reduce}} leaves some out: name the invariants to check with"
                " {invariants} instead, or leave out {reduce}",
                "invariants", "reduce",
            )  # fmt: skip


NOT_REDUCED = ("constraint", "step_constraint", "view", "postcondition")
"""The kinds of declarations with which there is no partial order reduction. A constraint cuts one order of two steps
and not the other, states that look alike in a view need not have the same stubborn sets, and a postcondition may ask
for counts.
"""


@dataclass(frozen=True, kw_only=True)
class SparkOptions(SavedOptions):
    """The options of the Spark engine. It has no ``checking``.

    ``checkpoint`` and ``resume`` are directories or URLs; it saves every ``checkpoint_levels`` levels. ``master``: the
    master of Spark. By default it is that of spark-submit or spark-defaults.conf, or else all cores of this machine.
    ``conf``: more settings of Spark. ``handover``: the largest level, in states, to expand in this process; by default
    1,000,000 for a cluster, and as many as fit into memory if Spark is on this machine. ``debug``: show Spark's log.
    """

    engine: ClassVar[str] = "spark"

    checkpoint_levels: int = field(default=1, metadata=FREE)
    master: str | None = field(default=None, metadata=FREE)
    conf: Mapping[str, str] = field(default_factory=dict, metadata=FREE)
    handover: int | None = field(default=None, metadata=FREE)
    debug: bool = field(default=False, metadata=FREE)

    def validate(self, stepper: Stepper | None = None) -> None:
        if self.checking:
            raise OptionError("{checking} is for small configurations: use {engine} embedded", "checking", "engine")
        super().validate(stepper)
        if stepper is not None and stepper.of_kind("step_predicate"):
            raise OptionError(
                f"{_temporal(stepper)} is judged by functions of a step, which the spark engine does not record: use"
                " {engine} embedded",
                "engine",
            )


@dataclass(frozen=True, kw_only=True)
class SimulationOptions(Options):
    """The options of a simulation: random walks.

    ``walks``: their number, by default 10,000 or, with a ``timeout``, as many as there is time for. ``depth``: the most
    states of one walk, by default 100. ``seed``: of all randomness, by default any. ``walk``: the number of the only
    walk to take, from 0; by default all are taken. ``master``: the master of Spark, to take the walks there. ``conf``
    and ``debug``: as for the Spark engine.
    """

    engine: ClassVar[str] = "simulate"

    walks: int | None = None
    depth: int | None = None
    seed: int | None = None
    walk: int | None = None
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    debug: bool = False

    def validate(self, stepper: Stepper | None = None) -> None:
        super().validate(stepper)
        if self.walk is not None and (self.walks is not None or self.seed is None):
            raise OptionError(
                "{walk} is one walk of a seed: give it with {seed} and without {walks}", "walk", "seed", "walks"
            )
        if self.conf and self.master is None:
            raise OptionError("{conf} is for walks on Spark: give {master} too", "conf", "master")
        if stepper is not None:
            self._refuse_formulas(stepper)

    def _refuse_formulas(self, stepper: Stepper) -> None:
        formula = next((promise.name for promise in stepper.promises if promise.formula is not None), "")
        if formula or stepper.of_kind("step_predicate"):
            raise OptionError(
                f"{formula or _temporal(stepper)} is judged on all states, and walks do not reach them: name the"
                " invariants to check with {invariants} instead, or use {engine} embedded",
                "invariants", "engine",
            )  # fmt: skip


def with_wishes(options: Options, wishes: Mapping[str, Any], given: Mapping[str, Any]) -> Options:
    """The options, with those that a model asks for and the user does not give. An engine that lacks one ignores it."""
    known = {each.name for each in fields(options)}
    return replace(options, **{name: wish for name, wish in wishes.items() if name in known and name not in given})


def difference(options: SavedOptions, before: Mapping[str, Any], symmetry: list[str]) -> tuple[str, str, str] | None:
    """Why a search with these options cannot resume one that had the options ``before``; None if it can. Returns the
    rest of a sentence, what to do instead, and the option that both name. ``symmetry``: the symmetric constants in use.
    """
    wanted = asked(options, symmetry)
    for each in fields(options):
        name, now, then = each.name, wanted.get(each.name), before.get(each.name)
        if now == then or (now and each.metadata == LATER):
            continue
        if not then:
            return f"was made without {{{name}}}", f"leave out {{{name}}}", name
        value = "" if then is True else f" {','.join(then) if isinstance(then, list) else then}"
        return f"was made with {{{name}}}{value}", f"give {{{name}}}{value} again", name
    return None


def asked(options: SavedOptions, symmetry: list[str]) -> dict[str, Any]:
    """The options that affect what a level contains. ``symmetry``: the symmetric constants in use."""
    kept = {each.name: getattr(options, each.name) for each in fields(options) if each.metadata != FREE}
    return {**kept, "symmetry": sorted(symmetry)}


def _temporal(stepper: Stepper) -> str:
    """The name of a temporal property to judge, or an empty string."""
    return next((promise.name for promise in stepper.promises), "")


def _instead(name: str) -> str:
    return (
        f"{name} is judged on all steps between all states: name the invariants to check with {{invariants}} instead,"
        " or"
    )


# -- from arguments to the options of an engine -----------------------------------------------------------------------

ENGINES: dict[str, type[Options]] = {
    "auto": EmbeddedOptions,
    "embedded": EmbeddedOptions,
    "reference": ReferenceOptions,
    "spark": SparkOptions,
    "simulate": SimulationOptions,
}
"""The options of each engine. ``auto`` is the embedded engine, or the interpreted one for a small protocol."""


def options_of(engine: str, options: Options | None, given: Mapping[str, Any]) -> tuple[str, Options]:
    """The engine to use and its options: ``options``, overridden by the options ``given`` by name.

    The class of ``options`` may determine the engine. Then ``engine`` is that one or ``auto``. Raises
    :class:`fencepost.OptionError` if there is no such engine or option, if the engine does not have the option, or if
    :meth:`Options.validate` refuses it.
    """
    if engine not in ENGINES:
        raise OptionError(unknown_name("engine", engine, ENGINES, "fencepost"))
    if options is not None and options.engine != "auto":
        if engine not in ("auto", options.engine):
            raise OptionError(
                f"{{options}} are those of {{engine}} {options.engine}, and not of {engine}: leave one out",
                "options", "engine",
            )  # fmt: skip
        engine = options.engine
    known = {each.name: each for kind in ENGINES.values() for each in fields(kind)}
    asked = {} if options is None else {each.name: getattr(options, each.name) for each in fields(options)}
    asked.update(given)
    kind = ENGINES[engine]
    own = {each.name for each in fields(kind)}
    for name in asked:
        if name not in known:
            raise OptionError(unknown_name("option", name, known, "check"))
        if name not in own and asked[name] != _default(known[name]):
            raise _misplaced(name, engine)
    found = kind(**{name: value for name, value in asked.items() if name in own})
    if engine == "embedded" and asked.get("reduce"):
        raise OptionError("{reduce} is interpreted, not compiled: leave out {engine}", "reduce", "engine")
    found.validate()
    return engine, found


def _default(option: Field[Any]) -> Any:
    return option.default if option.default_factory is MISSING else option.default_factory()


def _misplaced(name: str, engine: str) -> OptionError:
    """The error for an option that an engine does not have."""
    having = [each for each, kind in ENGINES.items() if each != "auto" and name in {f.name for f in fields(kind)}]
    if having == ["simulate"]:
        return OptionError(f"{{{name}}} is an option of simulation: use it with {{engine}} simulate", name, "engine")
    if engine == "simulate":
        return OptionError(
            f"{{{name}}} is an option of a search, which simulation is not: its limits are {{walks}}, {{depth}} and"
            " {timeout}",
            name, "walks", "depth", "timeout",
        )  # fmt: skip
    return OptionError(f"{{{name}}} is for {' and '.join(f'{{engine}} {each}' for each in having)}", name, "engine")
