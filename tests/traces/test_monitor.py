"""The monitor of the published protocol: it shares no rule with the store, and notices faults in rules that the replay
of `running-store` runs too.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from campaigns import campaign_if
from ledger.simulation.test_planted import Planted
from traces.faulty import without_judge
from traces.traced import LEDGER, run, traced

import fencepost
from fencepost.ledger.rules import adding, ensembles, reading, recovery
from fencepost.ledger.rules import metadata as life
from fencepost.ledger.rules.codes import Code, Verdict
from fencepost.ledger.simulation.case import PROFILES, drawn
from fencepost.protocols.bookkeeper import monitor
from fencepost.protocols.bookkeeper.monitor import Monitor
from fencepost.protocols.store.conformance import StoreConformance
from fencepost.report import validation
from fencepost.traces.validation.conformance import Event
from fencepost.traces.validation.outcome import outcome_of
from fencepost.traces.validation.validate import Validator
from fencepost.traces.validation.watch import Limits, Watch

SOURCE = Path(fencepost.__file__).parent


def _imports(module: str) -> set[tuple[str, str]]:
    """What a module of the package imports from the package: modules with names."""
    path = SOURCE.parent / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    nodes = ast.walk(ast.parse(path.read_text()))
    return {
        (str(node.module), name.name)
        for node in nodes
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("fencepost")
        for name in node.names
    }


def test_the_monitor_and_the_published_protocols_share_nothing_with_the_store_but_names_of_statuses() -> None:
    published = {f"fencepost.protocols.bookkeeper.{path.stem}" for path in SOURCE.glob("protocols/bookkeeper/*.py")}
    left, seen = [monitor.__name__, *sorted(published)], set()
    shared: set[tuple[str, str]] = set()
    while left:
        module = left.pop()
        if module in seen:
            continue
        seen.add(module)
        for origin, name in _imports(module.removesuffix(".__init__")):
            if origin.startswith(("fencepost.ledger", "fencepost.metadata", "fencepost.protocols.store")):
                shared.add((origin, name))
            elif origin.startswith("fencepost.protocols"):
                left.append(origin)
    assert shared <= {("fencepost.ledger.rules.metadata", "LedgerStatus")}
    assert not {origin for origin, _ in _imports(monitor.__name__)} & {"fencepost.ledger.rules.metadata"}


@pytest.mark.parametrize("profile", PROFILES)
def test_nothing_that_the_store_does_is_objected_to(profile: str) -> None:
    for seed in range(1, 9):
        assert Monitor(traced(seed, profile)[1]).objections == []


# -- a fault in a rule that the store and the validator run


def _covers_all_but_one(original: Any, members: Any, cohort: Any, ack_quorum: int) -> bool:
    return sum(b not in members for b in cohort) < ack_quorum + 1


PLANTED = [
    (
        Planted(
            "an entry is committed with one confirmation too few", ensembles, "is_committed",
            lambda f, count, ack_quorum: count >= ack_quorum - 1,
        ),
        "client_confirms", "is acknowledged with",
    ),
    (
        Planted("one fence too few covers an ensemble", ensembles, "covers", _covers_all_but_one, "races"),
        "client_sends_recovery_read_requests", "leaves an ack quorum out",
    ),
    (
        Planted(
            "a fenced bookie takes adds", adding, "answer_to_add",
            lambda f, **k: f(**{**k, "fenced": False}), "races",
        ),
        "bookie_sends_add_confirmed_response", "a fenced bookie confirms",
    ),
    (
        Planted(
            "a ledger is closed before its last entry", life, "closed",
            lambda f, metadata, last, *a: f(metadata, max(-1, last - 1), *a), "races",
        ),
        "recovery_client_closes_ledger", "closes at entry",
    ),
    (
        Planted(
            "a recovery closes before it has written back", recovery, "may_close",
            lambda f, end_known, *a: end_known, "races",
        ),
        "recovery_client_closes_ledger", "has no ack quorum",
    ),
    (
        Planted(
            "one bookie's denial ends a recovery", reading, "recovery_read",
            lambda f, found, negative, *a: Verdict.NEGATIVE if negative and not found else f(found, negative, *a),
            "races", 2,
        ),
        "recovery_client_closes_ledger", "may be committed",
    ),
    (
        Planted(
            "a recovery begins one entry too late", recovery, "confirmed_before", lambda f, *a: f(*a) + 1, "races",
        ),
        "client_sends_recovery_read_requests", "begins to read at",
    ),
    (
        Planted(
            "adds carry a LAC that is one too high", adding, "lac_of_owner",
            lambda f, confirmed, forced, deferred: f(confirmed, forced, deferred) + 1, "races",
        ),
        "client_sends_add_entry_requests", "it sends LAC",
    ),
    (
        Planted(
            "a fragment begins one entry too late", life, "with_ensemble",
            lambda f, fragments, ensemble, first: f(fragments, ensemble, first + 1), "network", 80,
        ),
        "client_changes_ensemble", "is not changed from entry",
    ),
    (
        Planted(
            "a bookie that has left still counts", ensembles, "still_confirmed",
            lambda f, confirmed, *a: confirmed, "network", 93,
        ),
        "client_confirms", "is acknowledged with",
    ),
]  # fmt: skip
"""Faults in rules, with the event that is objected to, and words of the reason."""

WITHIN = 12
"""The number of seeds, from that of a fault on, within which it is noticed."""


def _plant(fault: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a fault in all that runs the rule: the store and its protocol."""
    original = getattr(fault.where, fault.function)

    def planted(*arguments: Any, **keywords: Any) -> Any:
        return fault.instead(original, *arguments, **keywords)

    for name, module in list(sys.modules.items()):
        if name.startswith(("fencepost.ledger.", "fencepost.protocols.store.")) and (
            getattr(module, fault.function, None) is original
        ):
            monkeypatch.setattr(module, fault.function, planted)


@pytest.mark.parametrize(("fault", "action", "why"), PLANTED, ids=[fault.name for fault, _, _ in PLANTED])
def test_a_fault_in_a_rule_that_both_run_is_objected_to_where_it_shows(
    fault: Planted, action: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_judge(monkeypatch)
    _plant(fault, monkeypatch)
    validator = Validator(StoreConformance)
    for seed in range(fault.seed, fault.seed + WITHIN):
        verdict = validator.validate(LEDGER, run(drawn(seed, fault.profile))[1])
        objections = [each for each in verdict.objections if each.event.action == action and why in each.why]
        if objections and not verdict.refusals and not verdict.problem:
            assert not verdict.accepted and verdict.covered  # the replay takes all steps
            return
    pytest.fail("no trace was rejected by the monitor alone")
