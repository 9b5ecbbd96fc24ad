"""Faults in rules: each takes a rule, and gives the one that takes its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rule = Callable[..., Any]


def always(value: Any) -> Callable[[Rule], Rule]:
    """A rule that always gives ``value``."""
    return lambda rule: lambda *args, **kwargs: value


def instead(changed: Rule) -> Callable[[Rule], Rule]:
    """Replaces a rule."""
    return lambda rule: changed
