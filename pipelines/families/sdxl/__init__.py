"""The SDXL family: two CLIP encoders, a UNet with size conditioning, classifier-free guidance, a standard autoencoder.

traits.py says how its checkpoints are recognised, architecture.py how the rest hangs together: load.py builds the
modules without weights and reads the checkpoint directly into sharded arrays. What differs from other families is in
encode.py, denoise.py, decode.py and sharding.py, a screen each; parts.py is what was loaded, programs.py what is
compiled of it, family.py how a recipe runs through the programs.
"""
