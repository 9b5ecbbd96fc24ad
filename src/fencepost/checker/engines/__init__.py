"""Explorers of state spaces. One small interface: a stepper and limits in, an exploration out."""
