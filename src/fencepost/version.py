"""The versions of Fencepost and its dependencies. Importing this module imports nothing else."""

VERSION = "0.1.0"

RUNS_ON = (
    "numpy", "numba", "llvmlite", "scipy", "msgspec", "rich", "pyarrow", "duckdb", "sqlglot", "pyspark", "pandas",
    "starlette", "uvicorn", "kazoo", "protobuf", "google-crc32c", "uvloop", "mcp", "pygls",
)  # fmt: skip
"""Distributions whose versions matter: the required ones, then those of the extras."""


def versions() -> list[str]:
    """One line each for Fencepost, Python and the installed distributions, in this order."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    lines = [f"fencepost {VERSION}", f"python {platform.python_version()} ({platform.platform()})"]
    for name in RUNS_ON:
        try:
            lines.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return lines
