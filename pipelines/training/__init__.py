"""Training on the same mesh and through the same bridge as inference: data, trainer, and the demo models' recipes."""
