"""The monitor of the published protocol: it shares no rule with the store, and notices faults in rules that the replay
of `running-store` runs too.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest
from ledger.simulation.test_planted import Planted
from traces.faulty import without_judge
from traces.traced import LEDGER, run, traced

import fencepost
from fencepost.ledger.rules import adding, ensembles, reading, recovery
from fencepost.ledger.rules import metadata as life
from fencepost.ledger.rules.codes import Verdict
from fencepost.ledger.simulation.case import PROFILES, drawn
from fencepost.protocols.bookkeeper import monitor
from fencepost.protocols.bookkeeper.monitor import Monitor
from fencepost.protocols.store.conformance import StoreConformance
from fencepost.report import validation
from fencepost.traces.validation.conformance import Event, NotCovered, Objection
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
        "client_sends_recovery_read_requests", "and an ack quorum has none",
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


# -- each rule, in traces made by hand

FIRST = [[0, ["b1", "b2", "b3"]]]
CHANGED = [[0, ["b1", "b2", "b3"]], [2, ["b1", "b2", "b4"]]]

Row = tuple[str, str, dict[str, Any]]
"""A node, an action and parameters."""


def _metadata(state: str = "OPEN", fragments: Any = None, last: int = -1, write_quorum: int = 3) -> dict[str, Any]:
    sizes = {"ensemble_size": 3, "write_quorum": write_quorum, "ack_quorum": 2}
    return {"state": state, "fragments": fragments or FIRST, "last_entry": last, **sizes}


def _seen(node: str, version: int, *, action: str = "client_receives_metadata", **metadata: Any) -> Row:
    return node, action, {"version": version, "metadata": _metadata(**metadata), "written": True}


def _wants(node: str, action: str, version: int, **metadata: Any) -> Row:
    return node, action, {"version": version, "metadata": _metadata(**metadata)}


def _sends(entry: int, lac: int) -> Row:
    return "w", "client_sends_add_entry_requests", {"entries": [[entry, entry]], "lac": lac, "ensemble": FIRST[0][1]}


def _hears(entry: int, *bookies: str, node: str = "w") -> list[Row]:
    action = (
        "client_receives_add_confirmed_response" if node == "w" else "recovery_client_receives_add_confirmed_response"
    )
    return [(node, action, {"bookie": bookie, "entries": [[entry, entry]]}) for bookie in bookies]


def _confirms(lac: int) -> Row:
    return "w", "client_confirms", {"lac": lac}


def _owner(entries: int = 2, write_quorum: int = 3) -> list[Row]:
    """An owner that has acknowledged some entries."""
    rows = [
        _wants("w", "client_creates_ledger", -1, write_quorum=write_quorum),
        _seen("w", 0, write_quorum=write_quorum),
    ]
    for entry in range(entries):
        rows += [_sends(entry, entry - 1), *_hears(entry, "b1", "b2"), _confirms(entry)]
    return rows


def _fenced(bookie: str, lac: int | None) -> Row:
    return "r", "client_receives_fencing_read_lac_response", {"bookie": bookie, "lac": lac}


def _recovery_reads(entry: int, **found: bool) -> list[Row]:
    asked: Row = ("r", "client_sends_recovery_read_requests", {"entry": entry, "bookies": FIRST[0][1]})
    heard = "client_receives_recovery_read_response"
    return [asked, *(("r", heard, {"bookie": b, "entry": entry, "found": each}) for b, each in found.items())]


def _recovery(lac: int = 0, fenced: tuple[str, ...] = ("b2", "b3"), written_back: bool = True) -> list[Row]:
    """A recovery that has found entry 1, and no entry 2."""
    return [
        _seen("r", 0, action="client_opens_ledger"),
        _wants("r", "client_starts_recovery", 0, state="IN_RECOVERY"),
        _seen("r", 1, state="IN_RECOVERY"),
        *(_fenced(bookie, lac) for bookie in fenced),
        *_recovery_reads(1, b1=True),
        ("r", "client_writes_back_entry", {"entries": [[1, 1]], "lac": 0, "ensemble": FIRST[0][1]}),
        *(_hears(1, "b2", "b3", node="r") if written_back else ()),
        *_recovery_reads(2, b2=False, b3=False),
    ]


def _closes(last: int) -> list[Row]:
    return [
        _wants("r", "recovery_client_closes_ledger", 1, state="CLOSED", last=last),
        _seen("r", 2, state="CLOSED", last=last),
    ]


def _bookie(action: str, entry: int = 0, node: str = "b1", **parameters: Any) -> Row:
    return node, action, {"entries": [[entry, entry]], "position": 1, "connection": "", **parameters}


def _adds(entry: int = 0, recovery: bool = False, position: int = 1) -> Row:
    return _bookie("bookie_sends_add_confirmed_response", entry, recovery=recovery, lac=-1, position=position)


def _denies(entry: int = 0, **parameters: Any) -> Row:
    return _bookie("bookie_sends_read_response", entry, code="NO_ENTRY", fence=False, **parameters)


def _fences(position: int = 1) -> Row:
    return _bookie("bookie_is_fenced", -1, position=position)


def _about_all(action: str, node: str = "b1", **parameters: Any) -> Row:
    return node, action, {"about all": True, **parameters}


def _started(node: str = "b1", kind: str = "bookie") -> Row:
    return _about_all("started", node, kind=kind)


def _events(rows: list[Row]) -> list[Event]:
    lives: dict[str, list[int]] = {}
    found = []
    for node, action, parameters in rows:
        life = lives.setdefault(node, [1, 0])
        if action == "started":
            life[:] = [life[0] + (life[1] > 0), 0]
        life[1] += 1
        subject = None if "about all" in parameters else LEDGER
        found.append(Event(node, life[0], life[1], action, subject, parameters))
    return sorted(found, key=lambda event: event.place)


def _objections(*rows: Row) -> list[str]:
    return [f"{each.event.action}: {each.why}" for each in Monitor(_events([*rows])).objections]


RIGHT: dict[str, list[Row]] = {
    "a ledger is recovered": [*_owner(), *_recovery(), *_closes(1)],
    "an owner closes": [*_owner(), _wants("w", "client_closes_ledger", 0, state="CLOSED", last=1)],
    "an ensemble is changed": [
        *_owner(), _wants("w", "client_changes_ensemble", 0, fragments=CHANGED), _seen("w", 1, fragments=CHANGED),
        *_hears(2, "b4", "b1"), _confirms(2),
    ],
    "a bookie is fenced": [_adds(), _fences(), _adds(1, recovery=True), _denies(2)],
    "it was asked before it had the entry": [_adds(position=3), _denies(since=2)],
    "what was not durable is lost": [
        _started(), _adds(0, position=1), _about_all("journal_synced", position=1), _adds(1, position=2), _fences(3),
        _started(), _denies(1, since=0), _adds(2),
    ],
    "a bookie tells of a loss": [_adds(), _fences(), _bookie("bookie_is_wiped"), _denies(), _adds(1)],
    "the ledger is deleted": [_adds(), _denies(), ("m", "metadata_deleted", {"version": 3})],
    "deferred sync": [
        *_owner(0), ("w", "client_sends_add_entry_requests",
                     {"entries": [[0, 0]], "lac": -1, "ensemble": FIRST[0][1], "deferred_sync": True}),
        *_hears(0, "b1", "b2"), _confirms(0), ("w", "client_receives_force_response", {"lac": 0}), _sends(1, 0),
    ],
    "a closed ledger is copied": [_seen("r", 4, state="CLOSED", last=3),
                                  _seen("r", 5, state="CLOSED", last=3, fragments=[[0, ["b1", "b2", "b9"]]])],
}  # fmt: skip
"""Traces that the publication allows."""

WRONG: dict[str, tuple[list[Row], str]] = {
    "no ack quorum": (
        [*_owner(1), _sends(1, 0), *_hears(1, "b1"), _confirms(1)], "entry 1 is acknowledged with 1 of the 2",
    ),
    "one bookie twice": ([*_owner(1), *_hears(1, "b1", "b1"), _confirms(1)], "acknowledged with 1 of the 2"),
    "a bookie outside": ([*_owner(1), *_hears(1, "b1", "b9"), _confirms(1)], "acknowledged with 1 of the 2"),
    "a gap": ([*_owner(1), *_hears(2, "b1", "b2"), _confirms(2)], "entry 1 is acknowledged with 0 of the 2"),
    "a bookie that was replaced": (
        [*_owner(), *_hears(2, "b3", "b1"), _wants("w", "client_changes_ensemble", 0, fragments=CHANGED),
         _seen("w", 1, fragments=CHANGED), _confirms(2)],
        "entry 2 is acknowledged with 1 of the 2",
    ),
    "during a change": (
        [*_owner(), *_hears(2, "b1", "b2"), _wants("w", "client_changes_ensemble", 0, fragments=CHANGED), _confirms(2)],
        "while the ensemble is changed",
    ),
    "not in the write set": (
        [*_owner(0, write_quorum=2), _sends(0, -1), *_hears(0, "b3")], "b3 confirms entry 0, and is not in",
    ),
    "a LAC too high": ([*_owner(1), _sends(1, 1)], "it sends LAC 1, and has acknowledged entries up to 0"),
    "a force too far": ([*_owner(1), ("w", "client_receives_force_response", {"lac": 1})], "are forced up to 1"),
    "a fragment too late": (
        [*_owner(1), _wants("w", "client_changes_ensemble", 0, fragments=CHANGED)], "is not changed from entry 1",
    ),
    "an old fragment": (
        [*_owner(), _wants("w", "client_changes_ensemble", 0, fragments=[[0, ["b1", "b2", "b9"]], CHANGED[1]])],
        "is not changed from entry 2",
    ),
    "an owner cuts off": (
        [*_owner(), _wants("w", "client_closes_ledger", 0, state="CLOSED", last=0)], "the owner closes at entry 0",
    ),
    "an owner closes too far": (
        [*_owner(), _wants("w", "client_closes_ledger", 0, state="CLOSED", last=2)], "the owner closes at entry 2",
    ),
    "an unconditional write": (
        [*_owner(), _wants("w", "client_closes_ledger", 0, state="CLOSED", last=1),
         _seen("w", 2, state="CLOSED", last=1)],
        "a write that replaces version 0 has made version 2",
    ),
    "a fenced bookie": ([_fences(), _adds()], "a fenced bookie confirms"),
    "a bookie that was fenced before it restarted": (
        [_started(), _fences(1), _about_all("journal_synced", position=1), _started(), _adds()],
        "a fenced bookie confirms",
    ),
    "a fence that a journal held": (
        [_started(), _fences(1), _started(), _bookie("bookie_recovers", fenced=True, limbo=False), _adds()],
        "a fenced bookie confirms",
    ),
    "an answer without a fence": (
        [_bookie("bookie_sends_fencing_read_lac_response", code="OK", entry=-1, lac=None)], "is not fenced",
    ),
    "a bookie denies": ([_adds(position=2), _denies(since=2)], "the bookie denies entry 0"),
    "a bookie denies what was durable": (
        [_started(), _adds(), _about_all("journal_synced", position=1), _started(), _denies(since=0)],
        "the bookie denies entry 0",
    ),
    "too few are fenced": ([*_owner(), *_recovery(fenced=("b1",))], "with 1 bookies fenced"),
    "too few of a write set are fenced": (
        [_seen("r", 0, action="client_opens_ledger", write_quorum=2), _fenced("b1", None), *_recovery_reads(0)],
        "with 1 bookies fenced",
    ),
    "a recovery begins too late": ([*_recovery(lac=-1)], "begins to read at entry 1, and not at 0"),
    "what was not read is written back": (
        [*_recovery(), ("r", "client_writes_back_entry", {"entries": [[2, 2]], "lac": 0, "ensemble": FIRST[0][1]})],
        "writes entry 2 back, and has not read it",
    ),
    "a recovery's LAC": (
        [*_recovery(written_back=False),
         ("r", "client_writes_back_entry", {"entries": [[1, 1]], "lac": 1, "ensemble": FIRST[0][1]})],
        "a recovery sends LAC 1, and knows entries up to 0",
    ),
    "a recovery closes before the LAC": ([*_recovery(), *_closes(-1)], "closes at entry -1, before the LAC 0"),
    "a recovery closes at the LAC": ([*_recovery(), *_closes(0)], "and 0 bookies have denied entry 1"),
    "a recovery does not write back": (
        [*_recovery(written_back=False), *_closes(1)], "closes at entry 1, and entry 1 has no ack quorum",
    ),
    "one denial": (
        [*(row for row in _recovery() if row[2].get("found") is not False), *_recovery_reads(2, b2=False), *_closes(1)],
        "and 1 bookies have denied entry 2",
    ),
    "another recovery cuts off": (
        [*_owner(3), *_recovery(), *_closes(1)],
        "recovery_client_closes_ledger: the ledger is closed at entry 1, and entry 2 was acknowledged",
    ),
    "what was read is cut off": (
        [("f", "reader_receives_entry", {"bookie": "b1", "entries": [[1, 2]]}), *_recovery(), *_closes(1)],
        "the ledger is closed at entry 1, and entry 2 was read",
    ),
    "a reader's LAC": ([*_owner(), ("f", "reader_learns_lac", {"lac": 2})], "a reader learns LAC 2"),
    "one version, two contents": (
        [*_owner(), _seen("r", 0, action="client_opens_ledger", fragments=CHANGED)], "version 0 of the metadata is not",
    ),
    "a closed ledger is opened": (
        [_seen("r", 4, state="CLOSED", last=3), _seen("r", 5, state="IN_RECOVERY")], "metadata changes a closed ledger",
    ),
    "a closed ledger ends elsewhere": (
        [_seen("r", 4, state="CLOSED", last=3), _seen("r", 5, state="CLOSED", last=4)], "changes a closed ledger",
    ),
    "a recovered ledger is open": (
        [_seen("r", 4, state="IN_RECOVERY"), _seen("r", 5)], "version 5 of the metadata is OPEN after IN_RECOVERY",
    ),
    "a complete fragment is changed": (
        [_seen("r", 4, fragments=CHANGED), _seen("r", 5, fragments=[[0, ["b9", "b2", "b3"]], CHANGED[1]])],
        "version 5 of the metadata changes a complete fragment",
    ),
}  # fmt: skip
"""Traces that it rules out, with words of the reason."""


@pytest.mark.parametrize("name", RIGHT)
def test_what_the_publication_allows(name: str) -> None:
    assert _objections(*RIGHT[name]) == []


@pytest.mark.parametrize("name", WRONG)
def test_what_the_publication_rules_out(name: str) -> None:
    rows, why = WRONG[name]
    assert any(why in each for each in _objections(*rows)), _objections(*rows)


# -- verdicts


def _cut_off() -> list[Event]:
    """A run whose recovery has closed the ledger one entry too early, as the store and its protocol both allow."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        without_judge(monkeypatch)
        fault, _, _ = next(each for each in PLANTED if each[0].function == "closed")
        _plant(fault, monkeypatch)
        return run(drawn(fault.seed, fault.profile))[1]


def test_a_report_has_what_is_objected_to_before_what_the_replay_refuses() -> None:
    verdict = Validator(StoreConformance).validate(LEDGER, _cut_off())
    outcome = outcome_of(verdict, "r", validation.explaining(3, 100))
    told = validation.text([outcome, outcome], "validate", 1.0)
    head, _, rest = told.partition("The monitor, which shares no rule with the system, objects to these:")
    assert "REJECTED  2 traces" in head and "2 traces: recovery_client_closes_ledger: a recovery closes at" in head
    assert "recovery_client_closes_ledger  (node " in rest.partition("The protocol takes")[0]
    assert "Then none of these can be taken" in rest and "What led there" in rest


def test_a_report_without_a_refusal_says_that_the_replay_takes_all() -> None:
    verdict = Validator(StoreConformance).validate(LEDGER, traced(5, "races")[1])
    assert verdict.accepted
    objection = Objection(traced(5, "races")[1][0], "it has begun")
    verdict.accepted, verdict.objections = False, [objection] * (validation.MOST_OBJECTIONS + 2)
    outcome = outcome_of(verdict, "r", validation.explaining(3, 100))
    told = validation.how_far(outcome)
    assert told.count("it has begun") == validation.MOST_OBJECTIONS and "and 2 others" in told
    assert told.endswith("all that the trace has.") and outcome.story == ""
    [plain] = validation.data([outcome], "p", "c", 1.0)["verdicts"]
    assert plain["verdict"] == "rejected" and plain["objections"][0]["why"] == "it has begun"


def test_an_objection_holds_where_a_trace_is_not_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    def steps(self: StoreConformance, event: Event) -> Any:
        raise NotCovered("an unknown event")

    events = _cut_off()
    monkeypatch.setattr(StoreConformance, "steps", steps)
    verdict = Validator(StoreConformance).validate(LEDGER, events)
    assert verdict.objections and verdict.covered and not verdict.accepted and verdict.problem == "an unknown event"


def test_an_objection_waits_for_events_that_come_late() -> None:
    events = [event for event in traced(5, "races")[1] if event.subject in (LEDGER, None)]
    late = [event for event in events if event.node == "w"]
    watch = Watch(Validator(StoreConformance), "r", Limits(patience=5, idle=20))
    watch.feed([event for event in events if event.node != "w"], 0)
    assert watch.look(0) == []
    watch.feed(late, 1)
    assert watch.look(1) == [] and watch.look(7) == []
    [outcome] = watch.finish(8)
    assert outcome.accepted
    watch = Watch(Validator(StoreConformance), "r", Limits(patience=5, idle=20))
    watch.feed(_cut_off(), 0)
    assert watch.look(0) == []
    [outcome] = watch.look(5)
    assert outcome.verdict == "rejected" and outcome.objections
