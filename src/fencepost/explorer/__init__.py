"""The explorer: steps through a protocol on a web page that this machine serves."""
