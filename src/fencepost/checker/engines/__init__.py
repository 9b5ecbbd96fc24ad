"""Engines that explore state spaces. They share one interface: a stepper and options in, an exploration out."""
