"""The command ``fencepost validate`` with the logs of another system, and what each part of its conformance is for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from docs.documents import EXAMPLES

from fencepost.traces import RunsFile, read
from fencepost.traces.validation import registry
from fencepost.traces.validation.conformance import Event
from fencepost.traces.validation.steps import Step
from fencepost.traces.validation.traces import Traces
from fencepost.traces.validation.validate import Validator
from fencepost.traces.validation.verdict import Verdict

BANK = str(EXAMPLES / "bank_conformance.py")
FAULTS = {
    "hasty": ("action", "is not enabled ... require(self.row.voters == set(self.accounts))"),
    "impatient": ("before", "account.a1.status is PREPARED before, and the trace says ABORTED"),
    "deaf": ("after", "account.a1.status is COMMITTED then, and the trace says PREPARED"),
    "lazy": ("to", "the protocol sends to {a1, a2}, and the trace says to {a1}"),
    "liar": ("tells", "the protocol sends Decision(outcome=COMMITTED, vote=2), and the trace says outcome=ABORTED"),
    "lost": ("receives", "nobody has sent what it receives, or not so often"),
}
"""The faults of the bank, each with the part of a step that finds it, and the reason in words."""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs of a run without a fault, and of one with each."""
    folder = tmp_path_factory.mktemp("logs")
    for fault in ("good", *FAULTS):
        subprocess.run([sys.executable, str(EXAMPLES / "bank.py"), str(folder / fault), fault], check=True)
    (folder / "lost" / "rome.ndjson").unlink()
    arguments = [folder / "good", folder / "tables", folder / "otlp"]
    subprocess.run([sys.executable, str(EXAMPLES / "bank_exports.py"), *map(str, arguments)], check=True)
    return folder


Said = tuple[int, str, str]


def bank(file: str = BANK) -> Any:
    """The conformance of the bank."""
    return registry.from_file(file)


def verdict(path: Path, conformance: Any, shuffle: int | None = None) -> Verdict:
    """The verdict on the only trace of a folder."""
    traces = Traces(read(path, foreign=registry.foreign_of(conformance)))
    ((run, subject),) = traces.names()
    return Validator(conformance).validate(subject, traces.events((run, subject)), shuffle)


def without(part: str) -> Any:
    """The conformance whose steps do not have a part."""
    whole = bank()
    empty = Step(None)

    class Lacking(whole):  # type: ignore[misc, valid-type]
        def steps(self, event: Event) -> Iterator[Step]:
            for step in super().steps(event):
                yield msgspec.structs.replace(step, **{part: getattr(empty, part)})

    return Lacking


def test_any_order_that_causes_allow_is_accepted(logs: Path) -> None:
    for seed in (None, *range(40)):
        assert verdict(logs / "good", bank(), seed).accepted


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_by_a_part_of_a_step(logs: Path, fault: str) -> None:
    part, reason = FAULTS[fault]
    found = verdict(logs / fault, bank())
    assert not found.accepted and found.covered and not found.problem
    assert any(all(text in str(refusal.why) for text in reason.split(" ... ")) for refusal in found.refusals)
    if part != "action":
        lacking = verdict(logs / fault, without(part))
        assert reason not in {refusal.why.reason for refusal in lacking.refusals}
        assert lacking.accepted or fault in ("deaf", "liar", "lost")  # whose later events show it as well


@pytest.mark.parametrize("part", ["picks", "writes", "reads", "may_skip"])
def test_without_a_part_a_correct_run_is_refused(logs: Path, part: str) -> None:
    """In the default order or in another one: what orders steps is needed in some."""
    lacking = without(part)
    assert not all(verdict(logs / "good", lacking, seed).accepted for seed in (None, *range(40)))


# -- the command ------------------------------------------------------------------------------------------------------


def test_records_that_are_no_events_are_counted(said: Callable[..., Said], logs: Path, tmp_path: Path) -> None:
    code, out, _ = said(logs / "good", "--conformance", BANK, "--json", tmp_path / "o.json")
    assert code == 0 and out.endswith("Of 19 records, 2 are no events.\n")
    document = json.loads((tmp_path / "o.json").read_text())
    assert (document["records"], document["no_events"], document["events"]) == (19, 2, 17)
    first = (logs / "good" / "north.ndjson").read_text().splitlines(keepends=True)[:2]
    (tmp_path / "a.ndjson").write_text("".join(first))
    code, out, _ = said(tmp_path / "a.ndjson", "--conformance", BANK)
    assert code == 12 and out.endswith("Of 2 records, 1 is no event.\n")


def test_files_named_one_by_one_are_one_run(said: Callable[..., Said], logs: Path) -> None:
    code, out, _ = said(*sorted((logs / "good").iterdir()), "--conformance", BANK, "--coverage")
    assert code == 0 and out.startswith("ACCEPTED  1 trace\n") and "Coverage of transfer: 5 of 7 actions" in out


def test_folders_are_runs(said: Callable[..., Said], logs: Path) -> None:
    code, out, _ = said(logs / "good", logs / "lazy", "--conformance", BANK, "--run", "lazy")
    assert code == 12 and out.startswith("REJECTED  1 trace\n")


@pytest.mark.parametrize(("folder", "name"), [("tables", "OfTable"), ("otlp", "OfLogs")])
def test_other_formats_give_the_same_trace(logs: Path, folder: str, name: str) -> None:
    other = bank(str(EXAMPLES / f"bank_formats.py:{name}"))
    given, found = (
        [
            msgspec.structs.replace(event, run="")
            for event in sorted(read(logs / each, foreign=registry.foreign_of(of)), key=lambda e: (e.node, e.seq))
        ]
        for each, of in (("good", bank()), (folder, other))
    )
    assert found == given


def test_a_conformance_that_fails_at_a_record_is_told(said: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text('{"level": "debug"}\n{"event": "x"}\n')
    code, out, complaint = said(tmp_path, "--conformance", BANK)
    assert (code, out, complaint.count("\n")) == (75, "", 1)
    assert "a.ndjson:2: Bank.read raised KeyError: level at " in complaint and "bank_conformance_1.py:" in complaint


def test_records_without_read_are_told(said: Callable[..., Said], logs: Path) -> None:
    code, _, complaint = said(logs / "good", "--protocol", "store")
    assert (code, complaint.count("\n")) == (153, 1)
    assert "north.ndjson is no trace that Fencepost wrote: a conformance whose `read` maps its records" in complaint


def test_bad_json_is_told(said: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text('{"level": "debug"}\n{"event": "x"\n')
    code, _, complaint = said(tmp_path, "--conformance", BANK)
    assert (code, complaint.count("\n")) == (153, 1) and "a.ndjson:2: it is no JSON" in complaint


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["tables", "--follow"], "cannot be followed: only lines of JSON can, in files that end in .ndjson or .jsonl"),
        (["s3://logs/a.ndjson"], "records at a URL are not read: copy s3://logs/a.ndjson to this machine"),
    ],
)
def test_what_cannot_be_read_is_refused(
    said: Callable[..., Said], logs: Path, arguments: Sequence[str], complaint: str
) -> None:
    given = [str(logs / each) if each == "tables" else each for each in arguments]
    code, _, told = said(*given, "--conformance", BANK)
    assert (code, told.count("\n")) == (151, 1) and complaint in told


def test_traces_are_still_read_and_followed(said: Callable[..., Said], logs: Path, tmp_path: Path) -> None:
    """By a conformance that could read records."""
    events = [*read(logs / "good", foreign=registry.foreign_of(bank()))]
    with RunsFile(tmp_path / "t.parquet") as file:
        emit = partial(file.emit, "r")
        for event in events:
            emit(event.node, 1, event.seq, event.action, event.subject, event.parameter_values())
    code, out, _ = said(tmp_path, "--conformance", BANK)
    assert code == 0 and "no event" not in out
    assert said(tmp_path, "--conformance", BANK, "--follow", "--for", "0.1")[0] == 152  # nobody says that it ended
