"""The version of Fencepost, in a module that imports nothing."""

VERSION = "0.1.0"
