"""A validation as plain data, for other processes."""

from __future__ import annotations

from typing import Any

import msgspec

from fencepost.traces.validation import registry
from fencepost.traces.validation.search import MOST_TRIED
from fencepost.traces.validation.validate import Validator


class Request(msgspec.Struct, frozen=True):
    """A validation, in the form that is sent to tasks. ``conformance``: a protocol's name, or a file. ``protocol``,
    ``configuration``: files of a specification in TLA+, if given. ``shuffle``,
    ``last``, ``coverage``, ``states``, ``most_tried``: as the command's options. ``runs``, ``subjects``: those
    requested, empty for all.
    """

    conformance: str
    protocol: str | None = None
    configuration: str | None = None
    shuffle: int | None = None
    last: int = 12
    width: int = 100
    coverage: bool = False
    states: str | None = None
    runs: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    most_tried: int = MOST_TRIED

    def find(self) -> Any:
        """The conformance."""
        return registry.resolve(self.conformance, self.protocol, self.configuration)


_validators: dict[tuple[Any, ...], Validator] = {}
"""The validators of this process, by conformance, and by the most steps that are tried."""


def validator_of(request: Request) -> Validator:
    """This process's validator for a request."""
    key = request.conformance, request.protocol, request.configuration, request.most_tried
    if key not in _validators:
        _validators[key] = Validator(request.find(), most_tried=request.most_tried)
    return _validators[key]
