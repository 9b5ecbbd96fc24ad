"""Memory that is reserved before it is used."""

from __future__ import annotations

import mmap
import sys
from typing import Any

import numpy as np

from fencepost.errors import SystemFailure

PAGES = 1 << 21

# Python names MAP_NORESERVE since 3.13. Every Linux has it.
NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


def reserve(count: int, dtype: Any, large: bool = False) -> np.ndarray[Any, Any]:
    """A zeroed array of ``count`` elements that takes memory only where it is touched.

    ``large``: use huge pages if the system has them. They pay off for arrays that grow large and are read at random.

    Raises :class:`fencepost.SystemFailure` if the system refuses the address space.
    """
    size = max(PAGES, -(-count * np.dtype(dtype).itemsize // PAGES) * PAGES)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE
    try:
        region = mmap.mmap(-1, size, flags=flags)
    except (OSError, ValueError) as error:
        raise SystemFailure(f"the system gives no address space for {size:,} bytes: {error}") from None
    if large and hasattr(mmap, "MADV_HUGEPAGE"):
        region.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(region, dtype=dtype, count=count)
