"""Training on the same mesh and bridge as inference: trainer, optimizer, checkpoints, rectified flow."""
