"""Many jobs from one request: templates with wildcards, sweeps over seeds and prompts, and grids."""
