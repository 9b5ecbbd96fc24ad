"""``python -m fencepost`` is ``fencepost``."""

import sys

from fencepost.cli.main import main

sys.exit(main())
