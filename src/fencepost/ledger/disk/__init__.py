"""The storage of a bookie: file formats as pure codecs, the files, and the storage built from both."""
