"""The command line: a module for each command, parsing, output, and interrupts."""
