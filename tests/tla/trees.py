"""Syntax trees as short text, for tests."""

from __future__ import annotations

from dataclasses import fields

from fencepost.tla import ast, syntax


def module(*lines: str, file: str = "A.tla") -> ast.Module:
    """The module A with these lines."""
    text = "\n".join(["---- MODULE A ----", *lines, "===="])
    return syntax.parse(text.encode(), file)[0]


def expression(text: str) -> ast.Expression:
    """The tree of an expression, which begins in column 6 of line 2."""
    unit = module(f"A == {text}").units[0]
    assert isinstance(unit, ast.Operator)
    return unit.body


def shown(value: object) -> str:
    """A tree with the classes and fields of its nodes, without places: ``Apply(Name(+) [Name(a) Name(b)])``."""
    if isinstance(value, tuple):
        return "[" + " ".join(map(shown, value)) + "]"
    if not isinstance(value, ast.Node):
        return str(value)
    inside = (shown(getattr(value, field.name)) for field in fields(value) if field.name != "place")
    return f"{type(value).__name__}({' '.join(inside)})"


def brief(value: object) -> str:
    """A tree with operators in prefix form: ``(+ a b)``."""
    match value:
        case ast.Apply(operator=operator, arguments=arguments):
            return f"({' '.join([brief(operator), *map(brief, arguments)])})"
        case ast.Name(text=text):
            return text
        case ast.Number(value=number):
            return str(number)
        case ast.Field(record=record, name=name):
            return f"(. {brief(record)} {name})"
        case ast.Index(function=function, arguments=arguments):
            return f"(at {' '.join(map(brief, (function, *arguments)))})"
        case ast.Product(factors=items):
            return f"(\\X {' '.join(map(brief, items))})"
        case ast.Junction(operator=operator, items=items):
            return f"[{' '.join([operator, *map(brief, items)])}]"
        case _:
            return shown(value)
