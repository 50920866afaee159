"""Presets: recipes with a title, an author, tags and a thumbnail, made to be shared.

`preset` defines the format, `files` reads and writes it as JSON and as packs, `shipped` holds ours, `store` people's
own, and `gallery` combines both for the page. `hub` exchanges presets with dataset repositories. `styles` are prompt
templates.
"""
