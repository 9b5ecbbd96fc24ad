"""Loops that Numba compiles, and its cache of them on disk, where each file has a digest.

Numba trusts its files. A flipped bit in machine code could make a loop count wrong, and one elsewhere ends the process
in a traceback. Here a file that does not read as it was written counts as absent, so the loop is compiled again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile

from fencepost.files.digest import intact, with_digest
from fencepost.files.locks import lock


def njit(*given: Any, **kwargs: Any) -> Any:
    """Numba's njit: cached on disk, without the GIL, and without reference counts. It is given signatures or nothing.

    No function compiled here allocates an array or outlives its arguments. Atomic reference counts for every view of
    every row would cost several times as much as the loops. A loop with a signature is compiled for it alone, when its
    module is imported.
    """
    if given and callable(given[0]):
        return njit()(*given)

    def compiled(function: Any) -> Any:
        options = {"nogil": True, "_nrt": False, "error_model": "numpy", "no_cfunc_wrapper": True, **kwargs}
        loop: Any = numba.njit(**options)(function)
        loop._cache = _Cache(function)
        for signature in given:
            loop.compile(signature)
        if given:
            loop.disable_compile()
        return loop

    return compiled


def inner(function: Any) -> Any:
    """As :func:`njit`, for functions that only compiled code calls. Leaving out the wrapper for Python halves the code
    to compile.
    """
    return njit(no_cpython_wrapper=True)(function)


def files_of(loop: Any, types: tuple[Any, ...]) -> list[Path]:
    """The files that hold a loop for arguments of these types. Raises OSError if the cache does not have it."""
    return loop._cache.files(types, loop.targetctx.codegen())  # type: ignore[no-any-return]


class _Cache(FunctionCache):
    def __init__(self, function: Any) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file: Any = _Files(self._cache_path, self._impl.filename_base, stamp)  # type: ignore[no-untyped-call]

    def files(self, types: tuple[Any, ...], codegen: Any) -> list[Path]:
        key = self._index_key(types, codegen)  # type: ignore[no-untyped-call]
        return self._cache_file.files(key)  # type: ignore[no-any-return]


class _Files(IndexDataCacheFile):
    _cache_path: str
    _index_path: str

    def _load_index(self) -> dict[Any, str]:
        return super()._load_index() if intact(self._index_path) else {}  # type: ignore[no-untyped-call]

    def _load_data(self, name: str) -> Any:
        if not intact(self._path(name)):
            raise FileNotFoundError(self._path(name))
        return super()._load_data(name)  # type: ignore[no-untyped-call]

    def save(self, key: Any, data: Any) -> None:
        # Two processes that compile the same loop for different types would write the same file.
        with open(self._path("fencepost-saving.lock"), "ab") as file:
            if sys.platform != "win32":
                lock(file.fileno(), wait=True)
            super().save(key, data)  # type: ignore[no-untyped-call]

    @contextmanager
    def _open_for_write(self, path: str) -> Iterator[BytesIO]:
        content = BytesIO()
        yield content
        with super()._open_for_write(path) as file:
            file.write(with_digest(content.getvalue()))

    def files(self, key: Any) -> list[Path]:
        name = self._load_index().get(key)
        if name is None:
            raise FileNotFoundError(self._index_path)
        return [Path(self._index_path), self._path(name)]

    def _path(self, name: str) -> Path:
        return Path(self._cache_path, name)
