"""Prints the events of one subject of a trace, such as a ledger, with some of their parameters.

python show_trace.py FOLDER SUBJECT PARAMETER ...
"""

import sys

from fencepost.traces import read

folder, subject, *names = sys.argv[1:]
for event in read(folder):
    if event.subject == subject:
        what = event.parameter_values()
        shown = (f"{name}={what[name]}" for name in names if what.get(name) is not None)
        print(f"{event.seq:>4}  {event.action:<17}", *shown)
