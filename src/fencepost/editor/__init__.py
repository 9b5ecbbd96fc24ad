"""Checks a file again while it is written, for a terminal and for editors. Each check runs in a process of its own."""
