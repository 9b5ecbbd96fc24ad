"""Text for people: numbers, sizes and times, what a terminal can show, and tables of a notebook."""
