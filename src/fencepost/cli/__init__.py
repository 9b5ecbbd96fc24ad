"""The command line: a module for each command, what is typed, what is shown, and how the process ends."""
