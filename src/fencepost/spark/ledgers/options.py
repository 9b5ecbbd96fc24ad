"""Parses the options of ``spark.read.format("fencepost")`` and ``df.write.format("fencepost")``."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from fencepost.errors import OptionError
from fencepost.log.chain import LARGEST, End, Position, position_of
from fencepost.log.metadata import checked_name
from fencepost.spark.ledgers.decoders import decoder_of
from fencepost.text import units

EARLIEST, LATEST = "earliest", "latest"

NAMES = (
    "metadata",
    "ledger",
    "ledgers",
    "log",
    "cursor",
    "startingOffsets",
    "endingOffsets",
    "maxEntriesPerTrigger",
    "maxBytesPerTrigger",
    "maxBytesPerPartition",
    "failOnDataLoss",
    "includeBookies",
    "filterPushdown",
    "decoder",
    "password",
)
"""All options for reading, as users write them. Spark ignores their case."""

WRITE_NAMES = ("metadata", "log", "writeId", "leadTimeout", "failOnDataLoss", "password")
"""All options for writing."""

SPARKS_OWN = ("checkpointLocation", "queryName")
"""Spark's own options for writing a stream."""

PARTITION = 64 * 1024 * 1024
"""The most bytes of a partition, by default."""

_RUN = re.compile(r"(\d{1,19})(?:(-)(\d{1,19})?)?")

_NO_END = "option endingOffsets is earliest, where nothing has been read: give latest, or the entry before which to end"

T = TypeVar("T")


class Run(msgspec.Struct, frozen=True):
    """Ledgers to read: one that must exist (``is_one``), or all existing ones from ``first`` to ``last``."""

    first: int
    last: int
    is_one: bool = False


class Offset(msgspec.Struct, frozen=True):
    """Where to begin or end in each ledger: the next entry by ledger, and EARLIEST or LATEST for all others."""

    otherwise: str
    ledgers: Mapping[int, int | str] = {}

    def of(self, ledger: int, latest: int) -> int:
        """The next entry in a ledger whose entries before ``latest`` can be read."""
        where = self.ledgers.get(ledger, self.otherwise)
        if isinstance(where, int):
            return where
        return latest if where == LATEST else 0


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a read. ``metadata``: the address of the cluster. ``runs``: the ledgers, or else the ``log``, with
    the places to begin and end. docs/run/spark.md describes the others.
    """

    metadata: str
    runs: tuple[Run, ...] = ()
    start: Offset = Offset(EARLIEST)
    end: Offset | None = None
    log: str | None = None
    cursor: str | None = None
    log_start: Position | End = End.EARLIEST
    log_end: Position | End = End.LATEST
    has_end: bool = False
    max_entries: int | None = None
    max_bytes: int | None = None
    partition_bytes: int = PARTITION
    fail_on_data_loss: bool = True
    include_bookies: bool = False
    filter_pushdown: bool = False
    decoder: str | None = None
    password: str = ""


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a write. ``write_id``: names a write that is no stream, so that it is done only once.
    ``lead_timeout``: seconds to wait for the lead of the log. ``fail_on_data_loss``: refuse a log with missing ledgers.
    """

    metadata: str
    log: str
    write_id: str | None = None
    lead_timeout: float = 60.0
    fail_on_data_loss: bool = True
    password: str = ""


def parse_write(options: Mapping[str, str], streams: bool) -> WriteOptions:
    """Parse the options of a write, by names in any case. Raises :class:`fencepost.OptionError`, which names the
    option.
    """
    texts = _by_names({name: text for name, text in options.items() if name.lower() not in _SPARKS_OWN}, WRITE_NAMES)
    if "log" not in texts:
        raise OptionError("option log is missing: give the name of the log that is to be written")
    _checked("log", texts["log"], "a log")
    if "writeId" in texts:
        if streams:
            raise OptionError("option writeId is not for streams: the id in its checkpoint identifies a stream")
        _checked("writeId", texts["writeId"], "a write")
    try:
        lead_timeout = units.seconds(texts.get("leadTimeout", "60"))
    except argparse.ArgumentTypeError as error:
        raise OptionError(f"option leadTimeout: {error}") from None
    return WriteOptions(
        metadata=texts["metadata"],
        log=texts["log"],
        write_id=texts.get("writeId"),
        lead_timeout=lead_timeout,
        fail_on_data_loss=_flag("failOnDataLoss", texts.get("failOnDataLoss", "true")),
        password=texts.get("password", ""),
    )


_SPARKS_OWN = {name.lower() for name in SPARKS_OWN}


def _by_names(options: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """The options by their names in the documentation."""
    known = {name.lower(): name for name in names}
    texts: dict[str, str] = {}
    for name, text in options.items():
        if name.lower() not in known:
            raise OptionError(f"option {name} is not known: there are {', '.join(names)}")
        texts[known[name.lower()]] = text
    if not texts.get("metadata"):
        raise OptionError("option metadata is missing: give the address of the cluster, as zk://127.0.0.1:2181/ledgers")
    return texts


def _checked(option: str, name: str, what: str) -> None:
    try:
        checked_name(name, what)
    except OptionError as error:
        raise OptionError(f"option {option}: {error}") from None


def parse(options: Mapping[str, str]) -> ReadOptions:
    """Parse the options of a read, by names in any case. Raises :class:`fencepost.OptionError`, which names the
    option.
    """
    texts = _by_names(options, NAMES)
    if sum(name in texts for name in ("ledger", "ledgers", "log")) != 1:
        raise OptionError(
            "give one of the options ledger, ledgers and log: an id, ids and ranges of ids as 3,7,10-20,30-, or a name"
        )

    def option(name: str, read: Callable[[str, str], T], default: T) -> T:
        return read(name, texts[name]) if name in texts else default

    if "cursor" in texts and "log" not in texts:
        raise OptionError("option cursor is for logs: ledgers have none")
    what = _of_log(texts) if "log" in texts else _of_ledgers(texts)
    decoder = texts.get("decoder")
    if decoder is not None:
        decoder_of(decoder)
    return ReadOptions(
        metadata=texts["metadata"],
        has_end="endingOffsets" in texts,
        max_entries=option("maxEntriesPerTrigger", _number, None),
        max_bytes=option("maxBytesPerTrigger", _number, None),
        partition_bytes=option("maxBytesPerPartition", _number, PARTITION),
        fail_on_data_loss=option("failOnDataLoss", _flag, True),
        include_bookies=option("includeBookies", _flag, False),
        filter_pushdown=option("filterPushdown", _flag, False),
        decoder=decoder,
        password=texts.get("password", ""),
        **what,
    )


def _of_ledgers(texts: Mapping[str, str]) -> dict[str, Any]:
    """Parse the options for ledgers."""
    chosen = "ledger" if "ledger" in texts else "ledgers"
    runs = _runs(chosen, texts[chosen])
    offsets = {name: _offset(name, texts[name]) for name in ("startingOffsets", "endingOffsets") if name in texts}
    for name, offset in offsets.items():
        for ledger in offset.ledgers:
            if not any(run.first <= ledger <= run.last for run in runs):
                raise OptionError(f"option {name} names ledger {ledger}, which option {chosen} does not ask for")
    end = offsets.get("endingOffsets")
    if end is not None and (end.otherwise == EARLIEST or EARLIEST in end.ledgers.values()):
        raise OptionError(_NO_END)
    return {"runs": runs, "start": offsets.get("startingOffsets", Offset(EARLIEST)), "end": end}


def _of_log(texts: Mapping[str, str]) -> dict[str, Any]:
    """Parse the options for a log."""
    options: dict[str, Any] = {"log": texts["log"]}
    _checked("log", texts["log"], "a log")
    if "cursor" in texts:
        _checked("cursor", texts["cursor"], "a cursor")
        options["cursor"] = texts["cursor"]
    for option, name in (("startingOffsets", "log_start"), ("endingOffsets", "log_end")):
        if option in texts:
            try:
                options[name] = position_of(texts[option])
            except OptionError as error:
                raise OptionError(f"option {option}: {error}") from None
    if options.get("log_end") is End.EARLIEST:
        raise OptionError(_NO_END)
    return options


def _number(name: str, text: str) -> int:
    if not re.fullmatch(r"\d{1,18}", text.strip()) or int(text) == 0:
        raise OptionError(f"option {name} is {text!r}: give a number of 1 or more")
    return int(text)


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise OptionError(f"option {name} is {text!r}: give true or false")
    return text.lower() == "true"


def _runs(name: str, text: str) -> tuple[Run, ...]:
    runs = []
    for word in text.split(","):
        match = _RUN.fullmatch(word.strip())
        if match is None or (name == "ledger" and (match[2] or "," in text)):
            wanted = "the id of one ledger" if name == "ledger" else "ids and ranges of ids as 3,7,10-20,30-"
            raise OptionError(f"option {name} is {text!r}: give {wanted}")
        first = int(match[1])
        last = int(match[3]) if match[3] else LARGEST if match[2] else first
        if last < first or last > LARGEST:
            raise OptionError(f"option {name} has {word.strip()!r}, which is no range of ids")
        runs.append(Run(first, last, is_one=not match[2]))
    return tuple(runs)


def _offset(name: str, text: str) -> Offset:
    if text.lower() in (EARLIEST, LATEST):
        return Offset(text.lower())
    wanted = f'give {EARLIEST}, {LATEST}, or the next entry of each ledger as {{"17": 100, "18": "{LATEST}"}}'
    try:
        content: Any = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise OptionError(f"option {name} is {text!r}: {wanted}")
    ledgers: dict[int, int | str] = {}
    for ledger, entry in content.items():
        is_entry = type(entry) is int and 0 <= entry <= LARGEST
        if not re.fullmatch(r"\d{1,19}", ledger) or not (is_entry or entry in (EARLIEST, LATEST)):
            raise OptionError(f"option {name} has {json.dumps({ledger: entry})}: {wanted}")
        ledgers[int(ledger)] = entry
    return Offset(EARLIEST if name == "startingOffsets" else LATEST, ledgers)
