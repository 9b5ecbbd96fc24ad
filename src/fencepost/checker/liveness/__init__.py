"""Liveness: fairness, strongly connected components, lassos.

`graph` holds the explored graph as arrays. `judge` searches it for a fair cycle that violates a property. `replayed`
turns that cycle into steps of the author's Python and checks it against the property once more. Nothing here depends on
an engine.
"""
