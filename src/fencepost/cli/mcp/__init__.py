"""Tools for programs that write protocols: a server of the Model Context Protocol on standard input and output."""
