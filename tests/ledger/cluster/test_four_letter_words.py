"""How a cluster uses the four-letter words of its metadata service."""

from __future__ import annotations

import pytest

from fencepost.ledger.cluster.four_letter_words import registered
from fencepost.ledger.cluster.part import Part, State
from fencepost.ledger.cluster.supervisor import _seen

DUMP = """SessionTracker dump:
Session Sets (1)/(1):
2 expire in 1000 ms:
\t0x1
ephemeral nodes dump:
Sessions with Ephemerals (2):
0x1:
\t/ledgers/available/127.0.0.1:3181
0x2:
\t/ledgers/available/readonly/127.0.0.1:3182
\t/elsewhere/available/127.0.0.1:3183
"""


def test_registered_bookies_are_found_in_a_dump() -> None:
    assert registered(DUMP) == {"127.0.0.1:3181": False, "127.0.0.1:3182": True}
    assert registered("SessionTracker dump:\n") == {}
    assert registered("dump is not executed because it is not in the whitelist.\n") is None
    assert registered(None) is None


@pytest.mark.parametrize(
    ("name", "port", "known", "state"),
    [
        ("1", 3181, {"127.0.0.1:3181": False}, State.SERVES),
        ("1", 3181, {"127.0.0.1:3181": True}, State.READ_ONLY),
        ("1", 3181, {}, State.UNREGISTERED),
        ("1", 3181, None, State.SERVES),
        ("metadata", 2181, {}, State.SERVES),
    ],
)
def test_what_a_part_is_follows_from_that(
    name: str, port: int, known: dict[str, bool] | None, state: State, tmp_path: object
) -> None:
    assert _seen(Part(name, port, (), tmp_path, lambda part: None), known) is state  # type: ignore[arg-type]
