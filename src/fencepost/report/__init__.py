"""A behaviour or a result for people: the terminal, sequence diagrams, a page for the browser."""
