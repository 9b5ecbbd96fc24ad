"""The settings of a bookie: a TOML file, and one line about what is wrong in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fencepost.errors import OptionError
from fencepost.ledger.autorecovery.settings import AutoRecoverySettings
from fencepost.ledger.bookie.settings import BookieSettings
from fencepost.ledger.settings import FileOfSettings, described
from fencepost.metadata.settings import MetadataSettings


def test_a_file_is_read_and_the_command_line_comes_before_it(tmp_path: Path) -> None:
    file = tmp_path / "bookie.toml"
    file.write_text('bookiePort = 3182\nledgerDirectories = ["/data/1"]\njournalMaxGroupWaitMSec = 1.5\n')
    settings = BookieSettings.read(file, {"bookiePort": 3183})
    assert (settings.bookie_port, settings.ledger_directories, settings.journal_max_group_wait_msec) == (
        3183,
        ("/data/1",),
        1.5,
    )
    assert settings.zk_timeout == 10_000


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("bookiePrt = 1", "there is no setting bookiePrt: did you mean bookiePort?"),
        ("zzz = 1", "there is no setting zzz: fencepost bookie --help lists them"),
        ("bookiePort = 70_000", "bookiePort: expected `int` <= 65535"),
        ('bookiePort = "3181"', "bookiePort: expected `int`, got `str`"),
        ('tlsKeyStore = "key.pem"', "TLS needs tlsCertificatePath and tlsKeyStore: set tlsCertificatePath too"),
        ("tlsClientAuthentication = true", "tlsClientAuthentication is for TLS"),
        ("tlsRequired = true", "tlsRequired needs TLS: set tlsCertificatePath and tlsKeyStore too"),
        ("diskUsageLwmThreshold = 0.99", "diskUsageLwmThreshold is above diskUsageThreshold: give at most 0.95"),
        ("bookiePort = ", "are no TOML"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "bookie.toml"
    file.write_text(text)
    with pytest.raises(OptionError) as raised:
        BookieSettings.read(file)
    assert complaint in str(raised.value) and str(file) in str(raised.value) and "\n" not in str(raised.value)


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot be read: No such file"):
        BookieSettings.read(tmp_path / "none.toml")


def test_every_setting_is_described() -> None:
    assert len(described(BookieSettings)) == len(BookieSettings.__struct_fields__)
    assert all(setting.purpose for setting in described(BookieSettings))


@pytest.mark.parametrize("kind", [BookieSettings, AutoRecoverySettings, MetadataSettings])
def test_every_number_has_a_unit_and_nothing_else_has_one(kind: type[FileOfSettings]) -> None:
    for setting in described(kind):
        is_number = type(json.loads(setting.default)) in (int, float)
        assert is_number == bool(setting.unit), setting


def test_the_storage_gets_what_is_set_for_it() -> None:
    storage = BookieSettings.of({"flushInterval": 77}).of_storage("journal", "ledgers")
    assert (storage.journal_directory, storage.ledger_directory, storage.flush_interval) == ("journal", "ledgers", 77)
