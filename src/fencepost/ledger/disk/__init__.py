"""The storage of a bookie: the formats of its files as pure codecs, the layer of files under them, and the storage made
of both.
"""
