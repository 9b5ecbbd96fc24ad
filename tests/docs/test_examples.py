"""What the documents say about their examples is true."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from campaigns import campaign_if
from docs.documents import DOCS, EXAMPLES, blocks, documents, run, same, selected
from patience import PATIENCE

from fencepost import Options, Protocol, Result, SearchOptions, check
from fencepost.language.loading import load

# Example, constants, and what TLC found for the TLA+ of the same name (one worker, no symmetry): distinct states and
# depth.
TLC = [
    ("two_phase_tla.py", {"rm": 2}, 56, 8),
    ("two_phase_tla.py", {}, 288, 11),
    ("two_phase_tla.py", {"rm": 4}, 1_568, 14),
    ("quorum_log.py:QuorumLog", {"max_entry": 1}, 753, 9),
    ("quorum_log.py:QuorumLog", {}, 2_970, 14),
    ("quorum_log.py:Viewed", {"max_entry": 1}, 342, 9),
    ("quorum_log.py:Viewed", {}, 1_323, 14),
    ("quorum_log.py:OneInFlight", {"max_entry": 1}, 753, 9),
    ("quorum_log.py:OneInFlight", {}, 1_899, 14),
    ("timeouts.py", {}, 50, 6),
    ("timeouts.py", {"max_entry": 2}, 2_259, 11),
    ("timeouts.py", {"bookies": 3}, 344, 8),
    ("lease.py", {}, 282, 12),
    ("lease.py", {"clients": 3}, 2_180, 17),
]


FORMULAS = ("enters_if_it_can", "in_use_if_asked_for")


def example(given: str, **constants: Any) -> Protocol:
    return load(str(EXAMPLES / given))(**constants)


def checked(given: str, deadlock: bool = False, **constants: Any) -> Result:
    return check(example(given, **constants), engine="embedded", options=Options(deadlock=deadlock))


@pytest.mark.parametrize(("given", "constants", "distinct", "depth"), TLC)
def test_a_port_has_the_counts_of_tlc(given: str, constants: dict[str, Any], distinct: int, depth: int) -> None:
    result = checked(given, **constants).must_hold()
    assert (result.distinct_states, result.depth) == (distinct, depth)


def test_the_numbers_in_the_table_are_those_of_tlc() -> None:
    page = (DOCS / "check/from-tla.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("|") and line.endswith(" |")]
    measured = {f"| {distinct:,} | {depth} |" for _, _, distinct, depth in TLC}
    claimed = {
        f"| {' | '.join(cells[-2:])} |" for r in rows if len(cells := [c.strip() for c in r.strip("|").split("|")]) == 5
    }
    claimed = {c for c in claimed if c[2].isdigit()}
    assert len(claimed) == 9
    assert claimed <= measured


def test_a_level_has_the_count_of_tlc() -> None:
    """With TLC: CONSTRAINT FewEntries Shallow, where Shallow == TLCGet("level") <= 5."""
    assert check(example("quorum_log.py:QuorumLog"), options=SearchOptions(max_depth=5)).distinct_states == 447
    assert "447 states of `QuorumLog`" in " ".join((DOCS / "check/from-tla.md").read_text().split())


@pytest.mark.parametrize(
    ("given", "verdicts"),
    [
        # TLC's for Lock.tla: whether WhoeverWaitsEnters, FreeAgain and QuietAtLast hold.
        ("lock.py:Lock", (False, True, False)),
        ("lock.py:StrongLock", (True, True, False)),
        ("lock.py:ByProcess", (False, True, False)),
        ("lock.py:GoesOn", (False, True, False)),
    ],
)
def test_temporal_properties_have_the_verdicts_of_tlc(given: str, verdicts: tuple[bool, ...]) -> None:
    names = ("whoever_waits_enters", "free_again", "quiet_at_last")
    assert tuple(check(example(given), invariants=[name]).holds for name in names) == verdicts


def test_formulas_of_the_lock_are_judged() -> None:
    verdicts = [check(example("lock.py:Excused"), invariants=[name]).holds for name in FORMULAS]
    assert verdicts == [False, True]


@pytest.mark.parametrize(
    ("stage", "answered", "distinct"),
    [
        ("Prompt", False, 171),
        ("Fair", False, 171),
        ("Patient", True, 171),
        ("Unlucky", False, 330),
        ("Lucky", True, 330),
    ],
)
def test_an_answer_is_a_matter_of_fairness(stage: str, answered: bool, distinct: int) -> None:
    result = checked(f"two_phase_live.py:{stage}")
    assert (result.holds, result.distinct_states) == (answered, distinct)
    assert result.judged == ("prepared_gets_an_answer",) and result.exit_code == (0 if answered else 13)


# -- the tutorial -----------------------------------------------------------------------------------------------------


def test_an_update_is_lost() -> None:
    trace = checked("lost_update.py").must_violate("no_update_is_lost")
    assert len(trace) == 5


@pytest.mark.parametrize(
    ("stage", "constants", "distinct"),
    [
        ("two_phase_1.py", {}, 22),
        ("two_phase_3.py", {}, 68),
        ("two_phase_4.py", {}, 229),
        ("two_phase_4.py", {"lossy": False}, 68),
        ("two_phase.py", {"lossy": False}, 171),
        ("two_phase.py", {"lossy": False, "rms": 3}, 1_581),
    ],
)
def test_a_stage_of_two_phase_commit_holds(stage: str, constants: dict[str, Any], distinct: int) -> None:
    assert checked(stage, **constants).must_hold().distinct_states == distinct


def test_who_is_prepared_gives_up_and_the_others_commit() -> None:
    for stage, constants in (("two_phase_2.py", {}), ("two_phase_3.py", {"impatient": True})):
        trace = checked(stage, **constants).must_violate("consistent")
        assert len(trace) == 8
        # As the tutorial tells it: r2 promises in step 2 and gives up in step 7, the decision falling in step 5.
        assert [
            (i, s.by) for i, s in enumerate(trace.steps, 1) if s.title in ("rm_prepares(r=r2)", "rm_gives_up(r=r2)")
        ] == [
            (2, "r2"),
            (7, "r2"),
        ]
        assert trace.steps[4].action == "tm_commits"


def test_the_step_invariant_can_fail() -> None:
    trace = checked("two_phase_3.py", impatient=True).must_violate("outcomes_are_final")
    assert len(trace) == 8
    assert checked("two_phase_3.py").must_hold()


def test_a_lost_decision_leaves_everybody_waiting() -> None:
    trace = checked("two_phase_4.py", deadlock=True).must_violate("deadlock")
    statuses = {status.name for status in trace.states[-1].variables()["rm"].values()}
    assert statuses == {"PREPARED"}, "the tutorial says that both wait"
    checked("two_phase_3.py").must_hold()


def test_a_vote_is_counted_twice() -> None:
    trace = checked("two_phase_5.py").must_violate("consistent")
    # As the tutorial tells it: r2 votes in steps 1 and 3, and r1 does nothing before the decision in step 5.
    assert [s.by for s in trace.steps[:5]] == ["r2", "tm", "r2", "tm", "tm"]
    assert trace.steps[2].action == "rm_asks_again"


def test_nobody_is_stuck_in_the_end() -> None:
    result = check(example("two_phase.py"), options=Options(deadlock=True)).must_hold()
    assert result.distinct_states == 3_157
    assert check(example("two_phase.py", rms=3)).must_hold().distinct_states == 139_553
    assert "3,157 states become 139,553" in " ".join((DOCS / "check/tutorial.md").read_text().split())


def test_the_tutorials_own_test_can_fail() -> None:
    """The page shows the output of the passing test."""
    program = f"""
import sys, pytest
sys.path.insert(0, {str(EXAMPLES)!r})
import two_phase
two_phase.TwoPhaseCommit.impatient.default = True
options = ["-x", "-q", "-p", "no:cacheprovider", "--rootdir", {str(EXAMPLES)!r}]
sys.exit(pytest.main([*options, {str(EXAMPLES / "test_two_phase.py")!r}]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1
    assert "VIOLATED  consistent" in done.stdout


# -- the engine -------------------------------------------------------------------------------------------------------


def test_smaller_parts_need_fewer_calls_of_python() -> None:
    whole, split = (check(example(f"two_phase_{n}.py", rm=6), engine="embedded").must_hold() for n in ("tla", "split"))
    assert whole.distinct_states == split.distinct_states == 50_816  # as the comment at the end of the original says
    assert whole.depth == split.depth
    said = f"For these 50,816 states that is {split.evaluations:,} calls instead of {whole.evaluations:,}"
    assert said in " ".join((DOCS / "check/engine.md").read_text().split())


# -- the language -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("constants", "distinct"),
    [({}, 87), ({"cuts_allowed": 1}, 531), ({"max_entries": 2}, 975), ({"cuts_allowed": 1, "max_entries": 2}, 7_035)],
)
def test_a_primary_and_its_backups_hold(constants: dict[str, Any], distinct: int) -> None:
    assert check(example("primary_backup.py", **constants)).must_hold().distinct_states == distinct


@pytest.mark.parametrize("given", ["primary_backup.py", "two_phase.py", "two_phase_tla.py"])
def test_configurations_do_what_they_say(given: str) -> None:
    protocol = load(str(EXAMPLES / given))
    for name, configuration in protocol.configurations.items():
        assert check(protocol.configured(name)).verdict == configuration.expect, name


# -- what commands print ----------------------------------------------------------------------------------------------


LONG = {
    "engine.md", "simulator.md", "kraft-kip-853.md", "store.md", "ledger-chaining.md", "bookkeeper-4.13.md",
    "bookkeeper.md", "bookkeeper-boot.md", "validate.md", "log.md", "quorum.md", "command-line.md",
    "tutorial.md", "bookkeeper-limbo.md",
}  # fmt: skip
"""Pages whose commands take seconds, because they explore the protocols they describe."""

NEEDED = {"systems.md": ("aiorwlock", "fakeredis", "lupa", "persistqueue", "pysyncobj", "redis")}
"""Libraries that a page needs, and Fencepost does not."""


@pytest.mark.parametrize(
    "document",
    campaign_if(lambda page: page.name in LONG, [page for page in documents() if blocks(page, "console")]),
    ids=lambda page: page.name,
)
def test_commands_print_what_the_document_shows(document: Path) -> None:
    for library in NEEDED.get(document.name, ()):
        pytest.importorskip(library, reason="make systems installs it")
    for command, printed in run(document):
        assert command.output.strip(), f"nothing is shown for {command.line}; run tests/docs/refresh.py"
        assert same(command.output) == same(selected(printed, command.output)), (
            f"{command.block}: if it is right, run tests/docs/refresh.py"
        )
