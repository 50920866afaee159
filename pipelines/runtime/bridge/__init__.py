"""PyTorch modules as JAX functions: operators (environment.py), modules, and autoencoders split over a mesh."""
