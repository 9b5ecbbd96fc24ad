"""The roles follow every transition of small state spaces. A fault in a role is found and reported with a behaviour."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from campaigns import campaign_if

from fencepost import ModelValue, check, errors, sometimes
from fencepost.checker.engines.options import SearchOptions
from fencepost.cli.main import main
from fencepost.errors import FencepostError, SystemFailure
from fencepost.language.loading import shipped
from fencepost.language.protocol import Protocol
from fencepost.ledger.roles import adds, bookie, reading, recoverer, writer
from fencepost.ledger.rules import adding
from fencepost.ledger.rules.codes import Code, Verdict
from fencepost.ledger.rules.ensembles import write_set
from fencepost.ledger.rules.metadata import Next
from fencepost.ledger.rules.protections import ALL
from fencepost.protocols.bookkeeper.ledger import FenceResponse
from fencepost.protocols.store.store import ONE_BOOKIE, ONE_COPY, TWO_ENTRIES, Status, Store
from fencepost.testing.store import table
from fencepost.testing.store.actions import HANDLERS
from fencepost.testing.store.driver import Driver
from fencepost.testing.store.mapping import ensemble_of
from fencepost.testing.store.system import copied
from fencepost.testing.walk import Difference, DriveResult, NotRealisable, Reading

SMALL: dict[str, Any] = {"bookies": 2, "ack_quorum": 1}
STRICT: dict[str, Any] = {"bookies": 2}
AT_ONCE: dict[str, Any] = {"metadata_lags": False}
LOSSLESS: dict[str, Any] = {"message_loss": False, **AT_ONCE}
ALONE: dict[str, Any] = {"clients": 1}
B1, B2, C1, C2 = map(ModelValue, ("b1", "b2", "c1", "c2"))


def written(directory: Path, protocol: Protocol, edges: bool = True, **options: Any) -> str:
    check(protocol, states=directory, edges=edges, options=SearchOptions(workers=1, **options))
    return str(directory)


def space(directory: Path, edges: bool = True, **constants: Any) -> str:
    return written(directory, Store(**constants), edges)


def every_transition(directory: Path, **constants: Any) -> tuple[DriveResult, int]:
    opened = table.opened(space(directory, **constants))
    result = table.every_transition(opened)
    return result, opened.manifest.edges or 0


# -- following transitions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "constants",
    [
        *campaign_if(
            bool,
            [
                ONE_BOOKIE,
                ONE_BOOKIE | LOSSLESS | TWO_ENTRIES,
                ONE_BOOKIE | AT_ONCE | {"metadata_answers_lost": True, "mark_answers_lost": True},
            ],
        ),
        ALONE | {"bookies": 3, "ack_quorum": 1},
        ALONE | SMALL | {"readers": 1},
        {"bookies": 2, "readers": 1, "clients": 1, "message_loss": False},
    ],
)
def test_roles_follow_every_transition(tmp_path: Path, constants: dict[str, Any]) -> None:
    result, edges = every_transition(tmp_path / "states", **constants)
    assert not result.found, (result.found[0].variable, result.found[0].expected, result.found[0].actual)
    assert (result.covered.total(), result.skipped.total(), result.beyond) == (edges, 0, 0)


def first_found(constants: dict[str, Any], most: int) -> tuple[Difference | None, dict[str, int], set[str]]:
    """The first difference, level by level, the skipped transitions, and the actions taken."""
    driver = Driver(Store(**constants))
    level, seen, steps = [driver.begin()], set[Any](), 0
    skipped: dict[str, int] = {}
    taken = set[str]()
    while level:
        below = []
        for row, system in level:
            for root in driver.actions.values():
                for outcome in driver.outcomes(root, row).values():
                    steps += 1
                    if steps > most:
                        return None, skipped, taken
                    fork = system.fork()
                    try:
                        after = driver.stepper.store.normal(driver.step(fork, row, root, outcome))
                    except NotRealisable as error:
                        skipped[error.reason] = skipped.get(error.reason, 0) + 1
                        continue
                    except Difference as error:
                        return error, skipped, taken
                    taken.add(root.name)
                    if after not in seen:
                        seen.add(after)
                        below.append((after, fork))
        level = below
    return None, skipped, taken


CRASH: dict[str, Any] = SMALL | {"crashes": 1} | LOSSLESS
READS_AHEAD: dict[str, Any] = ONE_BOOKIE | TWO_ENTRIES | {"reads_in_flight": 2}


@pytest.mark.parametrize(
    "constants",
    [
        *campaign_if(
            bool,
            [
                CRASH,
                {"bookies": 3, "ensemble_size": 3, "send_limit": 2} | LOSSLESS,
                {"bookies": 2, "clients": 1, "write_quorum": 1, "ack_quorum": 1, "send_limit": 3, "inflight_limit": 3},
                ONE_COPY | TWO_ENTRIES | {"choose_ensembles": True},
                {"bookies": 4, "clients": 1},
            ],
        ),
    ],
)
def test_roles_follow_the_first_transitions_of_larger_spaces(constants: dict[str, Any]) -> None:
    found, skipped, _ = first_found(constants, 4_000)
    assert found is None, (found.variable, found.expected, found.actual)
    assert not skipped


def taken(constants: dict[str, Any], moves: list[str]) -> Any:
    """Drive one behaviour. Gives the protocol in its last state. A move is an action and its actor, such as
    ``client_closes_ledger c1``. With ``lost``, its messages are lost.
    """
    driver = Driver(Store(**constants))
    row, system = driver.begin()
    for move in moves:
        action, *words = move.split()
        lost = "lost" in words
        who = [word for word in words if word != "lost"]
        (root,) = [
            root
            for (name, _), root in driver.actions.items()
            if name == action and [*map(str, root.parameters.values())] == who
        ]
        outcomes = [
            outcome
            for outcome in driver.outcomes(root, row).values()
            if all(event.lost is lost for event in outcome.events if event.kind == "send")
        ]
        assert len(outcomes) == 1, (move, len(outcomes))
        row = driver.step(system, row, root, outcomes[0])
    return driver.protocol.bound_to(Reading(driver.stepper.store, row))


def test_an_entry_that_is_sent_again_carries_the_lac_that_it_was_first_sent_with() -> None:
    moves = [
        "client_creates_ledger c1",
        "client_sends_add_entry_requests c1",
        "client_sends_add_entry_requests c1 lost",
        "bookie_sends_add_confirmed_response b1 c1",
        "client_receives_add_confirmed_response c1 b1",
        "client_changes_ensemble c1",
        "client_resends_pending_add_op c1",
        "bookie_sends_add_confirmed_response b2 c1",
    ]
    state = taken(ONE_COPY | TWO_ENTRIES | AT_ONCE, moves)
    assert state.client[C1].lac == 1 and state.bookie[B2].lac == 0


def test_a_fenced_bookie_tells_the_lac_of_its_last_entry() -> None:
    """The entry is written back with a lower LAC than the bookie has."""
    moves = [
        "client_creates_ledger c1",
        "client_sends_add_entry_requests c1",
        "bookie_sends_add_confirmed_response b1 c1",
        "bookie_sends_add_confirmed_response b2 c1",
        "client_receives_add_confirmed_response c1 b1",
        "client_receives_add_confirmed_response c1 b2",
        "client_sends_add_entry_requests c1",
        "bookie_sends_add_confirmed_response b1 c1",
        "client_starts_recovery c2",
        "bookie_sends_fencing_read_lac_response b2 c2",
        "client_receives_fencing_read_lac_response c2 b2",
    ]
    for _ in range(2):
        moves += [
            "client_sends_recovery_read_requests c2",
            "bookie_sends_read_response b1 c2",
            "client_receives_recovery_read_response c2 b1",
            "client_writes_back_entry c2",
            "bookie_sends_add_confirmed_response b1 c2",
        ]
    state = taken(STRICT | LOSSLESS | TWO_ENTRIES, [*moves, "bookie_sends_fencing_read_lac_response b1 c2"])
    assert state.bookie[B1].lac == 1
    assert [answer.lac for answer in state.network.in_flight(FenceResponse, B1, C2)] == [0]


def test_a_bookie_in_limbo_without_entries_does_not_count_as_fenced() -> None:
    moves = ["client_creates_ledger c1", "bookie_crashes b1", "client_starts_recovery c2"]
    state = taken(CRASH, [*moves, "bookie_sends_fencing_read_lac_response b1 c2"])
    assert state.bookie[B1].fenced and not state.network.in_flight(FenceResponse, B1, C2)


def test_a_recovery_that_aborts_has_written_back_what_it_found_before() -> None:
    moves = [
        "client_creates_ledger c1",
        "client_sends_add_entry_requests c1",
        "bookie_sends_add_confirmed_response b1 c1",
        "client_starts_recovery c2",
        "bookie_sends_fencing_read_lac_response b1 c2",
        "client_receives_fencing_read_lac_response c2 b1",
        "client_sends_recovery_read_requests c2",
        "client_sends_recovery_read_requests c2 lost",
        "bookie_sends_read_response b1 c2",
        "client_receives_recovery_read_response c2 b1",
        "client_writes_back_entry c2",
        "bookie_sends_add_confirmed_response b1 c2",
    ]
    assert taken(READS_AHEAD | AT_ONCE, moves).client[C2].status is Status.ABORTED


def test_a_recovery_marks_again_where_metadata_are_answered_at_once() -> None:
    class MarksAgain(Store):
        @sometimes
        def it_goes_on(self) -> bool:
            return self.client[C2].status is Status.IN_RECOVERY and self.client[C2].version == 3

    assert check(MarksAgain(**ONE_BOOKIE, **AT_ONCE, mark_answers_lost=True)).must_hold()


def test_every_action_of_the_protocol_is_known() -> None:
    assert set(HANDLERS) == {name for name, _ in Driver(Store(readers=1)).actions}


# -- faults -----------------------------------------------------------------------------------------------------------


def always(value: Any) -> Callable[..., Any]:
    """A rule that always gives ``value``."""
    return lambda *args, **kwargs: value


CHANGE_ENSEMBLE = adds.Adds.change_ensemble

# The role's module or a class in it, the rule, the fault, its description, constants that show it, and the variable.
FAULTS: list[tuple[ModuleType | type, str, Callable[..., Any], str, dict[str, Any], str]] = [
    (adds, "is_committed", lambda n, quorum: n + 1 >= quorum, "one confirmation too few is enough", ONE_COPY,
    "client.c1.lac"),
    (bookie, "answer_to_add", always(Code.OK), "a fence is ignored", ONE_BOOKIE, "what b1 answers to c1"),
    (bookie, "lac_of_bookie", lambda known, carried: max(known, carried + 1), "a bookie's LAC is the entry", ONE_BOOKIE,
    "bookie.b1.lac"),
    (bookie, "is_fenced_by_read", lambda fence, _=None, *, is_of_last_entry=False: fence and is_of_last_entry,
    "recovery reads do not fence", STRICT | LOSSLESS, "bookie.b2.fenced"),
    (bookie, "answer_to_read", always(Code.NO_ENTRY), "a bookie lacks what it has", ONE_BOOKIE,
    "what b1 answers to c2"),
    (adds, "lac_reached", lambda lac, pushed, committed, *_: adding.lac_reached(lac, pushed, committed),
    "the LAC moves during a change", ALONE | {"bookies": 3, "ack_quorum": 1}, "client.c1.lac"),
    (adds.Adds, "change_ensemble", lambda self, ensemble, effects: CHANGE_ENSEMBLE(self, ensemble, []),
    "nothing is sent again", ONE_COPY | ALONE, "what c1 sends to b2"),
    (adds, "outcome_of_add", lambda code: adding.outcome_of_add(None if code is Code.FENCED else code),
    "a refusal is a failure", ONE_BOOKIE, "client.c1.status"),
    (writer, "to_change_ensemble", lambda status, failed: Next.WRITE if failed else Next.DONE,
    "the ensemble is changed during a recovery", ONE_COPY, "client.c1.status"),
    (writer, "to_close", lambda status, there: Next.DONE if there else Next.WRITE, "the owner closes during a recovery",
    ONE_BOOKIE, "client.c1.status"),
    (writer, "with_changed_ensemble", lambda metadata, ensemble, lac: metadata, "a change that changes nothing",
    ONE_COPY | ALONE, "the metadata that c1 writes"),
    (writer, "closed", lambda metadata, last,
    length: metadata.replace(status=type(metadata.status).CLOSED, last_entry=last), "no length", ONE_BOOKIE | ALONE,
    "the metadata that c1 writes"),
    (recoverer, "marked_in_recovery", lambda metadata: metadata, "the ledger is not marked", ONE_BOOKIE,
    "the metadata that c2 writes"),
    (recoverer, "fencing", always(Verdict.POSITIVE), "nobody has to be fenced", SMALL | LOSSLESS,
    "what c2 sends to b1"),
    (recoverer, "fencing", lambda fenced, *_: Verdict.POSITIVE if len(fenced) > 1 else Verdict.WAITING,
    "all have to be fenced", STRICT | LOSSLESS, "client.c2.status"),
    (recoverer, "confirmed_before", lambda lacs, *_: max(lacs), "recovery starts at the LAC",
    ONE_COPY | AT_ONCE | {"send_limit": 2}, "what c2 sends to b2"),
    (recoverer, "may_read_ahead", lambda entry_id, found, _: entry_id - found <= 1, "one entry is read at a time",
    ONE_BOOKIE | TWO_ENTRIES | {"reads_in_flight": 2}, "client.c2.last_read"),
    (recoverer, "recovery_read", always(Verdict.NEGATIVE), "what is found is not taken", ONE_BOOKIE,
    "client.c2.status"),
    (recoverer, "lac_to_carry", lambda began_at, confirmed, _: confirmed, "the LAC goes on in a recovery",
    ONE_BOOKIE | TWO_ENTRIES | LOSSLESS, "what c2 sends to b1"),
    (recoverer, "may_close", lambda end_known, *_: end_known, "the ledger is closed before entries are written back",
    ONE_BOOKIE, "client.c2.status"),
    (recoverer, "to_close_recovered", always(Next.WRITE), "the ledger is closed on any version",
    ONE_BOOKIE | {"clients": 2}, "client.c2.status"),
    (reading, "ordinary_read", lambda found, *_: Verdict.POSITIVE if found else Verdict.NEGATIVE,
    "a reader believes the first bookie", SMALL | ALONE | {"readers": 1, "message_loss": False},
    "reader.r1: whether it doubts what it was told"),
]  # fmt: skip


FOUND_LATE = {"the LAC goes on in a recovery", "recovery starts at the LAC"}
DAILY = [(m, r, f, c, v) for m, r, f, name, c, v in FAULTS[::3] if name not in FOUND_LATE]


@pytest.mark.parametrize(
    ("module", "rule", "fault", "constants", "variable"),
    campaign_if(lambda row: row not in DAILY, [(m, r, f, c, v) for m, r, f, _, c, v in FAULTS]),
    ids=[row[3] for row in FAULTS],
)
def test_faults_in_roles_are_found(
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    rule: str,
    fault: Callable[..., Any],
    constants: dict[str, Any],
    variable: str,
) -> None:
    monkeypatch.setattr(module, rule, fault)
    found, _, _ = first_found(constants, 6_000)
    assert found is not None and alike(found.variable) == alike(variable), found


def alike(variable: str) -> str:
    """A variable without its numbers: clients are alike, and so are bookies."""
    return "".join(letter for letter in variable if not letter.isdigit())


@pytest.mark.parametrize(
    "protection",
    [
        "fenced_bookies_refuse",
        *campaign_if(
            bool, ["conditional_updates", "recovery_keeps_fragments", "write_back_before_close", "recovery_freezes_lac"]
        ),
    ],
)
def test_roles_without_a_protection_are_found_out(tmp_path: Path, protection: str) -> None:
    constants = ONE_COPY | AT_ONCE if protection == "recovery_keeps_fragments" else ONE_BOOKIE | LOSSLESS | TWO_ENTRIES
    protections = ALL.replace(**{protection: False})
    result = table.every_transition(table.opened(space(tmp_path / "states", **constants)), protections)
    # The metadata service is not one of the roles.
    assert bool(result.differing) is (protection != "conditional_updates")


# -- tables, and reports ----------------------------------------------------------------------------------------------


def test_a_sample_is_the_same_for_a_seed(tmp_path: Path) -> None:
    opened = table.opened(space(tmp_path / "states", edges=False, **ONE_BOOKIE))
    one, again, other = (table.sample(opened, 20, seed) for seed in (3, 3, 4))
    assert one.covered == again.covered != other.covered and not one.differing
    assert one.behaviours <= 20 and one.steps == one.covered.total()
    with pytest.raises(FencepostError, match="holds no steps"):
        table.every_transition(opened)


def test_the_command_follows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = space(tmp_path / "states", **ONE_BOOKIE, **LOSSLESS)
    assert main(["drive", "--states", directory, "--json", str(tmp_path / "result.json")]) == errors.HOLDS
    said = capsys.readouterr().out
    assert said.startswith("FOLLOWS") and "never taken" in said
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["verdict"] == "follows" and result["transitions"]["covered"] == result["transitions"]["table"]


def test_the_command_tells_a_difference_with_its_behaviour(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory, sequence = space(tmp_path / "states", **ONE_BOOKIE, **LOSSLESS), tmp_path / "sequence.txt"
    given = [
        "drive",
        "--protocol",
        "store",
        "--states",
        directory,
        "--without",
        "fenced_bookies_refuse",
        "--sequence",
        str(sequence),
        "--junit",
        str(tmp_path / "r.xml"),
        "--markdown",
        str(tmp_path / "r.md"),
    ]
    assert main(given) == errors.SAFETY_VIOLATED
    said = capsys.readouterr().out
    assert said.startswith("DIFFERS")
    assert (
        "After step 5, bookie_sends_add_fenced_response(b=b1, c=c1):\n  what b1 answers to c1\n    protocol "
        " AddEntryResponse(" in said
    )
    assert "The behaviour: 6 states" in said and "b1 → c1" in said
    assert "participant b1" in sequence.read_text()
    assert "bookie_sends_add_fenced_response" in (tmp_path / "r.xml").read_text().split('<failure message="')[1]
    assert (tmp_path / "r.md").read_text().startswith("## DIFFERS the roles do not")
    assert "```mermaid" in (tmp_path / "r.md").read_text()
    assert main([*given, "--json", "-"]) == errors.SAFETY_VIOLATED
    result = json.loads(capsys.readouterr().out)
    assert (
        result["first"]["step"].startswith("bookie_sends_add_fenced_response(") and len(result["first"]["trace"]) == 6
    )


def test_what_can_not_be_driven_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = written(tmp_path / "other", shipped("ledger-chaining")(), max_depth=3)
    mine = written(tmp_path / "mine", Store(), max_depth=1)
    for given, said in [
        (["--protocol", "bookkeeper", "--states", mine], "there are no roles of bookkeeper: drive store"),
        (["--states", other], "is of ledger-chaining, of which there are no roles"),
        (["--states", str(tmp_path / "none")], "holds no state space"),
        (["--states", mine, "--without", "nothing"], "there is no such protection"),
    ]:
        assert main(["drive", *given]) in (errors.WRONG_OPTIONS, errors.SYSTEM_FAILED)
        assert said in capsys.readouterr().err
    with pytest.raises(SystemFailure, match="no transition was driven"):
        table.must_have_driven(table.every_transition(table.opened(mine)))


# -- parts ------------------------------------------------------------------------------------------------------------


def test_write_sets_are_the_same_in_the_order_of_the_store() -> None:
    protocol = Store(bookies=4, ensemble_size=3)
    for entry_id in range(1, 7):
        result = {b.name for b in write_set(entry_id, protocol.bookies[:3], 2)}
        assert result == set(write_set(entry_id - 1, ensemble_of(protocol.bookies[:3]), 2))


def test_a_copy_of_a_role_goes_on_by_itself() -> None:
    driver = Driver(Store(**ONE_COPY))
    row, system = driver.begin()
    for name in ("client_creates_ledger", "client_sends_add_entry_requests"):
        root = driver.actions[name, "c=c1"]
        row = driver.step(system, row, root, next(iter(driver.outcomes(root, row).values())))
    role = system.roles["c1"]
    before, copy = repr_of(role), copied(role)
    assert repr_of(copy) == before
    fork = system.fork()
    fork.call("c1", "close")
    assert repr_of(role) == before and fork.roles["c1"] is not role


def repr_of(role: Any) -> str:
    """A role without its sources of numbers."""
    return repr({name: value for name, value in vars(role).items() if name not in ("txns", "adds")}) + repr(
        role.adds.pending
    )
