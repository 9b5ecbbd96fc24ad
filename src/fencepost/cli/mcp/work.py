"""What a tool does, in a process of its own: reads what is asked as a line of JSON, and answers with another."""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fencepost.errors import NOT_A_PROTOCOL, SYSTEM_FAILED, WRONG_OPTIONS, FencepostError, NotAProtocol, OptionError
from fencepost.language import loading
from fencepost.language.seam import Model, language_of
from fencepost.text import numbers

EARLIER = 0.85
"""The share of the time and the memory at which a search ends by its own limits, and says how far it came."""

MOST_LINES, MOST_CHARACTERS = 60, 6_000
"""The most lines and characters of an answer."""

WIDTH = 100

_PDEATHSIG = 1
"""Of Linux's prctl: the signal that a process gets when its parent ends."""

MOST_REFUSALS = 20
"""The most refused actions of a state that are explained."""

Asked = dict[str, Any]


def check(asked: Asked) -> str:
    """The verdict of a check, its counterexample or witnesses, and counts."""
    from fencepost.api.check import check
    from fencepost.report.text import story

    model = _model(asked)
    expected = loading.expectation(model, asked["config"])
    options = _limits(asked)
    if asked["deadlock"] is not None or expected == "deadlock":
        options["deadlock"] = asked["deadlock"] is not False
    result = check(model, invariants=asked["invariants"] or None, **options)
    # Without its statistics, which take most of a short story.
    lines = [story(replace(result, generated_states=0), width=WIDTH).rstrip("\n"), "", _counts(result)]
    idle = [action.name for action in result.actions if not action.taken]
    if idle and result.complete:
        lines.append(f"Never taken: {', '.join(idle)}.")
    if expected is not None:
        lines.append(f"The configuration {asked['config']} expects: {expected}.")
    if result.failure is not None:
        lines.append(f"The memory limit of a call is {numbers.size(asked['memory'])}.")
    shown = [*(each.trace for each in result.violations), *(each.trace for each in result.witnesses)]
    first = next((trace for trace in shown if trace is not None), result.error_trace)
    if first is not None:
        from fencepost.behaviours.path import path_of

        with contextlib.suppress(FencepostError):
            lines.append(f"path: {path_of(first)}")
    return "\n".join(lines)


def witness(asked: Asked) -> str:
    """The shortest behaviour to a state in which an expression is true."""
    from fencepost.api.check import check
    from fencepost.api.result import witnessed
    from fencepost.behaviours import Expression
    from fencepost.explorer.find import TARGET, with_target
    from fencepost.explorer.session import Session
    from fencepost.report.text import story

    model, where = _model(asked), asked["where"]
    result = check(with_target(model, Expression(where, model), None), invariants=[TARGET], **_limits(asked))
    trace = result.violation.trace if result.violation is not None else None
    if trace is None:
        if result.holds:
            return f"NEVER REACHED\n{where} is true in no reachable state.\n\n{_counts(result)}"
        return f"{story(replace(result, generated_states=0), width=WIDTH)}\n{_counts(result)}"
    session = Session(model)
    end = session.graft(trace)
    told = story(witnessed(session.trace(end), where), width=WIDTH).rstrip("\n")
    return f"{told}\n\n{_counts(result)}\npath: {session.path(end)}"


def explain(asked: Asked) -> str:
    """What a protocol declares; or the state after a step of a path, what is wrong there, what can happen next, and why
    other actions cannot.
    """
    from fencepost.report.describe import description

    if not asked["path"]:
        found = loading.find(asked["protocol"])
        return description(found, WIDTH) if isinstance(found, type) else found.description(WIDTH)
    from fencepost.explorer.session import Session
    from fencepost.report.text import state_story

    session = Session(_model(asked))
    line = session.follow(asked["path"].partition("@")[0]).line
    number = len(line) - 1 if asked["step"] is None else asked["step"]
    if not 0 <= number < len(line):
        raise OptionError(f"step is {number}: the path has {numbers.plural(len(line) - 1, 'step')}")
    node = line[number]
    came = "the initial state" if node.step is None else f"after step {number} of {len(line) - 1}, {node.step.title}"
    lines = [f"STATE  {came}", state_story(node.state, width=WIDTH).rstrip("\n")]
    wrong = [f"  {each.name}{', '.join(each.bindings)}" for each in session.judge(node) if not each.holds]
    lines += ["", "Violated here:", *wrong] if wrong else []
    enabled = session.enabled(node)
    lines += ["", "Can happen next:" if enabled else "Nothing can happen next."]
    for action in enabled:
        ways = numbers.plural(len(action.offers), "way")
        lines.append(f"  {action.title}" + (f": {action.error}" if action.error else f"  {ways}" * (ways != "1 way")))
    titles = {action.title for action in enabled}
    others = [root for root in session.actions if root.title not in titles]
    lines += ["", "Cannot:"] if others else []
    lines += [f"  {root.title}  {_why(session.protocol, root, node.state)}".rstrip() for root in others[:MOST_REFUSALS]]
    lines += [f"  and {len(others) - MOST_REFUSALS:,} more"] if len(others) > MOST_REFUSALS else []
    return "\n".join(lines)


def _why(protocol: Model, root: Any, state: Any) -> str:
    """The line of the author's that refuses an action in a state; "" if that depends on a choice."""
    import linecache

    from fencepost.language.context import Disabled, current
    from fencepost.semantics.authors import line_of
    from fencepost.traces.validation.replay import Evaluation

    cursor = Evaluation(state.store, list(state.ids), ())
    token = current.set(cursor)
    try:
        root.declared.function(protocol.bound_to(cursor), **root.parameters)
    except Disabled as error:
        at = line_of(error)
        return "" if at is None else f"{os.path.basename(at[0])}:{at[1]}: {linecache.getline(*at).strip()}"
    except BaseException:
        return ""
    finally:
        current.reset(token)
    return ""


def validate(asked: Asked) -> str:
    """The verdicts on traces, as ``fencepost validate`` prints them."""
    from fencepost.cli.main import main

    words = ["validate", *asked["traces"]]
    for option in ("protocol", "conformance"):
        words += [f"--{option}", asked[option]] if asked[option] else []
    out, wrong = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(wrong):
        code = main(words)
    if code in (NOT_A_PROTOCOL, WRONG_OPTIONS, SYSTEM_FAILED) and not out.getvalue():
        raise OptionError(wrong.getvalue().strip().removeprefix("fencepost: "))
    return out.getvalue().rstrip("\n")


def drive(asked: Asked) -> str:
    """Whether a system does what its protocol does."""
    from fencepost.testing.driving import drive

    model = _model(asked)
    path, _, name = loading.split(asked["system"])
    module = loading.from_file(path)
    own = {n: c for n, c in vars(module).items() if isinstance(c, type) and c.__module__ == module.__name__}
    systems = [n for n, c in own.items() if hasattr(c, "observe")]
    if not name and len(systems) != 1:
        has = ", ".join(systems) or "none"
        raise OptionError(f"{path} must have one class with observe(), or say which, as FILE.py:Class: it has {has}")
    if name and name not in own:
        raise OptionError(f"{path} has no class {name}: it has {', '.join(own) or 'none'}")
    return str(drive(model, own[name or systems[0]], seconds=_seconds(asked))).rstrip("\n")


def _model(asked: Asked) -> Model:
    given = [f"{n}={str(v).lower() if isinstance(v, bool) else v}" for n, v in asked["constants"].items()]
    model = loading.configured(loading.find(asked["protocol"]), asked["config"], given, asked["protocol"])
    if not model.declared("action") and not language_of(model).counts_as_tlc:
        raise NotAProtocol(f"{asked['protocol']} has no actions, so there is nothing to check: mark steps with @action")
    return model


def _limits(asked: Asked) -> dict[str, Any]:
    return {"timeout": _seconds(asked), "max_memory": int(EARLIER * asked["memory"])}


def _seconds(asked: Asked) -> float:
    """The time that is left now. All processes of a machine have one monotonic clock."""
    left: float = asked["until"] - time.monotonic()
    return max(0.1, round(EARLIER * left, 1))


def _counts(result: Any) -> str:
    states = numbers.plural(result.distinct_states, "distinct state")
    return f"{states}, depth {result.depth:,}, {numbers.seconds(result.seconds)}."


def shortened(text: str) -> str:
    """An answer without its middle, if it is too long, and how many lines that has."""
    lines = [line if len(line) <= 2 * WIDTH else f"{line[: 2 * WIDTH]}…" for line in text.split("\n")]
    head, tail = lines[: MOST_LINES * 2 // 3], lines[MOST_LINES * 2 // 3 :][-MOST_LINES // 3 :]
    while len("\n".join((*head, *tail))) > MOST_CHARACTERS:
        (head if len(head) > len(tail) else tail).pop(-1 if len(head) > len(tail) else 0)
    left = len(lines) - len(head) - len(tail)
    return "\n".join([*head, *([f"... {numbers.plural(left, 'line')} left out ..."] if left else []), *tail])


TOOLS: dict[str, Callable[[Asked], str]] = {
    "check": check,
    "witness": witness,
    "explain": explain,
    "validate": validate,
    "drive": drive,
}


def answer(asked: Asked) -> dict[str, str]:
    """The ``text`` of an answer, or the ``error`` of what was asked, in one line."""
    try:
        return {"text": shortened(TOOLS[asked["tool"]](asked))}
    except FencepostError as error:
        return {"error": str(error)[:MOST_CHARACTERS]}
    except MemoryError:
        from fencepost.cli.mcp.bounded import stopped

        return {"text": stopped(f"memory limit of {numbers.size(asked['memory'])}")}
    except (Exception, SystemExit) as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main(arguments: Sequence[str] = ()) -> int:
    """Answer what standard input asks. Everything else that is printed is dropped."""
    out = os.dup(1)
    os.dup2(2, 1)
    asked = json.loads(sys.stdin.buffer.readline())
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _end_with_the_server(asked["parent"])
    os.write(out, json.dumps(answer(asked)).encode())
    return 0


def _end_with_the_server(parent: int) -> None:
    """End this process where the one that waits for its answer ends."""
    if sys.platform == "linux":  # the signal also ends what is too busy to react
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        return

    def wait() -> None:
        sys.stdin.buffer.read()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
