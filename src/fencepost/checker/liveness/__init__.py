"""Liveness: fairness, strongly connected components, lassos.

`graph` holds the explored graph as arrays, `judge` looks for a fair cycle in it that violates a property, and `lasso`
turns that cycle into steps of the author's Python and holds them against the property once more. Nothing here knows an
engine.
"""
