"""Machine instructions that NumPy and Numba do not expose, and `encoding`'s arithmetic compiled to instructions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partialmethod
from inspect import signature
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, lower_builtin, type_callable

import fencepost.checker.compiler.lean_numba  # noqa: F401

_declared: Any = cgutils.get_or_insert_function


def _cell(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """The address of an element. The first two arguments are the array and the index."""
    return builder.gep(context.make_array(sig.args[0])(context, builder, args[0]).data, [args[1]])


@intrinsic
def prefetch(typingctx: Any, array: Any, index: Any) -> Any:
    """Prefetch the cache line that holds ``array[index]`` (flat, in elements)."""
    signature = types.void(array, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        fnty = ir.FunctionType(ir.VoidType(), [byte, ir.IntType(32), ir.IntType(32), ir.IntType(32)])
        fn = _declared(builder.module, fnty, "llvm.prefetch.p0")
        number = ir.IntType(32)
        builder.call(fn, [builder.bitcast(_cell(context, builder, sig, args), byte), number(0), number(3), number(1)])
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def load(typingctx: Any, array: Any, index: Any) -> Any:
    """``array[index]`` of a flat array, for an index known to be in range. Negative indices are not supported."""
    signature = array.dtype(array, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(_cell(context, builder, sig, args))

    return signature, codegen


@intrinsic
def store(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """``array[index] = value`` of a flat array for an index known to be in range."""
    signature = types.void(array, types.intp, array.dtype)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[2], _cell(context, builder, sig, args))
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def find_in_line(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """Search the eight elements from ``index``, one cache line, for ``value`` or 0. Returns the offset of the first
    match, plus 16 if it is a 0; 8 if there is none. One vector comparison, and no branch to mispredict.
    """
    signature = types.int64(array, types.intp, types.uint64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word, byte = ir.IntType(64), ir.IntType(8)
        line = ir.VectorType(word, 8)
        place = builder.bitcast(_cell(context, builder, sig, args), line.as_pointer())
        lanes = builder.load(place, align=8)
        one = builder.insert_element(ir.Constant(line, ir.Undefined), args[2], ir.Constant(ir.IntType(32), 0))
        every = builder.shuffle_vector(
            one, ir.Constant(line, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), 8), [0] * 8)
        )
        equal = builder.bitcast(builder.icmp_unsigned("==", lanes, every), byte)
        empty = builder.bitcast(builder.icmp_unsigned("==", lanes, ir.Constant(line, [0] * 8)), byte)
        either = builder.or_(builder.zext(builder.or_(equal, empty), word), word(256))
        lane = builder.cttz(either, ir.IntType(1)(1))
        is_empty = builder.and_(builder.lshr(builder.zext(empty, word), lane), word(1))
        return builder.or_(lane, builder.shl(is_empty, word(4)))

    return signature, codegen


@intrinsic
def atomic_add(typingctx: Any, array: Any, index: Any, amount: Any) -> Any:
    """Add to an int64 cell shared between threads. Returns its previous value."""
    signature = types.int64(array, types.intp, types.int64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _cell(context, builder, sig, args), args[2], "seq_cst")

    return signature, codegen


@intrinsic
def atomic_load(typingctx: Any, array: Any, index: Any) -> Any:
    """Read an int64 cell that other threads write."""
    signature = types.int64(array, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load_atomic(_cell(context, builder, sig, args), "acquire", 8)

    return signature, codegen


@intrinsic
def yield_processor(typingctx: Any) -> Any:
    """Yield the processor, so that a waiting thread does not keep the one it waits for from running."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        fn = _declared(builder.module, ir.FunctionType(ir.IntType(32), []), "sched_yield")
        builder.call(fn, [])
        return context.get_dummy_value()

    return types.void(), codegen


class _Number:
    """An int64 in code that is being compiled. Arithmetic on it emits the matching instruction."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder = builder
        self.value = value

    def _write(self, instruction: str, other: Any) -> _Number:
        operand = other.value if isinstance(other, _Number) else ir.IntType(64)(other)
        return _Number(self.builder, getattr(self.builder, instruction)(self.value, operand))

    def _compare(self, how: str, other: int) -> _Number:
        return _Number(self.builder, self.builder.icmp_signed(how, self.value, ir.IntType(64)(other)))

    __lshift__ = partialmethod(_write, "shl")
    __rshift__ = partialmethod(_write, "ashr")
    __and__ = partialmethod(_write, "and_")
    __or__ = partialmethod(_write, "or_")
    __add__ = __radd__ = partialmethod(_write, "add")
    __sub__ = partialmethod(_write, "sub")
    __ge__ = partialmethod(_compare, ">=")
    __ne__ = partialmethod(_compare, "!=")  # type: ignore[assignment]

    def __rsub__(self, other: int) -> _Number:
        return _Number(self.builder, self.builder.sub(ir.IntType(64)(other), self.value))


def compile_accessor(function: Callable[..., Any]) -> None:
    """Let compiled loops call a Python function that only does arithmetic on integers.

    Each call runs the function once, on numbers that emit their instructions. Numba would compile it as a separate
    function for every mixture of widths, which adds a tenth to compilation.
    """
    parameters = len(signature(function).parameters)
    result = types.boolean if isinstance(function(*[1] * parameters), bool) else types.int64

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        numbers = (context.cast(builder, arg, kind, types.int64) for arg, kind in zip(args, sig.args, strict=True))
        return function(*(_Number(builder, number) for number in numbers)).value

    lower_builtin(function, *[types.Integer] * parameters)(lower)  # type: ignore[no-untyped-call]
    typers: dict[int, Callable[..., Any]] = {1: lambda one: result, 2: lambda one, two: result}
    typers[3] = lambda one, two, three: result
    type_callable(function)(lambda context: typers[parameters])
