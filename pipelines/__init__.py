"""Prompts to pictures and video: diffusers models traced through torchax and sharded over a JAX mesh.

The floor (`recipe`, `catalog`, `stages`, `errors`) imports neither jax nor torch, so that the page and the REST server
validate with exactly the types the worker runs.

Key to tensor names: B batch, C channels, H height, W width, L sequence length, D features, F frames, N images x tokens.
`latents_BCHW` is laid out batch, channels, height, width; lower-case words name what it is.
"""
