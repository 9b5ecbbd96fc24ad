"""``fencepost ledger export`` and ``import`` on clusters of processes."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import patience
import pytest
from ledger.client.test_ledger_command import command
from ledger.processes import cluster, piped
from object_stores import ObjectStore

if TYPE_CHECKING:
    from s3_server import S3Server

ENTRIES = 5_000
LINES = b"".join(b"%d\n" % number for number in range(ENTRIES))


@pytest.fixture(scope="module")
def uris(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Two clusters, whose ledgers have the same numbers."""
    with cluster(tmp_path_factory.mktemp("one")) as one, cluster(tmp_path_factory.mktemp("other")) as other:
        yield one[0], other[0]


def test_ledgers_go_to_another_cluster(uris: tuple[str, str], tmp_path: Path) -> None:
    one, other = uris
    target = str(tmp_path / "export")
    ledger = command(one, "create", "--digest", "hmac", "--custom", "a=b").strip()
    command(one, "append", ledger, given=LINES)
    empty = command(one, "create").strip()
    assert "is not closed" in command(one, "export", target, code=1)
    said = command(one, "export", ledger, empty, f"file://{target}", "--recover")
    assert f"ledger {ledger}: {ENTRIES:,} entries" in said and f"ledger {empty}: 0 entries, 0 bytes, exported" in said
    # The import is killed as soon as its ledger is there.
    process = piped(other, "ledger", "import", target)
    patience.until(lambda: command(other, "list") or process.poll() is not None, "the ledger")
    process.send_signal(signal.SIGKILL)
    process.wait()
    if "importing" in command(other, "list", "--long"):
        assert "is not imported to its end" in command(other, "recover", ledger, code=151)
        assert "is not imported to its end" in command(other, "export", ledger, str(tmp_path / "half"), code=1)
    moved = [json.loads(line) for line in command(other, "import", target, "--json").splitlines()]
    assert [(each["ledger"], each["number"], each["entries"]) for each in moved] == [
        (int(ledger), int(ledger), ENTRIES),
        (int(empty), int(empty), 0),
    ]
    assert command(other, "read", ledger).encode() == LINES
    shown = [json.loads(command(uri, "show", ledger, "--json")) for uri in uris]
    for each in shown:
        del each["fragments"], each["bookies"]
    assert shown[0] == shown[1]
    assert command(other, "import", target).count("there already") == 2
    # What is exported from there has the same entries, byte for byte.
    again = tmp_path / "again"
    command(other, "export", ledger, str(again))
    for chunk in again.glob("*.entries"):
        assert chunk.read_bytes() == (tmp_path / "export" / chunk.name).read_bytes()
    numbers = str(tmp_path / "numbers")
    said = command(other, "import", target, ledger, "--new-ids", numbers)
    assert f"imported, as ledger {json.loads(Path(numbers).read_text())['ledgers'][ledger]}\n" in said
    assert command(other, "import", target, ledger, "--new-ids", numbers).count("there already") == 1


def test_what_is_typed_wrong(uris: tuple[str, str], tmp_path: Path) -> None:
    one, _ = uris
    assert "has no complete export" in command(one, "import", str(tmp_path), code=153)
    assert "there is no ledger 999" in command(one, "export", "999", str(tmp_path / "x"), code=1)
    assert "cannot be reached" in command(one, "import", "nothing://there", code=153)


def test_ledgers_go_through_an_s3_server(uris: tuple[str, str], s3: S3Server, tmp_path: Path) -> None:
    """The server fails first, and then it has an object with another byte, a shorter one, and none."""
    one, other = uris
    numbers = ("--new-ids", str(tmp_path / "numbers"))
    export = ObjectStore(s3.url("exported"))
    ledger = command(one, "create").strip()
    command(one, "append", ledger, given=LINES)
    s3.fail("error", after=2)
    said = command(one, "export", ledger, export.to, code=153)
    assert said.startswith("fencepost: s3://archive/exported/ledger-") and said.count("\n") == 1, said
    s3.work()
    assert "export.json is missing; export to its end first" in command(other, "import", export.to, *numbers, code=153)
    assert f"ledger {ledger}: {ENTRIES:,} entries" in command(one, "export", ledger, export.to)
    chunks = [path for path in export.paths() if path.endswith(".entries")]
    assert "export.json" in export.paths()
    whole = export.read(chunks[0])
    for damaged, says in (
        (whole[:-1] + bytes([whole[-1] ^ 1]), "is damaged"),
        (whole[:-1], "bytes, and"),
        (None, "is missing"),
    ):
        export.put(chunks[0], damaged)
        assert says in command(other, "import", export.to, *numbers, code=153)
    export.write(chunks[0], whole)
    moved = json.loads(command(other, "import", export.to, *numbers, "--json"))
    assert moved["entries"] == ENTRIES
    assert command(other, "read", str(moved["number"])).encode() == LINES
