"""``python -m bench.quorum``: see :mod:`bench.quorum.campaign`."""

from __future__ import annotations

import sys

from bench.quorum.campaign import main

if __name__ == "__main__":
    sys.exit(main())
