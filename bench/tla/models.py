"""The models of a checkout of tlaplus/Examples, and what is known about each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

EXHAUSTIVE = "exhaustive search"
UNKNOWN = "unknown"
VERDICTS = {
    0: "success",
    10: "assumption failure",
    11: "deadlock failure",
    12: "safety failure",
    13: "liveness failure",
}
"""What a manifest calls the verdict of an exit code of TLC."""


@dataclass(frozen=True)
class Counts:
    """How many distinct and generated states a search found, and how many states its longest shortest path has."""

    distinct: int
    generated: int
    depth: int


@dataclass(frozen=True)
class Model:
    """A module and a configuration of it. ``path`` is that of the configuration, from the folder of the examples."""

    path: str
    folder: Path
    """That of the examples. A module may name a file by its path from there."""
    module: Path
    config: Path
    verdict: str
    counts: Counts | None
    """None if no counts are known."""
    published: bool
    """Whether the counts are those of the manifest."""

    @property
    def judged(self) -> bool:
        """Whether anything is known that an answer can be compared with."""
        return self.counts is not None or self.verdict != UNKNOWN


def read_models(examples: Path) -> list[Model]:
    """The models that are to be searched exhaustively, in the order of their paths.

    Raises ``FileNotFoundError`` if the folder holds no manifest.
    """
    manifests = sorted(examples.glob("specifications/*/manifest.json"))
    if not manifests:
        raise FileNotFoundError(f"there is no specifications/*/manifest.json in {examples}")
    found = [model for manifest in manifests for model in _of_manifest(examples, json.loads(manifest.read_text()))]
    return sorted(found, key=lambda model: model.path)


def _of_manifest(examples: Path, manifest: Mapping[str, Any]) -> Iterator[Model]:
    for module in manifest["modules"]:
        for model in module["models"]:
            if model["mode"] != EXHAUSTIVE:
                continue
            counts = None
            if "distinctStates" in model:
                counts = Counts(model["distinctStates"], model["totalStates"], model["stateDepth"])
            yield Model(
                path=model["path"],
                folder=examples,
                module=examples / module["path"],
                config=examples / model["path"],
                verdict=model["result"],
                counts=counts,
                published=counts is not None,
            )


def chosen(models: list[Model], only: list[str], states_at_most: int | None) -> list[Model]:
    """Those whose path matches one of the patterns, if there are any. A pattern may also match a part of the path. With
    ``states_at_most``, those with published counts that are no larger.
    """
    if only:
        models = [m for m in models if any(fnmatch(m.path, one) or fnmatch(m.path, f"*{one}*") for one in only)]
    if states_at_most is not None:
        models = [m for m in models if m.published and m.counts is not None and m.counts.distinct <= states_at_most]
    return models


def with_results(models: list[Model], file: Path) -> list[Model]:
    """The models with what TLC found, for those without published counts. Each line of the file is a JSON object with
    the fields ``model`` (its path), ``verdict``, ``distinct``, ``generated``, ``depth`` and ``complete``.
    """
    rows = {row["model"]: row for row in map(json.loads, file.read_text().splitlines())}
    return [model if model.published else _known(model, rows.get(model.path)) for model in models]


def _known(model: Model, row: Mapping[str, Any] | None) -> Model:
    if row is None or row["verdict"] not in VERDICTS.values():
        return model
    counts = Counts(row["distinct"], row["generated"], row["depth"]) if row["complete"] else None
    return replace(model, verdict=row["verdict"], counts=counts)
