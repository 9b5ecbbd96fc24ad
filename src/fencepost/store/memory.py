"""The memory of a process that takes large blocks all the time, and lets them go again."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_LARGEST = 32 << 20
_KEPT = 1 << 30


def keep_what_is_freed() -> bool:
    """Let the C library keep memory that is freed for what is taken next, in place of giving it back to the operating system.

    What is given back costs a page fault for each 4 KiB when it is taken again, which may be more than all that is done with it. The process
    stays as large as it was at most. False if the C library has no such option.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return all(mallopt(option, value) for option, value in ((_MMAP_THRESHOLD, _LARGEST), (_TRIM_THRESHOLD, _KEPT), (_ARENA_MAX, 1)))
