"""Attention, convolutions, norms and resizing: Pallas kernels for TPU, and what stands in for them elsewhere."""
