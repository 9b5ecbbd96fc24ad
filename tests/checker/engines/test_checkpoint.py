"""Searches are killed, and checkpoints truncated, damaged and swapped. A resumed search ends as if nothing had
happened.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from campaigns import campaign_if

from fencepost import EmbeddedOptions, Protocol, Result, SystemFailure, action, check, invariant, require, state
from fencepost.checker.compiler.arrays import Array
from fencepost.checker.engines.checkpoint import CheckpointReader
from fencepost.checker.engines.links import Links
from fencepost.files.digest import sealed
from fencepost.language.loading import load, shipped

SMALL = {"bookies": 2, "write_quorum": 2, "ack_quorum": 1}
"""Ends with a violation after a few thousand states, unless recovery reads fence."""

KILLED = """
import os, signal, sys
from fencepost import EmbeddedOptions, check
from fencepost.checker.engines import checkpoint
from fencepost.language.loading import shipped

directory, where, nth = sys.argv[1], sys.argv[2], int(sys.argv[3])
calls = 0

def deadly(function):
    def call(*args):
        global calls
        calls += 1
        if calls == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args)
    return call

class Os:
    def __getattr__(self, name):
        return deadly(getattr(os, name)) if name == where else getattr(os, name)

checkpoint.os = Os()
options = EmbeddedOptions(workers=2, checkpoint=__import__("pathlib").Path(directory), checkpoint_every=0.0)
print(check(shipped("bookkeeper-4.13")(bookies=2, write_quorum=2, ack_quorum=1, recovery_reads_fence=True),
            engine="embedded", options=options))
"""


def protocol(**constants: object) -> object:
    return shipped("bookkeeper-4.13")(**{**SMALL, "recovery_reads_fence": True, **constants})


def explore(subject: object, **options: object) -> Result:
    return check(subject, engine="embedded", options=EmbeddedOptions(**{"workers": 2, **options}))  # type: ignore[arg-type]


def figures(result: Result) -> tuple[object, ...]:
    trace = [step.title for v in result.violations if v.trace for step in v.trace.steps]
    return (
        result.verdict, result.complete, result.distinct_states, result.generated_states, result.depth, result.actions,
        trace,
    )  # fmt: skip


@pytest.fixture(scope="module")
def uninterrupted() -> Result:
    return explore(protocol())


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The checkpoint of a run that a limit ended."""
    directory = tmp_path / "checkpoint"
    result = explore(protocol(), checkpoint=directory, max_depth=10)
    assert result.verdict == "not complete"
    return directory


@pytest.mark.parametrize(
    ("where", "nth"),
    [("fsync", 7), *campaign_if(bool, [("replace", 8), ("fsync", 9), ("fsync", 40), ("replace", 3)])],
)
def test_a_killed_run_goes_on_to_the_same_end(tmp_path: Path, uninterrupted: Result, where: str, nth: int) -> None:
    directory = tmp_path / "checkpoint"
    run = [sys.executable, "-c", KILLED, str(directory), where, str(nth)]
    died = subprocess.run(run, capture_output=True, text=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert figures(explore(protocol(), resume=directory)) == figures(uninterrupted)


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
@pytest.mark.parametrize("bits", [64, *campaign_if(bool, [128])])
def test_workers_may_change_between_runs(
    tmp_path: Path, uninterrupted: Result, before: int, after: int, bits: int
) -> None:
    directory = tmp_path / "checkpoint"
    explore(protocol(), checkpoint=directory, max_depth=8, workers=before, bits=bits)
    explore(protocol(), resume=directory, max_states=5_000, workers=after, bits=bits)
    assert figures(explore(protocol(), resume=directory, workers=before, bits=bits)) == figures(uninterrupted)


def test_a_violation_after_a_resume_is_told_from_the_initial_state(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoint"
    lossy = {"recovery_reads_fence": False, "ack_quorum": 2}
    explore(protocol(**lossy), checkpoint=directory, max_depth=12)
    resumed = explore(protocol(**lossy), resume=directory)
    assert resumed.verdict == "no_divergence_between_writer_and_meta_data"
    assert figures(resumed) == figures(explore(protocol(**lossy)))


def test_a_finished_run_may_be_resumed(saved: Path, uninterrupted: Result) -> None:
    assert figures(explore(protocol(), resume=saved)) == figures(uninterrupted)
    assert explore(protocol(), resume=saved).distinct_states == uninterrupted.distinct_states


class Raises(Protocol):
    count: int = state(0)

    @action
    def one(self) -> None:
        require(self.count < 9)
        self.count += 1

    @action
    def two(self) -> None:
        require(self.count < 8)
        self.count += 2

    @invariant
    def told(self) -> bool:
        if self.count == 6:
            raise ValueError("not this one")
        return True


def test_what_a_protocol_raised_is_raised_again_after_a_resume(tmp_path: Path) -> None:
    raised = explore(Raises(), checkpoint=tmp_path, checkpoint_every=0.0)
    assert raised.verdict == "raised"
    resumed = explore(Raises(), resume=tmp_path)
    assert (str(resumed.error), figures(resumed)) == (str(raised.error), figures(raised))


def test_a_run_that_saved_only_when_it_was_finished_may_be_resumed(tmp_path: Path, uninterrupted: Result) -> None:
    explore(protocol(), checkpoint=tmp_path, checkpoint_every=1e9)
    assert figures(explore(protocol(), resume=tmp_path)) == figures(uninterrupted)


@pytest.mark.parametrize("name", ["fingerprints.bin", "links.bin", "frontier", "manifest.json"])
def test_a_truncated_checkpoint_is_refused(saved: Path, name: str) -> None:
    file = next(saved.glob(f"{name}*"))
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    refused(saved, "damaged")


def test_any_flipped_bit_is_found_before_anything_is_believed(saved: Path) -> None:
    random = Random(1)
    for file in sorted(saved.glob("*.*")):  # except the lock, which is empty
        whole = file.read_bytes()
        for _ in range(100):
            content = bytearray(whole)
            at = random.randrange(8 * len(content))
            content[at // 8] ^= 1 << at % 8
            file.write_bytes(content)
            with pytest.raises(SystemFailure, match="is damaged|another version"):
                read(saved)
        file.write_bytes(whole)
    read(saved)


@pytest.mark.parametrize("bits", [64, 128])
@pytest.mark.parametrize("name", ["fingerprints.bin", "links.bin", "frontier"])
def test_a_damaged_file_is_refused(tmp_path: Path, bits: int, name: str) -> None:
    saved = tmp_path / "checkpoint"
    explore(protocol(), checkpoint=saved, max_depth=10, bits=bits)
    file = next(saved.glob(f"{name}*"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    refused(saved, f"is damaged: {name}.* is not what was written", bits=bits)


def test_an_edited_manifest_is_refused(saved: Path) -> None:
    manifest = saved / "manifest.json"
    found = json.loads(manifest.read_text())["distinct"]
    manifest.write_text(manifest.read_text().replace(f'"distinct":{found}', f'"distinct":{found + 1}'))
    refused(saved, "is damaged: manifest.json is not what was written")


def test_a_checkpoint_of_another_protocol_is_refused(saved: Path) -> None:
    with pytest.raises(SystemFailure, match="of the protocol bookkeeper-4.13, not of ledger-chaining"):
        fail(shipped("ledger-chaining")(), saved)


def test_a_checkpoint_with_other_constants_is_refused(saved: Path) -> None:
    with pytest.raises(SystemFailure, match="another value of the constant ack_quorum"):
        fail(protocol(ack_quorum=2), saved)


def test_a_checkpoint_of_another_format_is_refused(saved: Path) -> None:
    manifest = json.loads((saved / "manifest.json").read_text())
    (saved / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))
    refused(saved, "another version of Fencepost")


def test_a_checkpoint_of_an_older_file_is_refused(saved: Path) -> None:
    manifest = json.loads((saved / "manifest.json").read_text())
    del manifest["digest"]
    (saved / "manifest.json").write_bytes(sealed(json.dumps({**manifest, "source": "0" * 64}).encode()))
    refused(saved, "another version of bookkeeper-4.13")


def test_parts_of_the_state_that_appeared_late_come_back(tmp_path: Path) -> None:
    """Messages that are remembered, and messages in flight on a topic. KRaft has both."""
    small = shipped("kraft-kip-853").configured("small")
    explore(small, max_depth=20, checkpoint=tmp_path / "saved")
    result = explore(small, resume=tmp_path / "saved")
    assert result.failure is None and result.complete
    assert (result.distinct_states, result.depth) == (11_852, 35)


def test_names_are_those_of_the_protocol_whatever_else_was_loaded(tmp_path: Path) -> None:
    """Every BookKeeper protocol and KRaft have an ``Entry``, and a file loaded twice has each class twice."""
    for name in ("bookkeeper-4.13", "bookkeeper-boot", "kraft-kip-853"):
        shipped(name)
    (tmp_path / "again.py").write_text((Path(__file__).parents[3] / "docs/examples/two_phase.py").read_text())
    first, second = (load(str(tmp_path / "again.py"))() for _ in range(2))
    everything = explore(first).distinct_states
    for n, writer in enumerate((first, second)):
        for m, reader in enumerate((first, second)):
            saved = tmp_path / f"{n}-{m}"
            explore(writer, max_depth=6, checkpoint=saved)
            result = explore(reader, resume=saved)
            assert (result.failure, result.distinct_states) == (None, everything)


def test_a_helper_that_an_action_imports_is_part_of_the_protocol(tmp_path: Path) -> None:
    (tmp_path / "resumed.py").write_text(
        "from fencepost import Protocol, action, require, state\n\nclass Counts(Protocol):\n    n: int = state(0)\n\n"
        "    @action\n    def count(self) -> None:\n        from resumed_below.most import MOST\n"
        "        require(self.n < MOST)\n        self.n += 1\n"
    )
    (tmp_path / "resumed_below").mkdir()
    helper = tmp_path / "resumed_below/most.py"
    helper.write_text("MOST = 9\n")
    subject = load(str(tmp_path / "resumed.py"))()
    explore(subject, checkpoint=tmp_path / "saved", max_depth=5)
    helper.write_text("MOST = 8\n")
    with pytest.raises(SystemFailure, match="another version of counts: its source has changed since"):
        fail(subject, tmp_path / "saved")
    helper.write_text("MOST = 9\n")
    assert explore(subject, resume=tmp_path / "saved").distinct_states == 10


def test_a_refusal_is_one_line_on_the_command_line(saved: Path) -> None:
    words = ["check", "bookkeeper-4.13", "-D", "bookies=2", "-D", "write_quorum=2", "--resume", str(saved)]
    done = subprocess.run([sys.executable, "-m", "fencepost", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 153 and done.stdout.startswith("FAILED")
    assert (
        done.stderr.startswith(f"fencepost: the checkpoint in {saved} was made with") and done.stderr.count("\n") == 1
    )


def test_no_checkpoint_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, "holds no complete checkpoint")


def test_a_checkpoint_is_not_overwritten(saved: Path) -> None:
    result = explore(protocol(), checkpoint=saved)
    assert result.failure is not None and f"go on from it with resume {saved}" in str(result.failure)
    assert result.exit_code == 153


@pytest.mark.campaign
def test_a_full_disk_keeps_the_last_checkpoint_and_the_counts(tmp_path: Path, uninterrupted: Result) -> None:
    directory = tmp_path / "checkpoint"
    full = f"""
import resource, signal, sys
from pathlib import Path
from fencepost import EmbeddedOptions, check
from fencepost.language.loading import shipped
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
protocol = shipped("bookkeeper-4.13")(bookies=2, write_quorum=2, ack_quorum=1, recovery_reads_fence=True)
check(protocol, options=EmbeddedOptions(workers=2))  # so that compiled loops are cached before the limit
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
options = EmbeddedOptions(workers=2, checkpoint=Path({str(directory)!r}), checkpoint_every=0.0)
result = check(protocol, engine="embedded", options=options)
print(result.exit_code, result.distinct_states, result.failure)
"""
    done = subprocess.run([sys.executable, "-c", full], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    code, distinct, message = done.stdout.strip().split(" ", 2)
    assert code == "153" and int(distinct) > 1_000 and "cannot be written" in message
    assert figures(explore(protocol(), resume=directory)) == figures(uninterrupted)


def read(directory: Path) -> None:
    """Everything that a resumed run reads."""
    reader = CheckpointReader(directory)
    for content in (reader.fingerprints, reader.links, reader.frontier):
        for _ in content():
            pass


def refused(directory: Path, why: str, **options: object) -> None:
    copy = directory.parent / "untouched"
    shutil.copytree(directory, copy)
    with pytest.raises(SystemFailure, match=why):
        fail(protocol(), directory, **options)
    assert {f.name: f.read_bytes() for f in copy.iterdir()} == {f.name: f.read_bytes() for f in directory.iterdir()}


def fail(subject: object, directory: Path, **options: object) -> None:
    """Resume, and raise the system failure, if any."""
    failure = explore(subject, resume=directory, **options).failure
    if failure is not None:
        raise failure


def test_a_full_disk_for_links_keeps_the_level_before_and_the_counts(
    tmp_path: Path, uninterrupted: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, levels, directory = Links.add, list[int](), tmp_path / "checkpoint"

    def full(self: Links, log: Array) -> None:
        levels.append(len(log))
        if len(levels) == 10:
            raise SystemFailure("no room for the links between states")
        add(self, log)

    with monkeypatch.context() as patch:
        patch.setattr(Links, "add", full)
        failed = explore(protocol(), checkpoint=directory, checkpoint_every=1e9)
    assert str(failed.failure) == "no room for the links between states" and failed.exit_code == 153
    assert failed.distinct_states == sum(levels) == 1 + sum(action.new_states for action in failed.actions)
    assert figures(explore(protocol(), resume=directory)) == figures(uninterrupted)
