"""PyTorch modules as JAX functions: modules.py calls them, autoencoder.py calls those whose pictures lie on a mesh."""
