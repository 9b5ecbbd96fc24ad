"""``python -m bench.driven``: makes mutants of :mod:`bench.driven.shared_lock`, and finds them in two ways.

Both ways know the same: all calls, those that are to be refused, and who holds the lock, but not who waits. Figures are
counts, and do not depend on the speed of the machine. A mutant that does not end counts as found.
"""

from __future__ import annotations

import argparse
import ast
import copy
import inspect
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from bench.driven import by_drive, by_hypothesis, shared_lock

SECONDS = 20
"""The time after which a run does not end, and between further attempts to end it."""


def mutants() -> Iterator[tuple[str, type[shared_lock.SharedLock]]]:
    """Each mutant of the lock, with its line and its change."""
    tree = ast.parse(inspect.getsource(shared_lock))
    total = _Change(-1)
    total.visit(copy.deepcopy(tree))
    for number in range(total.count):
        change = _Change(number)
        mutated = ast.fix_missing_locations(change.visit(copy.deepcopy(tree)))
        names: dict[str, Any] = {"__name__": shared_lock.__name__}
        exec(compile(mutated, f"mutant {number}", "exec"), names)
        names["SharedLock"].__init__.__globals__["Refused"] = shared_lock.Refused
        yield change.said, names["SharedLock"]


class _Change(ast.NodeTransformer):
    """Makes one change, by its number."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.count = 0
        self.said = ""
        self._is_inside = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if node.name == "__init__":
            return node
        self._is_inside = True
        self.generic_visit(node)
        self._is_inside = False
        return node

    def visit(self, node: ast.AST) -> Any:
        node = super().visit(node)
        if not self._is_inside:
            return node
        for what in _changes(node):
            if self.count == self.number:
                before, after = (ast.unparse(each).partition("\n")[0] for each in (node, what))
                self.said = f"{getattr(node, 'lineno', 0)}: {before:.70}  →  {after:.70}"
                self.count += 1
                return what
            self.count += 1
        return node


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield ast.copy_location(ast.Pass(), node)
    if isinstance(node, ast.Assign | ast.Delete | ast.Return):
        yield ast.copy_location(ast.Pass(), node)
    if isinstance(node, ast.Raise):
        yield ast.copy_location(ast.Return(None), node)
    if isinstance(node, ast.If):
        yield ast.copy_location(ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse), node)
        yield ast.copy_location(ast.If(ast.Constant(True), node.body, node.orelse), node)
        yield ast.copy_location(ast.If(ast.Constant(False), node.body, node.orelse), node)
    if isinstance(node, ast.BoolOp):
        for place in range(len(node.values)):
            left = [value for other, value in enumerate(node.values) if other != place]
            yield left[0] if len(left) == 1 else ast.BoolOp(node.op, left)
    if isinstance(node, ast.Constant) and node.value == 0 and node.value is not False:
        yield ast.copy_location(ast.Constant(-1), node)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.copy_location(ast.Constant(not node.value), node)
    if isinstance(node, ast.While):
        yield ast.copy_location(ast.If(node.test, list(node.body), []), node)


def limited(run: Callable[[], tuple[int, int]]) -> tuple[int, int]:
    """The result of a run whose system may not end."""

    def end(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, SECONDS, 1)
    try:
        return run()
    except TimeoutError:
        return 1, 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def main() -> None:
    """Print what finds which mutant, and the totals."""
    parser = argparse.ArgumentParser(prog="python -m bench.driven", description=__doc__)
    parser.add_argument("--most", type=int, default=40, help="the number of mutants, spread evenly")
    parser.add_argument("--examples", type=int, default=100, help="of Hypothesis, whose default is 100")
    given = parser.parse_args()
    every = [*mutants()]
    chosen = [every[place * len(every) // min(given.most, len(every))] for place in range(min(given.most, len(every)))]
    ways: dict[str, Callable[[type[shared_lock.SharedLock]], tuple[int, int]]] = {
        "transitions": lambda kind: by_drive.run(kind),
        "pairs": lambda kind: by_drive.run(kind, cover="pairs"),
        "hypothesis": lambda kind: by_hypothesis.run(kind, given.examples),
    }
    found: dict[str, list[tuple[int, int]]] = {name: [] for name in ways}
    seconds = dict.fromkeys(ways, 0.0)
    for name, way in ways.items():
        print(f"{name:<14}the lock as it is: {way(shared_lock.SharedLock)}")
    for said, kind in chosen:
        for name, way in ways.items():
            began = time.perf_counter()
            found[name].append(limited(lambda way=way, kind=kind: way(kind)))  # type: ignore[misc]
            seconds[name] += time.perf_counter() - began
        print(" ".join(f"{found[name][-1][0]:>3}" for name in ways), said, flush=True)
    print(f"{len(chosen)} of {len(every)} mutants")
    for name, results in found.items():
        lengths = [length for length, _ in results if length]
        print(
            f"{name:<14}{len(lengths):>3} found, {sum(calls for _, calls in results):,} calls, {seconds[name]:.1f} s;"
            f" steps of what is shown: mean {statistics.mean(lengths):.2f}, most {max(lengths)}; lines: {_lines(name)}"
        )


def _lines(name: str) -> int:
    module = by_hypothesis if name == "hypothesis" else by_drive
    return sum(1 for line in inspect.getsource(module).splitlines() if line.strip())


if __name__ == "__main__":
    main()
