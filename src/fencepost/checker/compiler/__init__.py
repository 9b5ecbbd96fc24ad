"""Grows decision tries from recorded steps and keeps them as integer tables that compiled loops can walk."""
