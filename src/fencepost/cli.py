"""The command line, one function a command. A thin front door over :func:`fencepost.check`.

Results go to standard output, complaints and progress to standard error. Every error is one line there, with TLC's exit
code (see `errors`). The parser is the standard library's because it is there in 10 ms; engines, reports and Rich are
imported by the functions that need them, so that a mistake is told at once.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fencepost import arguments, errors, extras, interrupts, loading, output
from fencepost.errors import FencepostError, OptionError, ProtocolRaised, SystemFailure

if TYPE_CHECKING:
    from fencepost.engines.interface import Table
    from fencepost.result import Result
    from fencepost.spec.protocol import Protocol
    from fencepost.states.questions import By
    from fencepost.store.rules.protections import Protections
    from fencepost.trace import Trace
    from fencepost.trace.dot import Graph
    from fencepost.trace.reading import Written

APART = {
    "validate": "hold traces of running systems to a protocol",
    "cluster": "start a ledger store on this machine, see how it is, and hurt it",
    "metadata": "run the metadata service",
    "quorum": "see who votes in a replicated metadata service, and change it",
    "bookie": "run a bookie, and look after it",
    "autorecovery": "copy what was on bookies that are lost to others, by itself",
    "ledger": "create, write, read and recover ledgers",
    "log": "write, follow, trim, seal and delete logs of many ledgers",
    "simulate-log": "run worlds of writers and readers of one log under seeded faults, on virtual time",
    "simulate-quorum": "run whole quorums under seeded faults, on virtual time",
    "record": "stand between clients and bookies, write down what passes, and make faults",
    "drive": "drive the roles of the ledger store along behaviours of their protocol",
}
"""Commands in modules of :mod:`fencepost.commands` by the same names (with ``_`` for ``-``), which have
``add_options(parser)`` and ``run(given)``.
"""

COMMANDS = ("check", "explore", "list", "show", "query", "witness", "diff", "simulate-store", *APART)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with ``arguments`` (by default the process's own) and return the exit code."""
    try:
        interrupts.interrupt()
        return _main(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt as error:  # while something else was told
        return _failed(error, False)
    finally:
        interrupts.end_process()


def _main(given: list[str]) -> int:
    # What is imported stays: looking for cycles among it at Python's usual pace takes a tenth of a short run.
    gc.set_threshold(100_000, 50, 100)
    debug = "--debug" in given
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that can not show → is no reason to fail
    # What the author's Python prints is none of the results.
    with (
        warnings.catch_warnings(),
        output.goes_to(sys.stdout),
        contextlib.redirect_stdout(sys.stderr),
        errors.options_spelled(functools.partial(_flag, given)),
    ):
        if not debug:
            warnings.simplefilter("ignore")
        try:
            with contextlib.suppress(SystemExit):  # --help ends with one
                return _told(_run(given))
            return _told(errors.HOLDS)
        except (Exception, KeyboardInterrupt) as error:
            return _failed(KeyboardInterrupt() if _was_interrupted(error) else error, debug)


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether an error is what somebody's library made of Ctrl-C, while it was imported say."""
    while error is not None and not isinstance(error, (KeyboardInterrupt, FencepostError)):
        error = error.__cause__ or error.__context__
    return isinstance(error, KeyboardInterrupt)


def _failed(error: BaseException, debug: bool) -> int:
    """Tell what went wrong in one line; the exit code for it."""
    code = errors.SYSTEM_FAILED
    if isinstance(error, FencepostError):
        message, code = str(error), error.exit_code
    elif isinstance(error, KeyboardInterrupt):
        message, code = "interrupted", errors.INTERRUPTED
    elif isinstance(error, MemoryError):
        message = "out of memory: stop in time with --max-memory, or check a smaller configuration"
    elif isinstance(error, RecursionError):
        message = "something is nested too deeply to be worked on"
    elif isinstance(error, OSError):
        file = f": {error.filename}" if error.filename else ""
        message = f"the machine failed: {error.strerror or error}{file}"
    else:
        message = f"a fault in Fencepost: {type(error).__name__}: {error} (--debug shows where)"
    output.complain(message, error, debug)
    return code


def _told(code: int) -> int:
    """``code``, once all that was said is really out."""
    output.put("")
    return code


def _run(given: list[str]) -> int:
    parser = _parser(given[0] if given else "")
    # The protocol may come after the option: its name is none of the option's.
    given = ["--symmetry=" if argument == "--symmetry" else argument for argument in given]
    if not given:
        output.say(parser.format_help().rstrip())
        return errors.HOLDS
    first = given[0]
    if not first.startswith("-") and first not in COMMANDS:
        near = get_close_matches(first, COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(COMMANDS)}"
        if first.endswith(".py"):
            hint = f"did you mean fencepost check {first}?"
        raise OptionError(f"there is no command {first}: {hint}")
    parsed, unknown = parser.parse_known_args(given)
    if unknown:
        raise OptionError(_unknown_option(unknown[0], _parser_of(parser, given), parsed.command))
    if parsed.version:
        from fencepost import __version__

        output.say(f"fencepost {__version__}")
        return errors.HOLDS
    if parsed.command is None:
        parser.error(f"give a command: {', '.join(COMMANDS[:-1])} or {COMMANDS[-1]}")
    run: Callable[[argparse.Namespace], int] = parsed.run
    with extras.named(f"fencepost {parsed.command}"):
        return run(parsed)


# -- what is typed ----------------------------------------------------------------------------------------------------


def _parser(command: str) -> argparse.ArgumentParser:
    """The parser of all commands. Options of commands in modules apart are there only for ``command``, since modules
    take time to import.
    """
    parser = arguments.Parser(
        prog="fencepost",
        description="Checks replicated-log protocols written as ordinary Python.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    parser.set_defaults(command=None, debug=False)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=arguments.Parser)

    listing = commands.add_parser("list", help="the shipped protocols and their configurations", allow_abbrev=False)
    listing.set_defaults(run=_list)
    showing = commands.add_parser(
        "show", help="a protocol's constants, variables, actions and properties", allow_abbrev=False
    )
    showing.add_argument("protocol", metavar="PROTOCOL", help="a shipped name, FILE.py or FILE.py:ClassName")
    showing.set_defaults(run=_show)
    checking = commands.add_parser("check", help="explore every state of a protocol", allow_abbrev=False)
    checking.set_defaults(run=_check)
    _check_options(checking)
    exploring = commands.add_parser("explore", help="walk through a protocol in the browser", allow_abbrev=False)
    exploring.set_defaults(run=_explore)
    _explore_options(exploring)
    asking = commands.add_parser(
        "query", help="ask a state space in SQL (check --states DIR makes one)", allow_abbrev=False
    )
    asking.set_defaults(run=_query)
    _query_options(asking)
    reaching = commands.add_parser(
        "witness", help="the shortest behaviour to a state that SQL describes", allow_abbrev=False
    )
    reaching.set_defaults(run=_witness)
    _witness_options(reaching)
    comparing = commands.add_parser(
        "diff", help="which states one state space has and another has not", allow_abbrev=False
    )
    comparing.set_defaults(run=_diff)
    _diff_options(comparing)
    simulating = commands.add_parser(
        "simulate-store",
        help="run clusters of the ledger store under seeded faults, on virtual time",
        allow_abbrev=False,
    )
    simulating.set_defaults(run=_simulate_store)
    _simulate_store_options(simulating)
    for name, purpose in APART.items():
        apart = commands.add_parser(name, help=purpose, allow_abbrev=False)
        if name == command:
            with extras.named(f"fencepost {name}"):
                module = importlib.import_module(f"fencepost.commands.{name.replace('-', '_')}")
            module.add_options(apart)
            apart.set_defaults(run=module.run)
    for each in commands.choices.values():
        _add_debug(each)
    return parser


def _add_debug(parser: argparse.ArgumentParser) -> None:
    for subparsers in _subparsers(parser):
        for each in subparsers.values():
            _add_debug(each)
    parser.add_argument(
        "--debug",
        action="store_true",
        default=argparse.SUPPRESS,
        help="show Python's traceback when something goes wrong",
    )


def _subparsers(parser: argparse.ArgumentParser) -> list[dict[str, argparse.ArgumentParser]]:
    """The commands of a command, by their names."""
    return [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]


def _parser_of(parser: argparse.ArgumentParser, given: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the command, or the command of a command, that is given."""
    for subparsers in _subparsers(parser):
        for position, word in enumerate(given):
            if word in subparsers:
                return _parser_of(subparsers[word], given[position + 1 :])
    return parser


def _flag(given: Sequence[str], option: str) -> str:
    """What an option of the library is called on the command line: ``max_memory`` is ``--max-memory``."""
    own = _parser_of(_parser(given[0]), given)
    flags = [action.option_strings[-1] for action in own._actions if action.dest == option and action.option_strings]
    return flags[0] if flags else f"--{option.replace('_', '-')}"


def _check_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("protocol", metavar="PROTOCOL", help="a shipped name, FILE.py or FILE.py:ClassName")

    what = parser.add_argument_group("what is checked")
    _constant_options(what)
    what.add_argument(
        "--invariant",
        metavar="NAME",
        action="append",
        dest="invariants",
        help=(
            "check this property only: an invariant, a refinement, a temporal one, or what is to be sometimes true"
            " (repeatable)"
        ),
    )
    what.add_argument("--deadlock", action="store_true", help="look for states that have no successor")
    what.add_argument("--continue", action="store_true", dest="keep_going", help="go on after a violation")

    limits = parser.add_argument_group("limits (a search that reaches one ends with exit code 152)")
    limits.add_argument("--max-states", metavar="N", type=arguments.count, help="distinct states")
    limits.add_argument(
        "--max-depth", metavar="N", type=arguments.count, help="levels, the initial states being the first"
    )
    limits.add_argument("--max-memory", metavar="SIZE", type=arguments.size, help="memory of the process: 16GiB, 500M")
    limits.add_argument("--timeout", metavar="SECONDS", type=arguments.seconds, help="seconds")

    told = parser.add_argument_group("results")
    _behaviour_options(told)
    told.add_argument(
        "--states",
        metavar="DIR",
        type=arguments.place,
        help="every state as a table, in Parquet files, in a new directory or at a URL: see fencepost query",
    )
    told.add_argument("--edges", action="store_true", help="with --states: every step too")
    told.add_argument("--profile", action="store_true", help="say where the time went")

    running = parser.add_argument_group("how it is run")
    running.add_argument(
        "--engine",
        metavar="NAME",
        default="auto",
        help="auto, embedded (compiled), reference (plain Python), spark, or simulate (random walks)",
    )
    running.add_argument("--workers", metavar="N", type=arguments.workers, help="threads; by default one for each core")
    running.add_argument(
        "--checking", action="store_true", help="catch a protocol that depends on more than its state; slow"
    )
    running.add_argument(
        "--symmetry",
        metavar="NAME,...",
        nargs="?",
        help=(
            "explore one state of each that differ only in who is who: among the members of all constants that are"
            " declared symmetric, or of --symmetry=NAME,..."
        ),
    )
    running.add_argument(
        "--checkpoint", metavar="DIR", type=arguments.place, help="save the search there while it runs"
    )
    running.add_argument("--resume", metavar="DIR", type=arguments.place, help="go on from a saved search")
    walking = parser.add_argument_group("random walks (--engine simulate, which never finds that a protocol holds)")
    walking.add_argument(
        "--walks",
        metavar="N",
        type=arguments.count,
        help="how many; by default 10,000, with --timeout as many as it allows",
    )
    walking.add_argument("--depth", metavar="N", type=arguments.count, help="the most states of a walk; by default 100")
    walking.add_argument(
        "--seed", metavar="N", type=arguments.number, help="the seed of all that is random; by default any"
    )
    walking.add_argument(
        "--walk", metavar="N", type=arguments.number, help="take walk N of a seed again, and show it whole"
    )
    running.add_argument(
        "--fingerprint-bits", metavar="64|128", type=arguments.bits, dest="bits", help="128 beyond a billion states"
    )

    spark = parser.add_argument_group(
        "on Spark (--engine spark, whose checkpoints can be at a URL; --engine simulate with --master)"
    )
    _spark_options(spark)
    spark.add_argument(
        "--handover",
        metavar="N",
        type=arguments.count,
        help="the largest level that is expanded in this process (1,000,000, or what memory allows)",
    )
    spark.add_argument(
        "--checkpoint-every",
        metavar="N",
        type=arguments.count,
        dest="checkpoint_levels",
        help="levels between two checkpoints (1)",
    )


def _explore_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "protocol",
        metavar="PROTOCOL",
        nargs="?",
        help="a shipped name, FILE.py or FILE.py:ClassName; by default the one of --trace",
    )
    _constant_options(parser)
    where = parser.add_argument_group("where to begin")
    where.add_argument(
        "--trace", metavar="FILE", help="with a counterexample: the JSON or ITF of a check, or a kept path"
    )
    where.add_argument("--path", metavar="PATH", help="with a path: what comes after # in a link")

    served = parser.add_argument_group("the page")
    served.add_argument(
        "--port", metavar="N", type=arguments.port, help="its port; by default 8413, or any if that is taken"
    )
    served.add_argument("--no-open", action="store_true", help="open no browser")

    limits = parser.add_argument_group("limits of a search")
    limits.add_argument(
        "--max-memory",
        metavar="SIZE",
        type=arguments.size,
        default=4 << 30,
        help="memory of its process: 4GiB by default",
    )
    limits.add_argument(
        "--timeout", metavar="SECONDS", type=arguments.seconds, default=300.0, help="seconds: 300 by default"
    )
    limits.add_argument("--workers", metavar="N", type=arguments.workers, help="threads; by default one for each core")


def _constant_options(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "-D", metavar="NAME=VALUE", action="append", default=[], dest="define", help="set a constant: bookies=3"
    )
    parser.add_argument(
        "--config", metavar="NAME", help="one of the protocol's configurations; -D is applied on top of it"
    )


def _behaviour_options(told: Any) -> None:
    """The forms in which a behaviour is told."""
    told.add_argument(
        "--json", metavar="FILE", help="the result as JSON; - is standard output, which then has nothing else"
    )
    told.add_argument("--html", metavar="FILE", help="the result as a page")
    told.add_argument("--sequence", metavar="FILE", help="the behaviour as a sequence diagram, for sequencediagram.org")
    told.add_argument("--itf", metavar="FILE", help="the behaviour in the ITF format")
    told.add_argument(
        "--dot", metavar="FILE", help="the graph of a small state space, for Graphviz; the behaviour in red"
    )
    told.add_argument(
        "--eval", metavar="EXPR", action="append", default=[], help="print EXPR at every step of the behaviour"
    )


def _query_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("space", metavar="DIR", help="what fencepost check --states DIR wrote")
    parser.add_argument("sql", metavar="SQL", help="a question over the tables states and edges")
    parser.add_argument(
        "--rows", metavar="N", type=arguments.count, default=50, help="the most rows to print (50); files get all"
    )
    parser.add_argument(
        "--json", metavar="FILE", help="all rows as JSON; - is standard output, which then has nothing else"
    )
    parser.add_argument("--csv", metavar="FILE", help="all rows as CSV; - is standard output")
    _answer_options(parser)


def _witness_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("space", metavar="DIR", help="what fencepost check --states DIR wrote")
    parser.add_argument("--where", metavar="SQL", required=True, help="a condition on the columns of states")
    _behaviour_options(parser)
    _answer_options(parser)


def _diff_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("space", metavar="DIR1", help="what fencepost check --states DIR1 wrote")
    parser.add_argument("other", metavar="DIR2", help="another one, say of the protocol with a fix")
    parser.add_argument(
        "--parts", metavar="NAME,...", help="compare only these parts of the state, with all below them: meta,bookie"
    )
    parser.add_argument(
        "--json", metavar="FILE", help="the difference as JSON; - is standard output, which then has nothing else"
    )
    _answer_options(parser)


def _answer_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine", choices=("auto", "duckdb", "spark"), default="auto",
        help="who answers: auto asks DuckDB where DIR is on this machine and DuckDB is known to answer as Spark does, "
        "and else Spark",
    )  # fmt: skip
    _spark_options(parser)


def _spark_options(parser: Any) -> None:
    parser.add_argument(
        "--master",
        metavar="URL",
        help="where Spark is; by default where spark-submit or spark-defaults.conf says, or this machine",
    )
    parser.add_argument(
        "--conf",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        type=arguments.setting,
        help="a setting of Spark; can be given several times",
    )


def _simulate_store_options(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what is simulated")
    what.add_argument(
        "--seeds",
        metavar="A..B",
        type=arguments.seeds,
        default=range(1, 1001),
        help="the seeds, one run for each; by default 1..1000",
    )
    what.add_argument(
        "--profile",
        metavar="NAME",
        default="everything",
        help="what may go wrong: calm, network, crashes, disks, races, everything, beyond or no-journal",
    )
    what.add_argument(
        "--without",
        metavar="PROTECTION",
        action="append",
        default=[],
        help="switch a protection of the ledger off (repeatable)",
    )
    what.add_argument(
        "--promise",
        metavar="NAME",
        action="append",
        default=[],
        help="hold the store to this promise alone (repeatable)",
    )
    what.add_argument("--jobs", metavar="N", type=arguments.workers, help="processes; by default one for each core")
    one = parser.add_argument_group("one run")
    one.add_argument("--replay", metavar="SEED", type=arguments.number, help="run one seed, and tell it step by step")
    one.add_argument(
        "-D",
        metavar="NAME=VALUE",
        dest="define",
        action="append",
        default=[],
        help="with --replay: set what the seed would choose, as entries=3 (repeatable)",
    )
    told = parser.add_argument_group("results")
    told.add_argument(
        "--json",
        metavar="FILE",
        nargs="?",
        const="-",
        help="the result as JSON; by default to standard output, which then has nothing else on it",
    )
    told.add_argument(
        "--trace", metavar="DIR", type=Path, help="write traces of all runs to a folder of traces (docs/traces.md)"
    )
    told.add_argument(
        "--sequence", metavar="FILE", help="with --replay: the run as a sequence diagram (sequencediagram.org)"
    )
    told.add_argument("--html", metavar="FILE", help="with --replay: the run as one page with its sequence diagram")


def _unknown_option(given: str, parser: argparse.ArgumentParser, command: str | None) -> str:
    if not given.startswith("-"):
        if command in APART:
            return f"{given} is one argument too many: see {parser.prog} --help"
        return f"{given} is one argument too many: give one protocol at a time"
    options = [option for action in parser._actions for option in action.option_strings]
    near = get_close_matches(given.partition("=")[0], options, n=1)
    hint = f"did you mean {near[0]}?" if near else f"see {parser.prog} --help"
    return f"there is no option {given}: {hint}"


# -- list and show ----------------------------------------------------------------------------------------------------


def _list(_: argparse.Namespace) -> int:
    from fencepost.describe import listing

    output.say(listing([(name, loading.load(name)) for name in loading.shipped_names()]))
    return errors.HOLDS


def _show(given: argparse.Namespace) -> int:
    from fencepost.describe import description

    output.say(description(loading.load(given.protocol), output.width()))
    return errors.HOLDS


# -- check ------------------------------------------------------------------------------------------------------------


def _check(given: argparse.Namespace) -> int:
    from fencepost.check import check

    protocol = loading.configured(loading.load(given.protocol), given.config, given.define, given.protocol)
    if not protocol.declared("action"):
        raise errors.NotAProtocol(
            f"{given.protocol} has no actions, so there is nothing to check: mark its steps with @action"
        )
    options = _options(given, loading.expectation(type(protocol), given.config))
    results = _Results(given, protocol)
    try:
        with _progress(protocol) as report:
            result = check(protocol, engine=given.engine, invariants=given.invariants, report=report, **options)
    except ImportError as error:
        if _was_interrupted(error):
            raise
        raise SystemFailure(
            f"the {given.engine} engine can not start: {error} ({{engine}} reference needs no libraries)", "engine"
        ) from error
    return results.tell(result)


def _options(given: argparse.Namespace, expected: str | None) -> dict[str, Any]:
    """The options of a check that were typed."""
    from fencepost.engines.options import ENGINES

    if isinstance(given.resume, Path) and not given.resume.is_dir():
        raise OptionError(f"{{resume}} {given.resume}: there is no such directory", "resume")
    for option in ("checkpoint", "states"):
        if isinstance(getattr(given, option), Path):
            _must_be_writable_folder(option, getattr(given, option))
    known = {each.name for kind in ENGINES.values() for each in fields(kind)}
    typed = {
        name: value
        for name, value in vars(given).items()
        if name in known and value is not None and value is not False and value != []
    }
    if given.symmetry is not None:
        typed["symmetry"] = _names(given.symmetry) or True
    if given.conf:
        typed["conf"] = dict(given.conf)
    if expected == "deadlock":
        typed["deadlock"] = True
    if given.debug and "debug" not in {each.name for each in fields(ENGINES.get(given.engine, ENGINES["auto"]))}:
        del typed["debug"]
    return typed


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def _must_be_writable_folder(option: str, folder: Path) -> None:
    missing = [new for new in (folder, *folder.parents) if not new.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"--{option} {folder} can not be made: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OptionError(f"--{option} {folder} can not be written to")
    for new in missing:  # the search makes it, and removes it if nothing comes to be in it
        new.rmdir()


@contextlib.contextmanager
def _progress(protocol: Protocol) -> Iterator[Any]:
    """Where an engine reports to: a live line if somebody is watching."""
    if sys.stderr is None:
        yield None
        return
    from fencepost.progress import Line, Notice

    if not sys.stderr.isatty():
        yield Notice(sys.stderr).report
        return

    with Line(sys.stderr, protocol) as line:
        yield line.report


# -- explore ----------------------------------------------------------------------------------------------------------


def _explore(given: argparse.Namespace) -> int:
    from fencepost.engines.options import SearchOptions
    from fencepost.engines.resources import cores
    from fencepost.explorer import app
    from fencepost.explorer.session import Session
    from fencepost.trace.reading import replayed

    if given.trace is not None and given.path is not None:
        raise OptionError("--trace and --path each say where to begin: leave one out")
    protocol, written = _walked(given)
    if not protocol.declared("action"):
        raise errors.NotAProtocol(
            f"{given.protocol} has no actions, so there is nothing to walk through: mark its steps with @action"
        )
    session = Session(protocol)
    limits = SearchOptions(workers=given.workers or cores(), max_memory=given.max_memory, timeout=given.timeout)
    try:
        path = (given.path or "").lstrip("#")
        if written is not None:
            path = session.path(session.graft(replayed(written, session.stepper))) + "@0"
        explorer = app.Explorer(session, path, limits)
    except OptionError as error:
        raise OptionError(f"{'--path' if written is None else f'--trace {given.trace}'}: {error}") from error
    bound = app.listen(given.port)
    address = app.address(explorer, bound.getsockname()[1])
    output.say(f"{protocol.name}: {address}   (Ctrl-C ends it)")
    if not given.no_open:
        import webbrowser

        webbrowser.open(address)
    with contextlib.suppress(KeyboardInterrupt):
        app.server(explorer, bound).run(sockets=[bound])
    explorer.close()
    return errors.HOLDS


def _walked(given: argparse.Namespace) -> tuple[Protocol, Written | None]:
    """The protocol that is explored, and the behaviour to begin with, if one was given."""
    if given.trace is None:
        if given.protocol is None:
            raise OptionError("give a protocol, a name that fencepost list shows or a .py file; or --trace FILE")
        return loading.configured(loading.load(given.protocol), given.config, given.define, given.protocol), None
    from fencepost.trace.reading import protocol_of, read

    if given.config is not None or given.define:
        raise OptionError("--trace has its own constants: leave out -D and --config")
    try:
        written = read(Path(given.trace).read_bytes())
        if given.protocol is None and written.protocol not in loading.shipped_names():
            raise OptionError(
                f"it is of {written.protocol or 'an unknown protocol'}, which is not shipped: name its file, as in "
                f"fencepost explore FILE.py --trace {given.trace}"
            )
        return protocol_of(written, loading.load(given.protocol or written.protocol)), written
    except OSError as error:
        raise OptionError(f"--trace {given.trace} can not be read: {error.strerror}") from None
    except OptionError as error:
        raise OptionError(f"--trace {given.trace}: {error}") from error


class _Results:
    """Where the results of one check go. Made before anything is explored, so that what can not be written is known by
    then.
    """

    def __init__(self, given: argparse.Namespace, protocol: Protocol) -> None:
        self.given = given
        self.expected = loading.expectation(type(protocol), given.config)
        for text in given.eval:
            _must_be_readable(text, protocol)
        self.files: dict[str, str] = {}
        for option in ("json", "html", "sequence", "itf", "dot"):
            path = getattr(given, option)
            if path is not None:
                self._reserve(option, path)
        self.json_alone = given.json == "-"
        self.graph = self._graph(protocol) if "dot" in self.files else None

    def _reserve(self, option: str, path: str) -> None:
        if path == "-":
            if option != "json":
                raise OptionError(f"--{option} - is not possible: only --json can go to standard output")
            return
        if not path:
            raise OptionError(f"--{option} is given no name: name a file")
        for other, taken in self.files.items():
            if os.path.realpath(taken) == os.path.realpath(path) and not output.is_device(path):
                raise OptionError(f"--{option} and --{other} are both to be written to {path}")
        if os.path.realpath(path) == os.path.realpath(loading.split(self.given.protocol)[0]):
            raise OptionError(f"--{option} {path} would overwrite the protocol")
        output.must_be_writable(option, path)
        self.files[option] = path

    def _graph(self, protocol: Protocol) -> Graph | ProtocolRaised:
        """What goes to ``--dot``, or why it can not be drawn. Raises :class:`OptionError` if the space is too large to
        be looked at.
        """
        from fencepost.trace.dot import Graph

        try:
            return Graph(protocol)
        except ProtocolRaised as error:  # which the check tells, with the way there
            return ProtocolRaised(f"--dot {self.files['dot']} was not written: {error}")
        except OptionError as error:
            raise OptionError(f"--dot {self.files['dot']}: {error}") from None

    def tell(self, result: Result) -> int:
        """Print and write everything that was asked for; the exit code."""
        code = result.exit_code
        writers: list[Callable[[], None]] = [lambda: self._print(result)]
        writers += [functools.partial(self._write, option, path, result) for option, path in self.files.items()]
        for wrong in (result.error, result.failure):
            if wrong is not None:
                output.complain(str(wrong), wrong, self.given.debug)
        for write in writers:
            # What can not be written keeps nothing else from being told.
            try:
                write()
            except Exception as error:
                code = _failed(error, self.given.debug)
        return code

    def _print(self, result: Result) -> None:
        """Standard output."""
        if self.json_alone:
            output.say(self._json(result))
            return
        _tell_story(result, self.given.profile)
        if self.given.profile and not result.profile:
            output.say(f"\nThe {result.engine} engine keeps no profile: ask for one with --engine embedded.")
        if result.table is not None:
            output.say("\n" + _written(result.table))
        elif result.interrupted and self.given.states is not None:
            output.say(f"\nThe state space was not written to {self.given.states}.")
        trace = _trace(result)
        for expression in self.given.eval:
            output.say("\n" + _evaluated(expression, trace))
        expectation = self._judged(result)
        if expectation:
            output.say("\n" + expectation)

    def _write(self, option: str, path: str, result: Result) -> None:
        text = self._text(option, result)
        if text is None:
            if not self.json_alone:
                output.say(f"\nThere is no counterexample, so --{option} {path} was not written.")
            return
        try:
            with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
        except OSError as error:
            if not output.is_device(path):
                with contextlib.suppress(OSError):
                    os.remove(path)  # half a file is worse than none
            raise SystemFailure(f"--{option} {path} could not be written: {error.strerror}") from error
        if option == "html" and not self.json_alone:
            output.say(f"\nThe whole story as a page: {path}")

    def _text(self, option: str, result: Result) -> str | None:
        """What goes to a file; None if it shows a counterexample and there is none."""
        trace = _trace(result)
        if option == "json":
            return self._json(result) + "\n"
        if option == "html":
            from fencepost.report.html import html

            return html(result)
        if option == "dot":
            if isinstance(self.graph, ProtocolRaised):
                raise self.graph
            return self.graph.text(trace) if self.graph is not None else None
        if trace is None:
            return None
        if option == "itf":
            from fencepost.trace.itf import to_itf

            return to_itf(trace) + "\n"
        from fencepost.report.sequence import sequence

        first = next((v for v in result.violations if v.trace is trace), None)
        if first is not None:
            return sequence(trace, first.name if first.kind == "deadlock" else f"{first.name} is violated")
        return sequence(trace, str(result.error) if trace is result.error_trace else result.witnesses[0].name)

    def _json(self, result: Result) -> str:
        """The result as JSON, with what only the command line knows. ASCII, so that any terminal and pipe can take
        it.
        """
        from fencepost.report.json import data
        from fencepost.trace.json import dumps, plain

        document = data(result)
        if self.expected is not None:
            document["configuration"] = {
                "name": self.given.config,
                "expect": self.expected,
                "as_expected": self.as_expected(result),
            }
        trace = _trace(result)
        if self.given.eval:
            from fencepost.trace.expression import evaluate

            document["evaluated"] = {
                text: [{"value": plain(v.value), "error": v.error} for v in (evaluate(text, trace) if trace else ())]
                for text in self.given.eval
            }
        if self.given.profile:
            document["profile"] = result.profile
        return dumps(document, indent=2)

    def _judged(self, result: Result) -> str:
        """Whether the verdict is the one that the configuration is expected to have; nothing if there is no telling."""
        if self.expected is None:
            return ""
        name = f"configuration {self.given.config}"
        wanted = {"holds": "hold", "deadlock": "deadlock"}.get(self.expected, f"violate {self.expected}")
        if self.as_expected(result) is None:
            return f"Expected of {name}: to {wanted}. This check can not tell."
        return f"{'As' if self.as_expected(result) else 'NOT as'} expected: {name} is to {wanted}."

    def as_expected(self, result: Result) -> bool | None:
        """None if the check was another one than the configuration's, or not finished."""
        expected, chosen = self.expected, self.given.invariants
        if expected is None or self.given.define or (chosen and expected not in ("holds", "deadlock", *chosen)):
            return None
        violated = [v.name for v in result.violations]
        if expected == result.verdict or expected in violated or (expected == "holds" and result.holds):
            return True
        if violated == ["deadlock"]:  # looked for because of --deadlock, which this configuration does not speak of
            return None
        return False if violated or result.complete else None


def _tell_story(result: Result, profile: bool) -> None:
    """Print the whole result: in colour for a terminal, else as plain text."""
    from fencepost.report.text import render, story

    out = output.stdout()
    if out is None or not out.isatty():
        output.say(story(result, profile=profile).rstrip("\n"))
        return
    from rich.console import Console

    console = Console(file=out, highlight=False)
    with console.capture() as captured:
        console.print(render(result, profile=profile))
    output.put(captured.get().rstrip("\n") + "\n")


def _written(table: Table) -> str:
    """What became of the state space as a table."""
    from fencepost.numbers import plural

    steps = "" if table.edges is None else f" and {plural(table.edges, 'step')}"
    what = f"The state space as a table: {table.directory}, with {plural(table.states, 'state')}{steps}"
    return f"{what}." if table.complete else f"{what}. It is not complete: it ends with level {table.depth}."


def _must_be_readable(expression: str, protocol: Protocol) -> None:
    """Raises :class:`OptionError` unless an expression can be read. It is evaluated when there is a counterexample, and
    not before.
    """
    from fencepost.trace.expression import Expression

    try:
        Expression(expression, protocol)
    except OptionError as error:
        raise OptionError(f"--eval {expression}: {error}") from None


def _trace(result: Result) -> Trace | None:
    """The behaviour that a result is about: the first counterexample, or the way to where the protocol raised, or the
    first witness.
    """
    violating = (v.trace for v in result.violations if v.trace is not None)
    witness = result.witnesses[0].trace if result.witnesses else None
    return next(violating, result.error_trace or witness)


def _evaluated(expression: str, trace: Trace | None) -> str:
    """An expression at every step, as a table."""
    if trace is None:
        return f"There is no counterexample along which to evaluate {expression}."
    from fencepost.trace.expression import evaluate
    from fencepost.trace.words import abridged

    titles = ["initial state", *(step.title for step in trace.steps)]
    digits, width = len(str(len(trace.steps))), min(50, max(map(len, titles)))
    rows = [
        f" {i:>{digits}}  {t:<{width}}  {v}"
        for (i, t), v in zip(enumerate(titles), evaluate(expression, trace), strict=True)
    ]
    return "\n".join([expression, *map(abridged, rows)])


# -- a state space that was written down ------------------------------------------------------------------------------


def _query(given: argparse.Namespace) -> int:
    from fencepost.report import rows as told
    from fencepost.states.manifest import StateSpace
    from fencepost.states.questions import answered

    space = StateSpace(given.space)
    for option in ("json", "csv"):
        if getattr(given, option) not in (None, "-"):
            output.must_be_writable(option, getattr(given, option))
    with answered(space, given.sql, _by(given)) as answer:
        files = [(told.as_json, given.json, "json"), (told.as_csv, given.csv, "csv")]
        for render, path, option in files:
            if path is not None:
                output.write_lines(option, path, render(answer.columns, answer.rows()))
        if "-" not in (given.json, given.csv):
            rows = answer.first(given.rows + 1)
            output.say(told.aligned(answer.columns, rows[: given.rows]))
            if len(rows) > given.rows:
                output.say(
                    f"\nThere are more rows: --rows N prints more than {given.rows:,}, --csv and --json write all."
                )
    if not space.manifest.complete:
        output.complain(
            f"{given.space} is not complete: {space.manifest.ended or 'the search ended early'}", None, False
        )
    return errors.HOLDS


def _by(given: argparse.Namespace) -> By:
    """Who is to answer a question."""
    from fencepost.states.questions import By

    return By(given.engine, given.master, dict(given.conf), given.debug)


def _witness(given: argparse.Namespace) -> int:
    from fencepost.result import witnessed
    from fencepost.states.manifest import StateSpace
    from fencepost.states.questions import where
    from fencepost.states.witness import witness

    space = StateSpace(given.space)
    protocol = space.protocol()
    given.protocol, given.config, given.define, given.invariants, given.profile = (
        space.manifest.home,
        None,
        [],
        None,
        False,
    )
    results = _Results(given, protocol)
    found = where(space, given.where, _by(given))
    if found is None:
        whole = (
            ""
            if space.manifest.complete
            else f", which is not complete: {space.manifest.ended or 'the search ended early'}"
        )
        output.say(f"None of the {space.manifest.states:,} states of {given.space} satisfies {given.where}{whole}.")
        return errors.NOT_REACHED
    return results.tell(witnessed(witness(space, *found), given.where))


def _diff(given: argparse.Namespace) -> int:
    from fencepost.report.difference import data, story
    from fencepost.states.diff import difference
    from fencepost.states.manifest import StateSpace
    from fencepost.states.witness import witness

    one, other = StateSpace(given.space), StateSpace(given.other)
    if given.json not in (None, "-"):
        output.must_be_writable("json", given.json)
    found = difference(one, other, _by(given), _names(given.parts))
    traces = [side.nearest and witness(side.space, *side.nearest) for side in found.sides]
    if given.json is not None:
        from fencepost.trace.json import dumps

        output.write_lines("json", given.json, iter([dumps(data(found, traces), indent=2), "\n"]))
    if given.json != "-":
        output.say(story(found, traces, output.width()))
    return errors.HOLDS


# -- the store in a simulator -----------------------------------------------------------------------------------------


def _simulate_store(given: argparse.Namespace) -> int:
    from fencepost.store.sim import report
    from fencepost.store.sim.case import PROFILES

    if given.profile not in PROFILES:
        raise OptionError(f"--profile {given.profile}: there are {', '.join(PROFILES)}")
    protections = _protections_without(given.without)
    for option in ("json", "sequence", "html"):
        path = getattr(given, option)
        if option != "json" and path is not None and given.replay is None:
            raise OptionError(f"--{option} shows one run: give --replay SEED too")
        if path == "-" and option != "json":
            raise OptionError(f"--{option} - is not possible: only --json can go to standard output")
        if path not in (None, "-"):
            output.must_be_writable(option, path)
    if given.replay is not None:
        return _replay(given, protections)
    if given.define:
        raise OptionError("-D sets what one seed would choose: give --replay SEED too")

    from fencepost.engines.resources import cores
    from fencepost.store.sim.campaign import Campaign, run
    from fencepost.store.sim.shrink import shrunk

    promises = _promises_of(given)
    campaign = Campaign(given.seeds, given.profile, protections, promises, given.jobs or cores(), given.trace)
    with _seeds_progress() as progress:
        tally = run(campaign, lambda so_far: progress(so_far.seeds, so_far.events, len(given.seeds)))
    smallest = None
    if tally.failed is not None and not tally.interrupted:
        with contextlib.suppress(KeyboardInterrupt):
            smallest = shrunk(tally.failed)
    _tell_simulated(given, report.story_of(tally, smallest), report.data(tally, smallest))
    return report.exit_code(tally)


def _replay(given: argparse.Namespace, protections: Protections) -> int:
    """Run one seed, and tell what happened in it."""
    from fencepost.store.sim import report
    from fencepost.store.sim.campaign import run_name, traced
    from fencepost.store.sim.case import drawn, with_settings
    from fencepost.store.sim.run import simulate
    from fencepost.store.sim.story import Story
    from fencepost.tracing import RunsFile

    settings = {}
    for text in given.define:
        name, equals, value = text.partition("=")
        if not equals:
            raise OptionError(f"-D {text}: give a name and a value, as entries=3")
        settings[name] = value
    story = Story()
    case = with_settings(drawn(given.replay, given.profile, protections, _promises_of(given)), settings)
    if given.trace is None:
        outcome = simulate(case, story)
    else:
        run = run_name(given.profile, protections, given.replay)
        with RunsFile(given.trace / f"{run}-replayed.parquet") as file:
            outcome = simulate(case, story, traced(file, f"{run}-replayed"))
    _tell_simulated(given, report.replay_text(outcome, story), report.outcome_data(outcome))
    for option, text in (("sequence", report.sequence), ("html", report.html)):
        path = getattr(given, option)
        if path is not None:
            output.write_lines(option, path, iter([text(outcome, story)]))
    return errors.HOLDS if outcome.violation is None else errors.SAFETY_VIOLATED


def _protections_without(names: Sequence[str]) -> Protections:
    """All protections but those."""
    from fencepost.store.rules.protections import ALL

    for name in names:
        if name not in ALL._fields:
            near = get_close_matches(name, ALL._fields, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(ALL._fields)}"
            raise OptionError(f"--without {name}: there is no such protection: {hint}")
    return ALL.replace(**dict.fromkeys(names, False))


def _promises_of(given: argparse.Namespace) -> tuple[str, ...]:
    """The promises that a run is held to, none for all of them."""
    from fencepost.store.sim.judge import PROMISES

    for name in given.promise:
        if name not in PROMISES:
            raise OptionError(f"--promise {name}: there is no such promise: there are {', '.join(PROMISES)}")
    return tuple(given.promise)


def _tell_simulated(given: argparse.Namespace, text: str, document: dict[str, Any]) -> None:
    if given.json is not None:
        from fencepost.trace.json import dumps

        output.write_lines("json", given.json, iter([dumps(document, indent=2), "\n"]))
    if given.json != "-":
        output.say(text)


@contextlib.contextmanager
def _seeds_progress() -> Iterator[Callable[[int, int, int], None]]:
    """Where a campaign reports to: a live line if somebody is watching."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done, events, of: None
        return
    from fencepost.progress import Seeds

    with Seeds(sys.stderr) as line:
        yield line.report


if __name__ == "__main__":
    sys.exit(main())
