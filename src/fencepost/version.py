"""The version of Fencepost, and those of what it runs on, in a module that imports nothing at once."""

VERSION = "0.1.0"

RUNS_ON = (
    "numpy", "numba", "llvmlite", "scipy", "msgspec", "rich", "pyarrow", "duckdb", "sqlglot", "pyspark", "pandas",
    "starlette", "uvicorn", "kazoo", "protobuf", "google-crc32c", "prometheus-client", "uvloop",
)  # fmt: skip
"""Distributions of which the version matters, where they are installed: what is always needed, then the extras."""


def versions() -> list[str]:
    """A line for each: Fencepost first, then Python, and the distributions that are installed."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    lines = [f"fencepost {VERSION}", f"python {platform.python_version()} ({platform.platform()})"]
    for name in RUNS_ON:
        try:
            lines.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return lines
