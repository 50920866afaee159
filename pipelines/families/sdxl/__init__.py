"""The SDXL family: two CLIP encoders, a UNet with size conditioning, classic guidance, a standard autoencoder.

`load` builds the modules without weights, reads the checkpoint straight into sharded arrays, and returns a `Family`.
What differs from other families is in encode.py, denoise.py, decode.py and sharding.py, a screen each; parts.py is what
was loaded, programs.py what is compiled of it, family.py how a recipe runs through the programs.
"""

from pipelines.families.sdxl.load import find, load

__all__ = ["find", "load"]
