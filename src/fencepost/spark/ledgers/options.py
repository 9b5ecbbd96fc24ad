"""The options of ``spark.read.format("fencepost")`` and of ``df.write.format("fencepost")``, from the text that Spark
hands over.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from fencepost.errors import OptionError
from fencepost.log.chain import End, Position, position_of
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
"""All options, as users write them. Spark does not look at their case."""

WRITE_NAMES = ("metadata", "log", "writeId", "leadTimeout", "failOnDataLoss", "password")
"""All options of what is written."""

SPARKS_OWN = ("checkpointLocation", "queryName")
"""Options of a stream that is written which are Spark's own."""

PARTITION = 64 * 1024 * 1024
"""Bytes that a partition has by default, at most."""

_LARGEST = (1 << 63) - 1
"""The largest id of a ledger or an entry."""

_RUN = re.compile(r"(\d{1,19})(?:(-)(\d{1,19})?)?")

_NO_END = "option endingOffsets is earliest, where nothing has been read: give latest, or the entry before which to end"

T = TypeVar("T")


class Run(msgspec.Struct, frozen=True):
    """Ledgers that are wanted: one that has to be there (``is_one``), or all that there are from ``first`` to
    ``last``.
    """

    first: int
    last: int
    is_one: bool = False


class Offset(msgspec.Struct, frozen=True):
    """The place to begin or to end in each ledger: the next entry by ledger, and EARLIEST or LATEST for those that are
    not named.
    """

    otherwise: str
    ledgers: Mapping[int, int | str] = {}

    def of(self, ledger: int, latest: int) -> int:
        """The next entry of a ledger whose entries before ``latest`` can be read."""
        where = self.ledgers.get(ledger, self.otherwise)
        if isinstance(where, int):
            return where
        return latest if where == LATEST else 0


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a read. ``metadata``: the address of the cluster. ``runs``: the ledgers, or else the ``log``, with
    the places to begin and to end. The rest is as users know it, see docs/run/spark.md.
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
    """The log to write to. ``write_id``: the name of a write that is no stream, if it is to be made once only.
    ``lead_timeout``: seconds to wait for leading the log. ``fail_on_data_loss``: write to no log with missing ledgers.
    """

    metadata: str
    log: str
    write_id: str | None = None
    lead_timeout: float = 60.0
    fail_on_data_loss: bool = True
    password: str = ""


def parse_write(given: Mapping[str, str], streams: bool) -> WriteOptions:
    """The options of a write as they were given, by names in any case. Raises :class:`fencepost.OptionError`, which
    names the option.
    """
    texts = _by_names({name: text for name, text in given.items() if name.lower() not in _SPARKS_OWN}, WRITE_NAMES)
    if "log" not in texts:
        raise OptionError("option log is missing: give the name of the log that is to be written")
    _checked("log", texts["log"], "a log")
    if "writeId" in texts:
        if streams:
            raise OptionError(
                "option writeId is for what is no stream: a stream is known by the id that its checkpoint has"
            )
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


def _by_names(given: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """The options by their names as users write them."""
    known = {name.lower(): name for name in names}
    texts: dict[str, str] = {}
    for name, text in given.items():
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


def parse(given: Mapping[str, str]) -> ReadOptions:
    """The options as they were given, by names in any case. Raises :class:`fencepost.OptionError`, which names the
    option.
    """
    texts = _by_names(given, NAMES)
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
    """The options of reading ledgers."""
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
    """The options of reading a log."""
    found: dict[str, Any] = {"log": texts["log"]}
    _checked("log", texts["log"], "a log")
    if "cursor" in texts:
        _checked("cursor", texts["cursor"], "a cursor")
        found["cursor"] = texts["cursor"]
    for option, name in (("startingOffsets", "log_start"), ("endingOffsets", "log_end")):
        if option in texts:
            try:
                found[name] = position_of(texts[option])
            except OptionError as error:
                raise OptionError(f"option {option}: {error}") from None
    if found.get("log_end") is End.EARLIEST:
        raise OptionError(_NO_END)
    return found


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
        found = _RUN.fullmatch(word.strip())
        if found is None or (name == "ledger" and (found[2] or "," in text)):
            wanted = "the id of one ledger" if name == "ledger" else "ids and ranges of ids as 3,7,10-20,30-"
            raise OptionError(f"option {name} is {text!r}: give {wanted}")
        first = int(found[1])
        last = int(found[3]) if found[3] else _LARGEST if found[2] else first
        if last < first or last > _LARGEST:
            raise OptionError(f"option {name} has {word.strip()!r}, which is no range of ids")
        runs.append(Run(first, last, is_one=not found[2]))
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
        is_entry = type(entry) is int and 0 <= entry <= _LARGEST
        if not re.fullmatch(r"\d{1,19}", ledger) or not (is_entry or entry in (EARLIEST, LATEST)):
            raise OptionError(f"option {name} has {json.dumps({ledger: entry})}: {wanted}")
        ledgers[int(ledger)] = entry
    return Offset(EARLIEST if name == "startingOffsets" else LATEST, ledgers)
