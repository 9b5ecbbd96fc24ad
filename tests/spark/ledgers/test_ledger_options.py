"""The options of the data source, parsed from text."""

from __future__ import annotations

import pytest

from fencepost import OptionError
from fencepost.spark.ledgers.decoders import decoder_of, type_of
from fencepost.spark.ledgers.options import PARTITION, Offset, Run, WriteOptions, parse, parse_write
from fencepost.spark.ledgers.writing import check_columns

METADATA = {"metadata": "zk://127.0.0.1:2181/ledgers"}


def test_what_is_not_given_has_a_default_and_case_does_not_matter() -> None:
    options = parse({**METADATA, "ledger": "7"})
    assert (options.runs, options.start, options.end) == ((Run(7, 7, is_one=True),), Offset("earliest"), None)
    assert options.fail_on_data_loss and not options.include_bookies and options.partition_bytes == PARTITION
    options = parse(
        {"METADATA": "zk://a/l", "LEDGERS": "3, 10-20,30-", "MAXENTRIESPERTRIGGER": "5", "failondataloss": "False"}
    )
    assert options.runs == (Run(3, 3, is_one=True), Run(10, 20), Run(30, (1 << 63) - 1))
    assert options.max_entries == 5 and not options.fail_on_data_loss


def test_offsets_name_ledgers_or_hold_for_all() -> None:
    given = {"startingOffsets": '{"7": 100, "8": "latest"}', "endingOffsets": '{"7": 200}'}
    options = parse({**METADATA, "ledgers": "7-9", **given})
    assert [options.start.of(ledger, 500) for ledger in (7, 8, 9)] == [100, 500, 0]
    assert options.end is not None and [options.end.of(ledger, 500) for ledger in (7, 9)] == [200, 500]
    assert parse({**METADATA, "ledgers": "7-9", "startingOffsets": "LATEST"}).start.of(7, 500) == 500


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "option metadata is missing: give the address"),
        (METADATA, "give one of the options ledger, ledgers and log"),
        ({**METADATA, "ledger": "1", "ledgers": "2"}, "give one of the options ledger, ledgers and log"),
        ({**METADATA, "log": "a/b"}, "option log: 'a/b' is no name of a log"),
        ({**METADATA, "ledger": "1", "cursor": "c"}, "option cursor is for logs: ledgers have none"),
        ({**METADATA, "log": "a", "cursor": "a b"}, "option cursor: 'a b' is no name of a cursor"),
        ({**METADATA, "log": "a", "startingOffsets": "17"}, "option startingOffsets: position '17': give LEDGER:ENTRY"),
        (
            {**METADATA, "log": "a", "endingOffsets": "earliest"},
            "option endingOffsets is earliest, where nothing has been read",
        ),
        ({**METADATA, "ledger": "1", "ledgr": "2"}, "option ledgr is not known: there are metadata, ledger,"),
        ({**METADATA, "ledger": "1-2"}, "option ledger is '1-2': give the id of one ledger"),
        ({**METADATA, "ledger": "-1"}, "option ledger is '-1'"),
        ({**METADATA, "ledgers": "1,,2"}, "option ledgers is '1,,2': give ids and ranges"),
        ({**METADATA, "ledgers": "1,5-2"}, "option ledgers has '5-2', which is no range"),
        ({**METADATA, "ledger": "9999999999999999999"}, "option ledger has '9999999999999999999', which is no range"),
        (
            {**METADATA, "ledger": "1", "startingOffsets": "first"},
            "option startingOffsets is 'first': give earliest, latest, or",
        ),
        ({**METADATA, "ledger": "1", "startingOffsets": "[1]"}, "option startingOffsets is"),
        ({**METADATA, "ledger": "1", "startingOffsets": '{"1": -2}'}, 'option startingOffsets has {"1": -2}'),
        ({**METADATA, "ledger": "1", "startingOffsets": '{"1": true}'}, 'option startingOffsets has {"1": true}'),
        (
            {**METADATA, "ledger": "1", "startingOffsets": '{"2": 5}'},
            "option startingOffsets names ledger 2, which option ledger does",
        ),
        (
            {**METADATA, "ledger": "1", "endingOffsets": "earliest"},
            "option endingOffsets is earliest, where nothing has been read",
        ),
        (
            {**METADATA, "ledger": "1", "maxEntriesPerTrigger": "0"},
            "option maxEntriesPerTrigger is '0': give a number of 1 or more",
        ),
        ({**METADATA, "ledger": "1", "maxBytesPerTrigger": "1k"}, "option maxBytesPerTrigger is '1k'"),
        ({**METADATA, "ledger": "1", "failOnDataLoss": "no"}, "option failOnDataLoss is 'no': give true or false"),
        ({**METADATA, "ledger": "1", "filterPushdown": "1"}, "option filterPushdown is '1': give true or false"),
        (
            {**METADATA, "ledger": "1", "decoder": "avro"},
            "option decoder is 'avro', which is not known: give utf8, pulsar, or a function",
        ),
        (
            {**METADATA, "ledger": "1", "decoder": "no.such:one"},
            "option decoder is 'no.such:one', which cannot be imported",
        ),
        ({**METADATA, "ledger": "1", "decoder": "math:pi"}, "option decoder is 'math:pi', which is no function"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_line_that_names_the_option(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse(given)
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_decoders_have_a_name_or_a_path() -> None:
    assert (type_of(None), type_of("utf8"), type_of("os.path:basename")) == ("binary", "string", "binary")
    assert decoder_of("os.path.basename") is decoder_of("os.path:basename")


def test_a_write_has_options_of_its_own() -> None:
    given = {**METADATA, "LOG": "orders", "writeid": "w1", "leadTimeout": "2.5", "password": "secret"}
    assert parse_write(given, streams=False) == WriteOptions(
        metadata=METADATA["metadata"], log="orders", write_id="w1", lead_timeout=2.5, password="secret"
    )
    for text, seconds in (("500ms", 0.5), ("2m", 120.0), ("1.5 h", 5400.0)):
        assert parse_write({**METADATA, "log": "a", "leadTimeout": text}, streams=True).lead_timeout == seconds
    assert not parse_write({**METADATA, "log": "a", "failOnDataLoss": "false"}, streams=False).fail_on_data_loss
    sparks = {"checkpointlocation": "/tmp/c", "queryName": "mine"}
    assert parse_write({**METADATA, "log": "orders", **sparks}, streams=True) == WriteOptions(
        metadata=METADATA["metadata"], log="orders"
    )


@pytest.mark.parametrize(
    ("given", "streams", "said"),
    [
        ({"log": "a"}, False, "option metadata is missing"),
        (METADATA, False, "option log is missing: give the name of the log that is to be written"),
        ({**METADATA, "log": "a/b"}, False, "option log: 'a/b' is no name of a log"),
        (
            {**METADATA, "log": "a", "decoder": "utf8"},
            False,
            "option decoder is not known: there are metadata, log, writeId, leadTimeout",
        ),
        ({**METADATA, "log": "a", "writeId": "one two"}, False, "option writeId: 'one two' is no name of a write"),
        (
            {**METADATA, "log": "a", "writeId": "w"},
            True,
            "option writeId is not for streams: the id in its checkpoint identifies a stream",
        ),
        (
            {**METADATA, "log": "a", "leadTimeout": "0"},
            False,
            "option leadTimeout: 0 is too short: give more than 0 seconds",
        ),
        (
            {**METADATA, "log": "a", "leadTimeout": "a minute"},
            True,
            "option leadTimeout: 'a minute' is not a number of seconds",
        ),
    ],
)
def test_options_of_a_write_that_make_no_sense(given: dict[str, str], streams: bool, said: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_write(given, streams)
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_columns_that_are_written_are_data_and_keys() -> None:
    check_columns([("value", "string")])
    check_columns([("key", "binary"), ("value", "binary")])
    for columns, said in (
        (
            [("value", "string"), ("id", "int")],
            "column id cannot be written to a log: there are value, the data of the entries and key, their keys",
        ),
        ([("value", "array<binary>")], r"column value is array<binary>: cast it to binary or string"),
        ([("key", "string")], "there is no column value"),
    ):
        with pytest.raises(OptionError, match=said):
            check_columns(columns)
