"""The files that Lumesh writes: pictures and videos with their recipes, and the command line's stage files."""
