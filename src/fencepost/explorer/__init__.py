"""The browser: a protocol walked through step by step, on a page of this machine."""
