"""Descriptions of protocols as text: the output of ``fencepost list`` and ``fencepost show``."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

from fencepost.language.declarations import Configuration, Declared, Fairness, FairSteps
from fencepost.language.fields import PerKeyOf, TableOf, VariableOf
from fencepost.language.network import NetworkOf
from fencepost.language.protocol import Protocol, constants_of, variables_of
from fencepost.language.values import ModelValue, Record, show

SECTIONS = (
    ("assumption", "Assumptions"),
    ("constraint", "State constraints"),
    ("step_constraint", "Step constraints"),
    ("invariant", "Invariants"),
    ("initially", "Of initial states"),
    ("step_invariant", "Step invariants"),
    ("refinement", "Refinements"),
    ("sometimes", "Sometimes (reachable)"),
    ("always_eventually", "Always eventually"),
    ("eventually_always", "Eventually always"),
    ("leads_to", "Leads to"),
    ("temporal", "Temporal formulas"),
    ("view", "View"),
)

FAIR = "Fairness (assumed of every behaviour when temporal properties are checked)"


def listing(protocols: Iterable[tuple[str, type[Protocol]]], width: int | None = None) -> str:
    """One line for each protocol, followed by one for each of its configurations with the expected verdict. With
    ``width``, lines are wrapped to that many columns.
    """
    lines: list[str] = []
    for name, protocol in protocols:
        lines += _hanging(f"{name}: ", summary(protocol), width, 4)
        rows = [(key, _expected(c), c.doc) for key, c in protocol.configurations.items()]
        names, verdicts = (max((len(row[i]) for row in rows), default=0) for i in (0, 1))
        for key, verdict, doc in rows:
            head = f"    {key.ljust(names)}  {verdict.ljust(verdicts)}  "
            if width is None or width - len(head) >= NARROWEST:
                lines += _hanging(head, doc, width, len(head))
            else:
                lines += _hanging(f"    {key.ljust(names)}  ", verdict, width, 8)
                lines += _hanging("        ", doc, width, 8) if doc else []
    return "\n".join(lines)


NARROWEST = 24
"""The least columns for a configuration's text beside its name; with fewer it begins on the next line."""


def _hanging(head: str, text: str, width: int | None, margin: int) -> list[str]:
    """A text after its head, wrapped, with further lines indented by ``margin``."""
    whole = f"{head}{text}".rstrip()
    if width is None or len(whole) <= width:
        return [whole]
    return textwrap.wrap(whole, width, subsequent_indent=" " * margin, break_long_words=False, break_on_hyphens=False)


def description(protocol: type[Protocol], width: int = 100) -> str:
    """All declarations of a protocol with their docstrings: constants, variables, actions, properties,
    configurations.
    """
    sections = ["\n".join([protocol.name, *_wrapped(_doc(protocol), width, "  ")])]

    def add(title: str, entries: Iterable[tuple[str, list[str]]]) -> None:
        found = [
            "\n".join([*_heading(head), *(line for text in body for line in _wrapped(text, width, "      "))])
            for head, body in entries
        ]
        if found:
            sections.append("\n".join([title, *found]))

    add("Constants (-D NAME=VALUE)", _constants(protocol))
    add("Variables", _variables(protocol))
    add("Initial state", ((d.name, [d.doc]) for d in protocol.declared("initial")))
    add("Actions", (_action(d) for d in protocol.declared("action")))
    for kind, title in SECTIONS:
        add(title, (_property(d, protocol) for d in protocol.declared(kind)))
    add(FAIR, ((fairness_text(f), []) for f in protocol.fairness))
    add("Configurations (--config NAME)", ((name, _configuration(c)) for name, c in protocol.configurations.items()))
    return "\n\n".join(sections)


def summary(protocol: type[Protocol]) -> str:
    """The first sentence of the protocol's docstring, on one line."""
    first = _doc(protocol).split("\n\n")[0]
    return re.split(r"(?<=[.!?])\s", plain(" ".join(first.split())))[0]


def _doc(protocol: type[Protocol]) -> str:
    """The docstring of a protocol, or of the nearest base class that has one."""
    written = (owner.__doc__ for owner in protocol.__mro__[: protocol.__mro__.index(Protocol)])
    return inspect.cleandoc(next((doc for doc in written if doc), ""))


def plain(text: str) -> str:
    """A docstring without markup: the roles of references and double backquotes are removed."""
    return re.sub(r"``([^`]*)``", r"\1", re.sub(r":\w+(?::\w+)?:`~?([^`]+)`", r"\1", text))


def constant_text(value: Any) -> str:
    """The value of a constant as ``-D`` takes it: ``b1,b2,b3``, ``true``, ``4``."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, frozenset)):
        return ",".join(map(constant_text, value)) if value else "()"
    return value if isinstance(value, str) else show(value)


def _constants(protocol: type[Protocol]) -> Iterator[tuple[str, list[str]]]:
    for name, constant in constants_of(protocol).items():
        kind = constant.kind
        if constant.prefix is not None:
            kind += f": their number, or their names ({constant.prefix}1,{constant.prefix}2)"
        if constant.symmetric is not False:
            kind += "; symmetric" if constant.symmetric is True else "; symmetric in some configurations"
        yield f"{name} = {constant_text(constant.default)}", [kind, constant.doc]


def _variables(protocol: type[Protocol]) -> Iterator[tuple[str, list[str]]]:
    for name, variable in variables_of(protocol).items():
        declared = variable.declared
        kind = _annotation(protocol, name)
        head = f"{name}: {kind}" if kind else name
        initial = _initial(declared)
        if initial is not None:
            head += f" = {initial}"
        if variable.held_by is not None:
            head += f"   (held by {variable.held_by})"
        yield head, list(_parts(declared))


def _annotation(protocol: type[Protocol], name: str) -> str:
    for owner in protocol.__mro__:
        annotation = vars(owner).get("__annotations__", {}).get(name)
        if annotation is not None:
            text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
            return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text)
    return ""


def _initial(declared: Any) -> str | None:
    """The initial value of a variable of one slot, if it is short."""
    if not isinstance(declared, VariableOf) or isinstance(declared.initial, (type, Record, PerKeyOf, TableOf)):
        return None
    text = show(declared.initial)
    return text if len(text) <= 40 else None


def _parts(declared: Any) -> Iterator[str]:
    """The parts of a variable of several slots."""
    while isinstance(declared, (VariableOf, PerKeyOf)):
        if isinstance(declared, PerKeyOf):
            yield f"for each of {_domain(declared.keys)}"
            declared = declared.element
        else:
            declared = declared.initial
    if isinstance(declared, NetworkOf):
        for kind, (source, dest) in declared.routes.items():
            yield f"{kind.__name__}({', '.join(kind._fields)}): from {_domain(source)} to {_domain(dest)}"
        kinds = ("lossy", "once", "duplicates", "remember", "ordered", "can_be_cut")
        said = [(kind.replace("_", " "), getattr(declared, kind)) for kind in kinds]
        semantics = [kind if on is True else f"{kind} if {_domain(on)}" for kind, on in said if on is not False]
        if semantics:
            yield ", ".join(semantics)
    record = declared if isinstance(declared, type) else type(declared)
    if issubclass(record, Record):
        yield f"{record.__name__}({', '.join(record._fields)})"
        if record.__doc__ and not record.__doc__.startswith(
            f"{record.__name__}("
        ):  # dataclasses generate a docstring like this
            yield inspect.cleandoc(record.__doc__).split("\n\n")[0]


def _domain(domain: Any) -> str:
    """A set of keys, ends or parameters, by the author's name for it."""
    name = getattr(domain, "__constant_name__", None)
    if name:
        return str(name)
    if callable(domain):
        return "(computed)" if domain.__name__ == "<lambda>" else str(domain.__name__).strip("_")
    if isinstance(domain, ModelValue):
        return domain.name
    members = list(domain)
    text = ", ".join(map(show, members))
    return f"{{{text}}}" if len(text) <= 60 else f"{len(members)} values"


def _action(declared: Declared) -> tuple[str, list[str]]:
    actor = taken_by(declared)
    return _with_parameters(declared) + (f"   by {actor}" if actor else ""), [declared.doc]


def _with_parameters(declared: Declared) -> str:
    parameters = ", ".join(f"{name} of {_domain(domain)}" for name, domain in declared.domains.items())
    return f"{declared.name}({parameters})" if parameters else declared.name


def taken_by(declared: Declared) -> str | None:
    """The actor of an action: the one in its ``by``, else its first parameter, else None."""
    if declared.by is None:
        return next(iter(declared.domains), None)
    return declared.by if isinstance(declared.by, str) else _domain(declared.by)


def fairness_text(fairness: Fairness) -> str:
    """A fairness condition, in the syntax of protocols."""
    if isinstance(fairness, FairSteps):
        return fairness.title
    per = [] if fairness.per is None else [f"per={fairness.per!r}"]
    return f"{'strong' if fairness.strong else 'weak'}({', '.join([*fairness.actions, *per])})"


def _property(declared: Declared, protocol: type[Protocol]) -> tuple[str, list[str]]:
    head = _with_parameters(declared)
    if declared.when is not None:
        try:
            on = declared.is_on(protocol())
        except Exception:  # a description does not report errors of constants
            on = True
        head += "   (depends on the constants)" if on else "   (off here; --invariant turns it on)"
    return head, [declared.doc]


def _expected(configuration: Configuration) -> str:
    return {"holds": "holds", "deadlock": "deadlocks"}.get(configuration.expect, f"violates {configuration.expect}")


def _configuration(configuration: Configuration) -> list[str]:
    constants = ", ".join(f"{name}={constant_text(value)}" for name, value in configuration.constants.items())
    return [_expected(configuration), constants or "the defaults", configuration.doc]


WIDEST = 120
"""The columns of a declaration; wider ones are wrapped."""


def _heading(text: str) -> list[str]:
    return textwrap.wrap(text, WIDEST, initial_indent="  ", subsequent_indent=" " * 10)


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    paragraphs = [" ".join(p.split()) for p in plain(text).split("\n\n")]
    return [
        line
        for p in paragraphs
        if p
        for line in textwrap.wrap(p, width, initial_indent=indent, subsequent_indent=indent)
    ]
