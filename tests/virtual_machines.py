"""How tests start Java."""

from __future__ import annotations

from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of all virtual machines: they run too briefly for optimized compilation to pay."""


def without_archive(folder: Path) -> Path:
    """A home for Spark, in this folder, with all but the archive of PySpark. Its Python processes import the installed
    package, which is compiled. Each of them would compile what it imports from the archive, which takes seconds.
    """
    for each in Path(_find_spark_home()).iterdir():
        if each.name != "python":
            (folder / each.name).symlink_to(each)
    return folder
