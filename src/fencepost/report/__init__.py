"""Reports of behaviours and results: terminal text, sequence diagrams, JSON and HTML pages."""
