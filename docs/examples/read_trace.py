from fencepost.traces import read, table

for event in read("traces"):
    print(event.node, event.action, event.parameter_values())

events = table("traces")  # the same as a pyarrow.Table
