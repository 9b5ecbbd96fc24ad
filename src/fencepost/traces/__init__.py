"""Traces: a system records what it did, event by event, and tools read it. ``docs/hold/traces.md`` has the format.

Three lines write a trace::

    trace = TraceWriter("traces", node="server-1")
    trace.emit("leader_appends", subject="log-7", parameters={"index": 4})
    trace.close()

:func:`read` returns the events, :func:`table` returns them as an Arrow table. Both raise when events are missing. Any
tool that reads Parquet can read the Parquet files of a folder.
"""

from fencepost.traces.event import TraceError, TraceEvent
from fencepost.traces.folder import Folder
from fencepost.traces.reading import read, table
from fencepost.traces.runs import RunsFile
from fencepost.traces.writer import TraceWriter, pack

__all__ = ["Folder", "RunsFile", "TraceError", "TraceEvent", "TraceWriter", "pack", "read", "table"]
