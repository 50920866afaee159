"""A user's training data: read, checked, sorted into sizes, drawn as batches, cached; without JAX and PyTorch."""
