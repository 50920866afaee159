"""Training on the same mesh and through the same bridge as inference: trainer, optimizer, checkpoints, flows."""
