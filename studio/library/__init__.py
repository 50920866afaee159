"""The library: finished outputs, as whole files that carry their recipe, and as rows to search."""
