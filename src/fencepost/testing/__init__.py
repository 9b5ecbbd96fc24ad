"""Model-based testing: drives a system of your own along behaviours of its protocol, and tests with pytest."""

from fencepost.testing.decorator import checked
from fencepost.testing.drive import Driven, drive
from fencepost.testing.program import Program

__all__ = ["Driven", "Program", "checked", "drive"]
