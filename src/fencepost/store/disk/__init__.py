"""Files of a bookie and their formats, as bytes: pure codecs, shared by the simulator and the servers."""
