"""Compiled programs: ahead of time, in memory, in JAX's cache, and in packs that come from another machine."""
