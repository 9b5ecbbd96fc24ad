"""Runs a command whose process ends with its parent: ``python bound.py PARENT COMMAND ...``.

It runs as a script and imports no package. Python code between fork and exec (``preexec_fn``) is not safe with threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    # This signal also ends a process that is paused or too busy to react.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):  # the parent ended before the line above
        os._exit(1)
    os.execv(sys.argv[2], sys.argv[2:])
