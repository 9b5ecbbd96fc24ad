"""Building blocks of the loops: compilation, unaligned loads and stores, copies, CRC32C by instruction where the
processor has one, and CRC32 by tables.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fencepost.files.loops import inner, njit

# -- memory -----------------------------------------------------------------------------------------------------------
#
# Bytes are arrays of uint8. These functions check no bounds: the calling loop does.


def _pointer(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    """The address of a byte of an array."""
    return builder.gep(context.make_array(kind)(context, builder, array).data, [at])


def _load(bits: int, swapped: bool) -> Any:
    @intrinsic
    def load(typing: Any, array: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            word = ir.IntType(bits)
            pointer = _pointer(context, builder, signature.args[0], *args)
            value = builder.load(builder.bitcast(pointer, word.as_pointer()), align=1)
            value = builder.bswap(value) if swapped else value
            return value if bits == 64 else builder.sext(value, ir.IntType(64))

        return types.int64(array, types.int64), generate

    return load


def _store(bits: int) -> Any:
    @intrinsic
    def store(typing: Any, array: Any, at: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array, at, value = args
            word = ir.IntType(bits)
            pointer = _pointer(context, builder, signature.args[0], array, at)
            value = value if bits == 64 else builder.trunc(value, word)
            builder.store(builder.bswap(value), builder.bitcast(pointer, word.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(array, types.int64, types.int64), generate

    return store


load_word = _load(64, swapped=False)
"""``load_word(bytes, at)``: 8 bytes in native byte order."""
load_int64 = _load(64, swapped=True)
"""``load_int64(bytes, at)``: 8 bytes, big endian, signed."""
load_int32 = _load(32, swapped=True)
"""``load_int32(bytes, at)``: 4 bytes, big endian, signed."""
store_int64 = _store(64)
"""``store_int64(bytes, at, value)``: 8 bytes, big endian."""
store_int32 = _store(32)
"""``store_int32(bytes, at, value)``: 4 bytes, big endian."""


@intrinsic
def copy(typing: Any, target: Any, at: Any, source: Any, start: Any, size: Any) -> Any:
    """``copy(target, at, source, start, size)``: copy bytes between arrays that do not overlap."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, at, source, start, size = args
        to = _pointer(context, builder, signature.args[0], target, at)
        cgutils.raw_memcpy(builder, to, _pointer(context, builder, signature.args[2], source, start), size, 1)
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


@intrinsic
def address(typing: Any, array: Any) -> Any:
    """``address(array)``: the memory address of an array's first byte, valid while the array is referenced."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.int64(array), generate


@intrinsic
def copy_from(typing: Any, target: Any, at: Any, source: Any, size: Any) -> Any:
    """``copy_from(target, at, source, size)``: copy bytes from an address in memory into an array."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, at, source, size = args
        to = _pointer(context, builder, signature.args[0], target, at)
        cgutils.raw_memcpy(builder, to, builder.inttoptr(source, to.type), size, 1)
        return context.get_dummy_value()

    return types.void(target, types.int64, types.int64, types.int64), generate


# -- CRC32C -----------------------------------------------------------------------------------------------------------

_NAMES = {
    "x86": {8: "llvm.x86.sse42.crc32.32.8", 64: "llvm.x86.sse42.crc32.64.64"},
    "arm": {8: "llvm.aarch64.crc32cb", 64: "llvm.aarch64.crc32cx"},
}


def _instructions() -> dict[int, str] | None:
    """The CRC32C instructions for 1 and for 8 bytes; None if the processor has none."""
    features, kind = binding.get_host_cpu_features(), binding.get_process_triple().split("-")[0]
    if kind == "x86_64" and features.get("sse4.2"):
        return _NAMES["x86"]
    return _NAMES["arm"] if kind == "aarch64" and features.get("crc") else None


def _by_instruction(name: str, bits: int) -> Any:
    @intrinsic
    def step(typing: Any, crc: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            crc, value = args
            is_wide = name == _NAMES["x86"][64]
            state, operand = ir.IntType(64 if is_wide else 32), ir.IntType(32 if name == _NAMES["arm"][8] else bits)
            function = builder.module.declare_intrinsic(name, (), ir.FunctionType(state, [state, operand]))
            crc = crc if is_wide else builder.trunc(crc, state)
            value = value if operand.width == 64 else builder.trunc(value, operand)
            after = builder.call(function, [crc, value])
            return after if is_wide else builder.zext(after, ir.IntType(64))

        return types.int64(types.int64, types.int64), generate

    return step


def _table() -> Any:
    """The CRC32C table, by byte."""
    table = np.arange(256, dtype=np.int64)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ 0x82F63B78, table >> 1)
    return table


_TABLE = _table()


def _byte_by_table(crc, value):
    return (crc >> 8) ^ _TABLE[(crc ^ value) & 0xFF]


def _word_by_table(crc, word):
    for _ in range(8):
        crc = _byte_by_table_compiled(crc, word & 0xFF)
        word >>= 8
    return crc


_byte_by_table_compiled = njit(inline="always")(_byte_by_table)
_word_by_table_compiled = inner(_word_by_table)
_found = _instructions()
_byte = _by_instruction(_found[8], 8) if _found else _byte_by_table_compiled
_word = _by_instruction(_found[64], 64) if _found else _word_by_table_compiled


_LONG, _SHORT = 4096, 256
"""Bytes per strand. Three strands are processed in parallel: the instruction takes three cycles, and one can start in
each.
"""


def _times(matrix, values):
    """The products of a bit matrix, by columns, with vectors."""
    found = np.zeros_like(values)
    for bit in range(32):
        found ^= np.where(values >> bit & 1, matrix[bit], 0)
    return found


def _after_zeros(size):
    """The effect of ``size`` zero bytes, a power of two, on a CRC32C: a table for each of its four bytes."""
    bits = np.int64(1) << np.arange(32)
    matrix = (bits >> 8) ^ _TABLE[bits & 0xFF]
    while size > 1:
        matrix, size = _times(matrix, matrix), size // 2
    return np.stack([_times(matrix, np.arange(256) << 8 * byte) for byte in range(4)])


_AFTER_LONG, _AFTER_SHORT = _after_zeros(_LONG), _after_zeros(_SHORT)


@inner
def _shifted(table, crc):
    return (
        table[0, crc & 0xFF] ^ table[1, (crc >> 8) & 0xFF] ^ table[2, (crc >> 16) & 0xFF] ^ table[3, (crc >> 24) & 0xFF]
    )


@inner
def _three_strands(data, at, size, crc):
    """The state after three strands of ``size`` bytes each."""
    second, third = np.int64(0), np.int64(0)
    for step in range(at, at + size, 8):
        crc = _word(crc, load_word(data, step))
        second = _word(second, load_word(data, step + size))
        third = _word(third, load_word(data, step + 2 * size))
    if size == _LONG:
        return _shifted(_AFTER_LONG, _shifted(_AFTER_LONG, crc) ^ second) ^ third
    return _shifted(_AFTER_SHORT, _shifted(_AFTER_SHORT, crc) ^ second) ^ third


@njit
def crc32c(data, start, stop, before):
    """The CRC32C of ``data[start:stop]`` after data with the CRC32C ``before``."""
    crc = before ^ 0xFFFFFFFF
    at = start
    while at + 3 * _LONG <= stop:
        crc = _three_strands(data, at, _LONG, crc)
        at += 3 * _LONG
    while at + 3 * _SHORT <= stop:
        crc = _three_strands(data, at, _SHORT, crc)
        at += 3 * _SHORT
    while at + 8 <= stop:
        crc = _word(crc, load_word(data, at))
        at += 8
    while at < stop:
        crc = _byte(crc, np.int64(data[at]))
        at += 1
    return crc ^ 0xFFFFFFFF


# -- CRC32 ------------------------------------------------------------------------------------------------------------


def _tables_of_crc32(count):
    """Tables for slicing: entry (n, b) is the CRC32 effect of byte b followed by n bytes, for n below ``count``."""
    table = np.arange(256, dtype=np.int64)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ 0xEDB88320, table >> 1)
    tables = [table]
    for _ in range(count - 1):
        tables.append((tables[-1] >> 8) ^ table[tables[-1] & 0xFF])
    return np.stack(tables).astype(np.uint32)


_TABLES_OF_CRC32 = _tables_of_crc32(16)


@inner
def _four_bytes(word, first):
    """The CRC32 effect of four bytes. ``first``: how far the first one is from the last of the sixteen."""
    tables = _TABLES_OF_CRC32
    return (
        tables[first, word & 0xFF] ^ tables[first - 1, (word >> 8) & 0xFF] ^ tables[first - 2,
        (word >> 16) & 0xFF] ^ tables[first - 3, (word >> 24) & 0xFF]
    )  # fmt: skip


@njit
def crc32(data, start, stop, before):
    """The CRC32 of zlib of ``data[start:stop]`` after data with the CRC32 ``before``, 16 bytes at a time."""
    crc = np.int64(before ^ 0xFFFFFFFF)
    at = start
    while at + 16 <= stop:
        low, high = load_word(data, at) ^ crc, load_word(data, at + 8)
        crc = np.int64(
            _four_bytes(low, 15) ^ _four_bytes(low >> 32, 11) ^ _four_bytes(high, 7) ^ _four_bytes(high >> 32, 3)
        )
        at += 16
    while at < stop:
        crc = (crc >> 8) ^ np.int64(_TABLES_OF_CRC32[0, (crc ^ data[at]) & 0xFF])
        at += 1
    return crc ^ 0xFFFFFFFF
