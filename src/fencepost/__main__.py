"""``python -m fencepost`` is ``fencepost``."""

import sys

from fencepost.cli import main

sys.exit(main())
