"""Many jobs of one wish: templates with wildcards, sweeps over a field, and grids."""
