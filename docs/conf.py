"""Settings of Sphinx for `scripts/docs`: MyST, furo, and the extensions in ``_ext``."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

from pipeline import __version__  # noqa: E402

project = "Voiceclaim"
author = "The Voiceclaim authors"
copyright = "The Voiceclaim authors, Apache 2.0"  # noqa: A001
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx_design",
    "sphinx.ext.autodoc",
    "docstrings",
    "sphinx.ext.napoleon",  # after docstrings, which escapes what napoleon reads
    "generated",
    "mathml",
    "repository_links",
    "table_cells",
]
exclude_patterns = ["_ext", "_build"]
root_doc = "index"

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 4
# Notebooks are shown as they were executed and committed; tests/test_notebooks.py keeps them true.
nb_execution_mode = "off"
nb_merge_streams = True

# "--far" must stay two dashes.
smartquotes = False

html_theme = "furo"
html_title = f"Voiceclaim {version}"
html_math_renderer = "mathml"
html_show_sourcelink = False
html_static_path = ["_ext/static"]
html_css_files = ["pages.css"]
# Nothing is fetched while a page is read.
html_theme_options = {"source_repository": "", "navigation_with_keys": True}

napoleon_google_docstring = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
python_maximum_signature_line_length = 100
# Types in signatures that no page documents: types of other projects, whose inventories would have to be fetched, and
# types that stay inside the package. Docstrings name things in plain text.
nitpick_ignore_regex = [("py:.*", ".*")]
linkcheck_timeout = 10
