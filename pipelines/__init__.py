"""Prompts to pictures and video: diffusers models traced through torchax and sharded over a JAX mesh.

The base modules (`recipe`, `catalog`, `stages`, `errors`) import neither jax nor torch, so that the page and the REST
server validate with exactly the types the worker runs.

Key to tensor names: B batch, C channels, H height, W width, L sequence length, D features, F frames, N images x tokens.
`latents_BCHW` is laid out batch, channels, height, width; lower-case words name what it is.
"""

import sys

MIN_PYTHON = (3, 11)

if sys.version_info < MIN_PYTHON:  # checked before any import that fails on an older Python
    wanted, given = (".".join(map(str, version)) for version in (MIN_PYTHON, sys.version_info[:3]))
    sys.exit(f"Lumesh needs Python {wanted} or newer, and {sys.executable} is {given}: start it with another python3.")
