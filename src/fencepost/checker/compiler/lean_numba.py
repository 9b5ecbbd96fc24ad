"""Imports Numba without the parts that no loop here needs. Import it before the first use of Numba."""

import sys

# Where SciPy is installed, Numba imports its linear algebra, which takes a tenth of a second, for functions that no
# loop here calls. In a process of the command line nothing else calls them either.
if "fencepost.cli.main" in sys.modules and "scipy.linalg" not in sys.modules:
    sys.modules["scipy.linalg"] = None  # type: ignore[assignment]
    import numba.np.arraymath  # noqa: F401

    del sys.modules["scipy.linalg"]
