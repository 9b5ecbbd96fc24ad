"""Reads traces from folders, Parquet files and spools, and checks that no event is missing. Reads records of other
systems, if it is said which events they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fencepost.errors import naming_extra
from fencepost.files import regular
from fencepost.traces import records
from fencepost.traces.event import COLUMNS, STOPPED, TraceError, TraceEvent, named
from fencepost.traces.folder import SPOOL, parsed
from fencepost.traces.foreign import Foreign
from fencepost.traces.spool import Contents

if TYPE_CHECKING:
    import pyarrow as pa

Paths = str | Path | Iterable[str | Path]
Found = TypeVar("Found")

_PARQUET, _FRAMES = ".parquet", ".spool"


def read(paths: Paths, check: bool = True, foreign: Foreign | None = None) -> Iterator[TraceEvent]:
    """The events of folders and files. The events of an incarnation come in the order in which it emitted them.
    ``foreign``: makes events of the records in files of other systems (:func:`files_of_records`); they come last.

    Raises :class:`TraceError` if there is no event, or a file cannot be read or is not a trace. Unless ``check`` is
    False, raises it also for a missing or duplicate event, and for a trace that stopped before its process ended.
    Parquet needs PyArrow (:class:`fencepost.OptionError`). Raises for records as :meth:`Foreign.events`.
    """
    checking, count = _Check() if check else None, 0
    for path, event in _events(paths, foreign):
        count += 1
        if checking is not None:
            checking.see(event, path)
        yield event
    if checking is not None:
        checking.end()
    if not count:
        raise TraceError(nothing_in(paths, foreign))


def _events(paths: Paths, foreign: Foreign | None) -> Iterator[tuple[Path, TraceEvent]]:
    of_records = files_of_records(paths, foreign is not None)
    others = set(of_records)
    for path in files_of(paths):
        if path not in others:
            for event in _either(path, events_of_parquet, events_of_spool):
                yield path, event
    if foreign is not None:
        yield from foreign.events(of_records)


def nothing_in(paths: Paths, foreign: Foreign | None = None) -> str:
    """That there is no event, in words."""
    nothing = f"there is no event in {_listed(paths)}"
    if foreign is None:
        return nothing
    if foreign.records:
        return f"{nothing}: {foreign.name} makes none of {foreign.records:,} records"
    endings = ", ".join(records.ENDINGS)
    return f"{nothing}: records are in files that end in {endings}, perhaps with {records.COMPRESSED}, or {_PARQUET}"


def files_of_records(paths: Paths, are_mapped: bool) -> list[Path]:
    """The files of folders, and those named directly, that have records of other systems: text with one of
    :data:`records.ENDINGS`, and Parquet files without the columns of traces. The files of a folder come in the order
    of their names, numbers in them by their size.

    Unless ``are_mapped``, there are none: raises :class:`TraceError` for a file of text, and for a folder that has
    nothing else. Raises it too if a path does not exist.
    """
    found: dict[Path, Path] = {}
    for each in [paths] if isinstance(paths, str | Path) else paths:
        path = Path(each)
        is_folder = path.is_dir()
        files = sorted(_named_files(path), key=_by_numbers) if is_folder else [path]
        some = [file for file in files if records.ending(file) or (are_mapped and _is_table_of_others(file))]
        if some and not are_mapped and path.exists() and not (is_folder and files_of(path)):
            raise TraceError(
                f"{some[0]} is no trace that Fencepost wrote: a conformance whose `read` maps its records can read it"
            )
        for file in some if are_mapped else ():
            found.setdefault(file.resolve(), file)
    return [*found.values()]


def _named_files(folder: Path) -> Iterator[Path]:
    names = (file for file in folder.iterdir() if not file.name.startswith(("_", ".")) and not file.is_dir())
    return (file for file in names if file.suffix == _PARQUET or records.ending(file))


def _is_table_of_others(path: Path) -> bool:
    """Whether a file is Parquet without the columns of traces."""
    if path.suffix == _FRAMES or not path.exists():
        return False
    with naming_extra(f"reading {path}", "query"):
        from fencepost.traces import parquet
    return bool(parquet.missing_column(path))


def _by_numbers(path: Path) -> list[str | int]:
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", path.name)]


def table(paths: Paths, check: bool = True) -> pa.Table:
    """The same events as an Arrow table with the columns of :class:`TraceEvent`. Raises as :func:`read`."""
    with naming_extra("reading traces as tables", "query"):
        import pyarrow as pa

        from fencepost.traces import parquet
    parts: list[Any] = []
    for path in files_of(paths):
        parts += _either(path, parquet.tables, lambda path: iter([parquet.table_of([*events_of_spool(path)])]))
    whole = pa.concat_tables(parts) if parts else parquet.SCHEMA.empty_table()
    if check:
        _check_table(whole, paths)
    if not whole.num_rows:
        raise TraceError(f"there is no event in {_listed(paths)}")
    return whole


def files_of(paths: Paths) -> list[Path]:
    """The files with events: those of folders, and files named directly. The parts of an incarnation come in order.

    Raises :class:`TraceError` if a path does not exist.
    """
    found: dict[Path, None] = {}
    for each in [paths] if isinstance(paths, str | Path) else paths:
        path = Path(each)
        if path.is_dir():
            # Spools first: one that becomes a Parquet file meanwhile is then listed twice, not missed.
            spools = [*(path / SPOOL).glob(f"*{_FRAMES}")]
            tables = [*path.glob(f"*{_PARQUET}")]
            known = {each.stem for each in tables}
            names = [*tables, *(each for each in spools if each.stem not in known)]
            found |= dict.fromkeys(sorted((name for name in names if not name.name.startswith(("_", "."))), key=_order))
        elif not path.exists():
            raise TraceError(f"there is no trace {path}")
        else:
            found[_regular(path)] = None
    return [*found]


def _regular(path: Path) -> Path:
    try:
        regular.require(path)
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}") from error
    return path


def _order(path: Path) -> tuple[str, int, int]:
    name = parsed(path.name)
    return (path.name, 0, 0) if name is None else (name.stem, name.incarnation, name.part)


def _either(
    path: Path, of_parquet: Callable[[Path], Iterator[Found]], of_spool: Callable[[Path], Iterator[Found]]
) -> Iterator[Found]:
    """The events of a file, by its kind. If a spool has become a Parquet file since it was listed, reads that file."""
    try:
        if path.suffix != _FRAMES:
            yield from of_parquet(path)
            return
        rows = of_spool(path)
        first = next(rows, None)
        if first is not None:
            yield first
            yield from rows
    except FileNotFoundError as error:
        become = path.parent.parent / f"{path.stem}{_PARQUET}"
        if path.suffix != _FRAMES or not become.exists():
            raise TraceError(f"{path} is not there any more") from error
        yield from of_parquet(become)
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror or error}") from error


def events_of_parquet(path: Path) -> Iterator[TraceEvent]:
    """The events of a Parquet file. Raises :class:`TraceError` if it is not a trace, :class:`fencepost.OptionError`
    without PyArrow.
    """
    with naming_extra(f"reading {path}", "query"):
        from fencepost.traces import parquet
    yield from parquet.events(path)


def events_of_spool(path: Path, read: dict[Path, int] | None = None) -> Iterator[TraceEvent]:
    """The events written to a spool so far. ``read``: how many bytes of spools have been read, which it keeps; then
    only the events after these.
    """
    contents = Contents(path, 0 if read is None else read.get(path, 0))
    if contents.origin is None:
        return
    run, node, incarnation, _ = contents.origin
    for seq, actor, action, subject, parameters, state in contents.rows():
        yield TraceEvent(
            run,
            node,
            incarnation,
            seq,
            actor,
            action,
            subject,
            parameters.decode(),
            None if state is None else state.decode(),
        )
    if read is not None:
        read[path] = contents.end


# -- completeness -----------------------------------------------------------------------------------------------------


class _Check:
    """Checks events one after another, and raises at the first one out of sequence."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str, int], int] = {}

    def see(self, event: TraceEvent, path: Path) -> None:
        key = (event.run, event.node, event.incarnation)
        last = self._last.get(key, 0)
        if event.seq != last + 1:
            raise TraceError(f"{path}: {_wrong(last, event.seq)} of {named(*key)}")
        self._last[key] = event.seq
        if event.action == STOPPED:
            raise TraceError(f"{path}: the trace of {named(*key)} stopped with event {event.seq}: {_reason(event)}")

    def end(self) -> None:
        _check_incarnations(self._last)


def _wrong(last: int, seq: int) -> str:
    if seq <= last:
        return f"event {seq} is there after event {last}, twice or out of order,"
    missing = f"events {last + 1} to {seq - 1} are missing" if seq > last + 2 else f"event {last + 1} is missing"
    return f"{missing} in the trace"


def _reason(event: TraceEvent) -> str:
    return str(event.parameter_values().get("reason", "no reason is given"))


def _check_incarnations(keys: Iterable[tuple[str, str, int]]) -> None:
    lives: dict[tuple[str, str], list[int]] = {}
    for run, node, incarnation in keys:
        lives.setdefault((run, node), []).append(incarnation)
    for (run, node), known in lives.items():
        if min(known) < 1 or max(known) != len(known):
            missing = next((number for number in range(1, max(known)) if number not in known), 0)
            raise TraceError(
                f"there is no event of {named(run, node, missing)}, and there are some of incarnation {max(known)}"
            )


def _check_table(whole: pa.Table, paths: Paths) -> None:
    """As :class:`_Check`, for a table. Goes through single events only if something is wrong."""
    import pyarrow.compute as pc

    kinds = ("count", "max", "count_distinct")
    groups = whole.group_by(list(COLUMNS[:3])).aggregate([("seq", kind) for kind in kinds])
    count, highest, different = (groups[f"seq_{kind}"] for kind in kinds)
    is_whole = pc.all(pc.and_(pc.equal(count, highest), pc.equal(count, different)), min_count=0).as_py()
    if not is_whole or pc.any(pc.equal(whole["action"], STOPPED), min_count=0).as_py():
        checking, place = _Check(), Path(_listed(paths))
        in_order = whole.sort_by([(name, "ascending") for name in COLUMNS[:4]])
        for event in map(TraceEvent, *(column.to_pylist() for column in in_order.columns)):
            checking.see(event, place)
    _check_incarnations(zip(*(groups[name].to_pylist() for name in COLUMNS[:3]), strict=True))


def _listed(paths: Paths) -> str:
    return str(paths) if isinstance(paths, str | Path) else ", ".join(map(str, paths))
