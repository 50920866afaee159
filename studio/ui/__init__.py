"""The page: one screen to create and one of presets, made of panels.

Python builds the empty panels once, at start-up; `static/js` fills them from REST and one event stream, so nothing on
the page depends on a handler that dies with the browser's connection. Only `actions.py` and `generate.py` access jobs.
"""

from studio.ui.editor_files import without_editor_files

with without_editor_files():
    import gradio  # noqa: F401
