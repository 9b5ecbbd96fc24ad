"""Becomes a command whose process does not outlive the one that started it: ``python bound.py PARENT COMMAND ...``.

It is run by its path, before any package is imported: Python runs code between fork and exec only at the peril of its
threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    # A process that is paused, or too busy to listen, ends by this signal too.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):  # it was gone before it was bound to
        os._exit(1)
    os.execv(sys.argv[2], sys.argv[2:])
