"""Files that last: what is read again is what was written, in a flat folder, or anywhere that a URL names."""
