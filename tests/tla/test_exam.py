"""The exam of published TLA+ models, on a manifest of the test's own and with answers of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.tla.__main__ import main
from bench.tla.exam import Ended, Runner, answer, command
from bench.tla.models import Model, read_models, with_results


def model(name: str, result: str, *counts: int, mode: Any = "exhaustive search") -> dict[str, Any]:
    known = dict(zip(("distinctStates", "totalStates", "stateDepth"), counts, strict=False))
    return {
        "path": f"specifications/Clock/{name}.cfg",
        "runtime": "00:00:01",
        "mode": mode,
        "result": result,
        **known,
    }


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    models = [
        model("Clock", "success", 12, 24, 1),
        model("Large", "success", 5000, 9000, 7),
        model("Refused", "success", 3, 4, 2),
        model("Slow", "success", 3, 4, 2),
        model("Unsafe", "safety failure"),
        model("Unsure", "unknown"),
        model("Walks", "success", mode={"simulate": {"traceCount": 10}}),
        model("Symbolic", "success", mode="symbolic"),
    ]
    folder = tmp_path / "specifications" / "Clock"
    folder.mkdir(parents=True)
    module = {"path": "specifications/Clock/Clock.tla", "features": [], "models": models}
    (folder / "manifest.json").write_text(json.dumps({"modules": [module]}))
    return tmp_path


def found(distinct: int, generated: int, depth: int, length: int | None = None) -> str:
    violation: dict[str, Any] | None = None if length is None else {"trace": [{}] * length}
    return json.dumps(
        {"distinct_states": distinct, "generated_states": generated, "depth": depth, "violation": violation}
    )


ANSWERS = {
    "Clock": Ended(0, found(12, 24, 1), "", 0.5),
    "Large": Ended(0, found(5000, 8999, 7), "", 0.5),
    "Refused": Ended(150, "", "fencepost: Clock.tla:3:4: action composition is not supported\n", 0.1),
    "Slow": Ended(None, "", "", 60.0),
    "Unsafe": Ended(12, found(8, 9, 3, length=3), "", 0.5),
    "Unsure": Ended(0, found(1, 1, 1), "", 0.5),
}


def replies(answers: dict[str, Ended]) -> Any:
    def make(limit: float, options: Sequence[str]) -> Runner:
        return lambda model: answers[model.config.stem]

    return make


def test_models_to_be_searched_exhaustively_are_read(examples: Path) -> None:
    models = read_models(examples)
    assert [m.config.stem for m in models] == ["Clock", "Large", "Refused", "Slow", "Unsafe", "Unsure"]
    assert all(m.module == examples / "specifications/Clock/Clock.tla" for m in models)
    assert [m.published for m in models] == [True] * 4 + [False] * 2


def test_the_table_and_its_closing_lines(examples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(examples)], replies(ANSWERS)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["Clock/Clock", "success", "12", "24", "1", "0.5"]
    assert "8,999 (9,000)" in lines[2]
    assert lines[3].endswith("150: action composition is not supported")
    assert lines[4].endswith("out of time")
    assert lines[5].split()[1:] == ["safety", "8", "9", "3", "0.5"]
    assert lines[8] == (
        "6 models: of 4 with published counts, 2 have equal distinct states and depth, 1 equal generated states, too;"
        " of 2 others, 1 have a known verdict and 1 have an equal one; 0 wrong; 2 refused"
    )
    assert lines[9:] == ["    1  150: action composition is not supported", "    1  out of time"]


@pytest.mark.parametrize("wrong", [Ended(0, found(13, 24, 1), "", 0.5), Ended(12, found(12, 24, 1, 4), "", 0.5)])
def test_a_wrong_answer_is_marked(examples: Path, capsys: pytest.CaptureFixture[str], wrong: Ended) -> None:
    assert main([str(examples), "--only", "Clock.cfg"], replies({"Clock": wrong})) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith("WRONG") and "1 wrong" in lines[3]


def test_some_models_alone(examples: Path, tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    main([str(examples), "--states-at-most", "20", "--json", str(file)], replies(ANSWERS))
    rows = json.loads(file.read_text())
    assert [Path(row["model"]).stem for row in rows] == ["Clock", "Refused", "Slow"]
    assert rows[0]["found"]["counts"] == rows[0]["expected"]["counts"] == {"distinct": 12, "generated": 24, "depth": 1}
    assert rows[1]["refusal"] == "150: action composition is not supported"


def test_results_of_tlc_stand_in_for_published_ones(examples: Path, tmp_path: Path) -> None:
    known = {"verdict": "success", "distinct": 2, "generated": 2, "depth": 1, "complete": True}
    unsafe = {"verdict": "safety failure", "distinct": 7, "generated": 9, "depth": 3, "complete": False}
    rows = [
        {"model": "specifications/Clock/Unsure.cfg", **known},
        {"model": "specifications/Clock/Unsafe.cfg", **unsafe},
        {"model": "specifications/Clock/Clock.cfg", **known},
    ]
    file = tmp_path / "tlc.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in rows))
    models = {m.config.stem: m for m in with_results(read_models(examples), file)}
    assert answer(models["Unsure"], ANSWERS["Unsure"]).wrong
    assert not answer(models["Unsafe"], ANSWERS["Unsafe"]).wrong
    assert not answer(models["Clock"], ANSWERS["Clock"]).wrong


def test_a_crash_is_named_by_its_exception(examples: Path) -> None:
    one = read_models(examples)[0]
    crashed = answer(one, Ended(1, "", "Traceback (most recent call last):\n  File ...\nKeyError: 'x'\n", 0.1))
    assert crashed.refusal == "1: crashed: KeyError: 'x'"


def test_equal_reasons_are_equal(examples: Path) -> None:
    one, two = read_models(examples)[:2]
    said = [f"fencepost: {m.module}:3:1: {m.config} gives no value to N\n" for m in (one, two)]
    reasons = {answer(m, Ended(150, "", text, 0.1)).refusal for m, text in zip((one, two), said, strict=True)}
    assert reasons == {"150: the configuration gives no value to N"}


def missing(tmp_path: Path) -> Model:
    return Model("Missing.cfg", tmp_path, tmp_path / "Missing.py", tmp_path / "Missing.cfg", "success", None, False)


def test_a_model_is_run_by_a_process(tmp_path: Path) -> None:
    ended = command(missing(tmp_path), 60, ())
    assert ended.exit_code == 150 and "Missing.py" in ended.errors


def test_a_process_is_ended_when_its_time_is_over(tmp_path: Path) -> None:
    assert command(missing(tmp_path), 0.001, ()).exit_code is None


def test_a_folder_without_manifests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path)], replies({}))
    assert "there is no specifications/*/manifest.json" in capsys.readouterr().err
