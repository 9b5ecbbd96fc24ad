"""An exploration frees its states as soon as it is over, without garbage collection of cycles."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from fencepost import check
from fencepost.checker.engines import embedded, interpreted, reference, simulate
from fencepost.language.loading import shipped


@pytest.mark.parametrize(
    ("engine", "module", "name", "options"),
    [
        ("reference", reference, "Reference", {}),
        ("embedded", embedded, "Workspace", {"workers": 1}),
        ("embedded", embedded, "Embedded", {"workers": 1}),
        ("simulate", simulate, "Simulation", {"workers": 1, "walks": 100}),
        ("auto", interpreted, "Interpreted", {}),
    ],
)
def test_nothing_visited_stays_in_memory(
    engine: str, module: Any, name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[Any]] = []
    kind = getattr(module, name)

    class Watched(kind):  # type: ignore[misc, valid-type]
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            made.append(weakref.ref(self))

    monkeypatch.setattr(module, name, Watched)
    gc.collect()
    gc.disable()
    try:
        result = check(shipped("ledger-chaining")(clients=1), engine=engine, **options)
        assert result.distinct_states
        assert made and all(one() is None for one in made)
    finally:
        gc.enable()
