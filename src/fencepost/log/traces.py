"""The common parts of the traces of logs, of all their writers: their subjects, and the fields of a list of ledgers."""

from __future__ import annotations

from typing import Any

from fencepost.log.chain import Chain

SUBJECT = "log/"
"""The prefix of subjects of traces that are logs. The name of the log follows."""

SENDS = ("sends_update", "sends_trim", "sends_batch")
"""The actions that tell that an update of the list of ledgers is sent."""


def seen_fields(chain: Chain, version: int) -> dict[str, Any]:
    """The fields of an event that has read a list of ledgers."""
    return {
        "version": version,
        "last": chain.last,
        "length": chain.length,
        "trimmed": chain.trimmed,
        "sealed": chain.sealed,
    }
