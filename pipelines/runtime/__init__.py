"""What every family shares: the torchax bridge, the mesh, weights, programs, schedules and previews."""
