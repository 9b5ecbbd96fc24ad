from fencepost import TraceWriter

trace = TraceWriter("traces", node="server-1")
trace.emit("leader_appends", subject="log-7", parameters={"index": 4})
trace.close()
