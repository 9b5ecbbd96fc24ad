"""How what came from Pulsar's broker is judged, without a broker: ``python -m interop --only "Pulsar's"`` has one."""

import hashlib
import re
from pathlib import Path

import pytest

from interop.pulsar_broker import KINDS, body, digest, matches

PAGE = Path(__file__).parents[1] / "docs" / "run" / "pulsar.md"


def _came(bodies: list[bytes]) -> dict[str, object]:
    return {"count": len(bodies), "digest": hashlib.sha256(b"".join(bodies)).hexdigest()}


def test_just_what_was_sent_matches() -> None:
    numbers = range(3, 9)
    bodies = [body(number) for number in numbers]
    assert digest(numbers) == _came(bodies)["digest"]
    matches(_came(bodies), numbers)
    for wrong in (
        bodies[:-1],
        [*bodies, bodies[0]],
        [bodies[1], bodies[0], *bodies[2:]],
        [*bodies[:-1], bodies[0]],
        [*bodies[:-1], bytes([bodies[-1][0] ^ 1]) + bodies[-1][1:]],
    ):
        with pytest.raises(AssertionError):
            matches(_came(wrong), numbers)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1000])
def test_bodies_have_their_size_and_differ(size: int) -> None:
    bodies = [body(number, size) for number in range(50)]
    assert {len(each) for each in bodies} == {size}
    assert size < 2 or len(set(bodies)) > 25


def test_the_page_has_every_case() -> None:
    table = re.findall(
        r"^\| (.*?) \|",
        PAGE.read_text().partition("<!-- cases of the broker -->")[2].partition("<!-- end")[0],
        re.MULTILINE,
    )
    first, *others = KINDS.values()
    assert table[1:] == list(first.cases)
    assert all(set(each.cases) <= set(first.cases) for each in others)
    alone = [line for line in PAGE.read_text().splitlines() if "with the first broker alone" in line]
    assert len(alone) == len(first.cases) - len(others[0].cases)
