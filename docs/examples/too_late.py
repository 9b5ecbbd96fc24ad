"""After which steps can the ledger never be closed, and which lost message is the cause?

    python too_late.py DIR ...

Each DIR holds a state space of bookkeeper-4.13 with its steps: fencepost check bookkeeper-4.13 --states DIR --edges
"""

from __future__ import annotations

import sys

import pandas as pd
from pyspark.sql import DataFrame, SparkSession

import fencepost.spark

LOST = "network.lost."


def with_hope(states: DataFrame, edges: DataFrame) -> pd.DataFrame:
    """Every state with its lost messages. ``hope``: the ledger is closed, or some path leads to a state in which it
    is.
    """
    parts = ["meta.status", *(name for name in states.columns if name.startswith(LOST))]
    found = states.select("fingerprint", "depth", *(f"`{name}`" for name in parts)).toPandas()
    steps = edges.select("source", "target").toPandas()
    hope = set(found.fingerprint[found["meta.status"] == "CLOSED"])
    while more := set(steps.source[steps.target.isin(hope)]) - hope:
        hope |= more
    return found.assign(hope=found.fingerprint.isin(hope))


def by_message(found: pd.DataFrame) -> pd.DataFrame:
    """For each kind of message: the number of states in which one is lost, and how many of those have hope."""
    channels = [name for name in found.columns if name.startswith(LOST)]
    lost = found.melt(["fingerprint", "hope"], channels, "channel", "messages")
    lost = lost[lost.messages.notna() & (lost.messages.str.len() > 0)]
    kind, writer = lost.channel.str.extract(r"lost\.(\w+)")[0], lost.channel.str.extract(r"\.(w\d)")[0]
    lost = lost.assign(message=kind + " of " + writer).drop_duplicates(["fingerprint", "message"])
    return lost.groupby("message").hope.agg(states="size", hope="sum").reset_index()


def last_steps(found: pd.DataFrame, edges: DataFrame) -> pd.DataFrame:
    """The steps from a state with hope to one without, by action."""
    hope = found.set_index("fingerprint").hope
    steps = edges.toPandas()
    last = steps[steps.source.map(hope) & ~steps.target.map(hope)]
    return last.groupby("action").size().rename("last_steps").reset_index()


if __name__ == "__main__":
    spark = SparkSession.builder.getOrCreate()
    for space in sys.argv[1:]:
        states, edges = fencepost.spark.states(spark, space), fencepost.spark.edges(spark, space)
        found = with_hope(states, edges)
        print(f"{space}: hope in {found.hope.sum():,} of {len(found):,} states\n")
        print(last_steps(found, edges).to_string(index=False), end="\n\n")
        print(by_message(found).to_string(index=False), end="\n\n")
        by_message(found).to_csv(f"{space}-by-message.csv", index=False)
        found.groupby(["depth", "hope"]).size().unstack(fill_value=0).to_csv(f"{space}-by-depth.csv")
