"""What traces of logs have in common, whoever writes them: their subjects, and how they tell of a list of ledgers."""

from __future__ import annotations

from typing import Any

from fencepost.log.chain import Chain

SUBJECT = "log/"
"""What the subjects of traces begin with that are logs. The name of the log follows."""

SENDS = ("sends_update", "sends_trim", "sends_batch")
"""The actions that tell that an update of the list of ledgers is sent."""


def seen_fields(chain: Chain, version: int) -> dict[str, Any]:
    """What is told of a list of ledgers that was read."""
    return {
        "version": version,
        "last": chain.last,
        "length": chain.length,
        "trimmed": chain.trimmed,
        "sealed": chain.sealed,
    }
