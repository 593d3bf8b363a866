"""The site: `sphinx-build -W --keep-going -b html docs out/docs`."""

import sys
from pathlib import Path

import ig2

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "IG²"
author = "The IG² developers"
copyright = author
version = release = ig2.__version__

extensions = [
    *("sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"),
    *("myst_parser", "sphinx_copybutton", "docstrings", "mathml", "tutorials"),
]
html_math_renderer = "mathml"
copybutton_exclude = ".linenos, .gp, .go"  # of a session in a docstring, what was typed
copybutton_selector = "div:not(.printed) > div.highlight > pre"  # not what a tutorial printed
exclude_patterns = ["conf.py", "_ext"]
nitpicky = False

# -- Markdown
myst_enable_extensions = ["substitution", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# the picture is made by the demo, and the site is built without it too
myst_substitutions = {
    "demo": "![Photos explained by several methods](demo.jpg)" if (HERE / "demo.jpg").exists() else "",
}

# -- docstrings: Google's layout, and in single backticks whatever is code, linked where it is ours
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 80
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
add_module_names = False
toc_object_entries_show_parents = "hide"

# -- looks
html_theme = "furo"
html_title = "IG²"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "monokai"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#a31f34", "color-brand-content": "#a31f34"},
    "dark_css_variables": {"color-brand-primary": "#ff8b94", "color-brand-content": "#ff8b94"},
}
