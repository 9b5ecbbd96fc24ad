"""Traces: systems write down what they did, event by event, and others read it. ``docs/hold/traces.md`` has the format.

A system writes with three lines::

    trace = TraceWriter("traces", node="server-1")
    trace.emit("leader_appends", subject="log-7", parameters={"index": 4})
    trace.close()

:func:`read` gives the events again, :func:`table` as an Arrow table; both say so when events are missing. The Parquet
files of a folder can be read by anything that reads Parquet.
"""

from fencepost.traces.event import TraceError, TraceEvent
from fencepost.traces.folder import Folder
from fencepost.traces.reading import read, table
from fencepost.traces.runs import RunsFile
from fencepost.traces.writer import TraceWriter, pack

__all__ = ["Folder", "RunsFile", "TraceError", "TraceEvent", "TraceWriter", "pack", "read", "table"]
