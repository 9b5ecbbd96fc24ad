"""TLA+ as a modelling language: what an engine asks about a :class:`fencepost.tla.protocol.TlaModel`."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from fencepost.errors import LIVENESS_VIOLATED
from fencepost.files.digest import running
from fencepost.language import loading
from fencepost.language.constants import Symmetric
from fencepost.language.context import UNSET
from fencepost.language.declarations import INITIALLY, JUDGED, TEMPORAL, Declared
from fencepost.language.seam import Language, Model
from fencepost.language.values import ModelValue, Value
from fencepost.semantics import Stepper
from fencepost.tla import layout, order, pluscal, questions
from fencepost.tla.configured import expression_of, unused
from fencepost.tla.held import decoded, part
from fencepost.tla.protocol import TlaDeclared, TlaModel
from fencepost.tla.traces import whole_states


class Tla(Language):
    """The language of specifications in TLA+."""

    counts_as_tlc = True
    exit_codes: ClassVar[Mapping[str, int]] = {"step_invariant": LIVENESS_VIOLATED, INITIALLY: LIVENESS_VIOLATED}
    has_trusted_symmetry = True
    trusts_views = True
    steps_know_changes = True

    def declarations(self, model: TlaModel) -> Mapping[str, Declared]:
        return {each.name: each for each in model.every_declaration}

    def digest(self, model: TlaModel) -> str:
        whole = running()
        for name, content in sorted(model.file.specification.files.items()):
            whole.update(f"{os.path.basename(name)} {len(content)} ".encode())
            whole.update(content)
        whole.update(model.setup.text + repr(model.definitions).encode() + model.setup.outside)
        return str(whole.hexdigest())

    def home(self, model: TlaModel) -> str:
        return os.path.abspath(model.file.path)

    def arguments(self, model: TlaModel) -> list[str]:
        return _words(model, str)

    def words(self, model: TlaModel) -> list[str]:
        return _words(model, os.path.abspath)

    def packed(self, model: TlaModel) -> bytes:
        laid_out = None if model is model.whole else model.shapes
        return pickle.dumps((self.words(model), order.known(), model.setup.outside, pickle.dumps(laid_out)))

    def unpacked(self, content: bytes) -> Model:
        words, known, outside, variables = pickle.loads(content)
        order.use(known)  # before there are values to be sorted
        model = loading.given(words)
        assert isinstance(model, TlaModel)
        if model.setup.outside != outside:
            raise ValueError(f"{model.name} reads other files, or another environment, in another process")
        laid_out = pickle.loads(variables)
        return model if laid_out is None else model.laid_out(laid_out)

    def for_search(self, model: TlaModel, deadline: Any) -> TlaModel:
        if "" in model.coarse:
            return model.whole
        states, is_complete = layout.look(Stepper(model, invariants=["none"], deadline=deadline), layout.FIRST_LOOK)
        if is_complete or not states:
            return model
        return model.laid_out(layout.chosen(states, model.shapes, model.coarse))

    def hidden(self, model: TlaModel) -> Collection[str]:
        return model.setup.hidden

    def can_be_coarser(self, model: TlaModel, variable: str) -> bool:
        return variable in model.shapes and model.coarse.isdisjoint({"", variable})

    def coarser(self, model: TlaModel, variable: str) -> TlaModel:
        return model.coarser(variable)

    def options(self, model: TlaModel) -> Mapping[str, Any]:
        asked: dict[str, Any] = {}
        if model.setup.config.deadlock is not False:
            asked["deadlock"] = True
        if self.symmetric(model) and not _is_temporal(model):
            asked["symmetry"] = True
        return asked

    def after_search(self, model: TlaModel, stepper: Stepper) -> TlaModel:
        if model.whole is model:
            return model
        states, _ = layout.look(Stepper(model.whole, ["none"], deadline=stepper.deadline), layout.SECOND_LOOK)
        shapes = layout.settled(layout.chosen(states, model.shapes, model.coarse), stepper.store)
        return model if pickle.dumps(shapes) == pickle.dumps(model.shapes) else model.whole.laid_out(shapes)

    def settled(self, model: TlaModel, stepper: Stepper) -> TlaModel:
        return model.whole.laid_out(layout.settled(model.shapes, stepper.store))

    def running(self, model: TlaModel) -> AbstractContextManager[Any]:
        return questions.answering(questions.constant(model.setup.config))

    def note_level(self, model: TlaModel, level: int, found: int) -> None:
        questions.note_queue(level, found)

    def parts(self, model: TlaModel, name: str) -> Sequence[str]:
        judged = [each.name for kind in JUDGED for each in model.declared(kind)]
        found = [each for each in judged if each == name or each.startswith((f"{name}:", f"{name}#"))]
        return found or [name]

    def notices(self, model: TlaModel) -> list[str]:
        """Translations that are not of the algorithm beside them, values of no constant, a symmetry that is not used,
        and a view that temporal properties do not suit.
        """
        algorithms = (pluscal.algorithm(text, file) for file, text in model.file.specification.files.items())
        found = [each.stale for each in algorithms if each is not None and each.stale]
        found += unused(model.setup.specification, model.setup.config)
        if self.symmetric(model) and _is_temporal(model):
            found.append("SYMMETRY is not used: the configuration has temporal properties, which it does not preserve")
        if _is_temporal(model) and (model.setup.hidden or model.declared("view")):
            found.append(
                "temporal properties are judged as by TLC where a view, or a question about the level, hides a part of"
                " the state: of states that differ in nothing else, only the one found first counts"
            )
        return found

    def symmetric(self, model: TlaModel) -> Mapping[str, Symmetric]:
        return dict.fromkeys(model.setup.symmetric, True)

    def members(self, model: TlaModel, constant: str) -> tuple[ModelValue, ...]:
        return model.setup.symmetric[constant]

    def extended(
        self, model: TlaModel, name: str, holds: Callable[[Any], bool], begin: Callable[[Any], None] | None
    ) -> TlaModel:
        made = model.with_declarations([TlaDeclared("invariant", name, holds, None)])
        if begin is None:
            return made
        return made.with_declarations([TlaDeclared("initial", "begin_here", begin, None)], instead="initial")

    def expression(self, text: str, model: TlaModel) -> Callable[[Any], Value]:
        formula = expression_of(text, model.setup)
        return lambda bound: part(formula(bound.reader, None))

    def traces(self) -> Mapping[str, Callable[[Any], str]]:
        return {"tlc": whole_states}

    def decoded(self, content: bytes, named: Callable[[str, str], Any]) -> Value:
        return decoded(content, named) if content else UNSET


def _is_temporal(model: TlaModel) -> bool:
    return any(model.declared(kind) for kind in TEMPORAL)


def _words(model: TlaModel, path: Callable[[str], str]) -> list[str]:
    words = [path(model.file.path)]
    if model.configuration is not None:
        words += ["--config", path(model.configuration)]
    for name, text in model.definitions.items():
        words += ["-D", f"{name}={text}"]
    for folder in model.file.libraries:
        words += ["--library", path(folder)]
    return words


TLA = Tla()
