"""Model-based testing: drives a system of your own along behaviours of its protocol, and tests with pytest."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.testing.decorator import checked
    from fencepost.testing.driving import Driven, drive
    from fencepost.testing.program import Program

__all__ = ["Driven", "Program", "checked", "drive"]

_MODULES = {"Driven": "driving", "Program": "program", "checked": "decorator", "drive": "driving"}


def __getattr__(name: str) -> Any:
    """Import on first use: pytest loads the plugin wherever Fencepost is installed."""
    if name in _MODULES:
        return getattr(import_module(f"fencepost.testing.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'fencepost.testing' has no attribute {name!r}")
