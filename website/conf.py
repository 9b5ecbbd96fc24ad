"""How Sphinx makes the site of the pages that :mod:`website.build` has laid out."""

from __future__ import annotations

from typing import Any

project = "Fencepost"
author = "The Fencepost Authors"
copyright = author

extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "index"
suppress_warnings = ["misc.highlighting_failure"]  # of TLA+, which Pygments does not know

# Anchors as a code host makes them, so that a link works in both.
myst_heading_anchors = 6

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_use_type_comments = False
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 100
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "Fencepost"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_theme_options = {
    # System fonts: a page asks no other host for anything.
    "light_css_variables": {"color-brand-primary": "#2f55d4", "color-brand-content": "#2f55d4"},
    "dark_css_variables": {"color-brand-primary": "#7f9dff", "color-brand-content": "#7f9dff"},
}


def show_code(app: object, what: str, name: str, of: object, options: object, lines: list[str]) -> None:
    """In a docstring, what is indented after a colon is code."""
    last, margin = "", 0
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        if indent > margin and last.endswith(":") and not last.endswith("::") and not lines[number - 1].strip():
            at = max(n for n in range(number) if lines[n].strip())
            lines[at] += ":"
        last, margin = line.rstrip(), indent


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", show_code)
