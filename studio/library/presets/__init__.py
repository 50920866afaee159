"""Presets: recipes with a title, an author, tags and a thumbnail, made to be shared.

`preset` is the format and everything a file may say, `files` reads and writes it as JSON and as packs, `shipped` are
ours, `store` are people's own, `gallery` is both together as the page shows them. `hub` exchanges them with dataset
repositories. `styles` are prompt templates.
"""
