"""The FLUX.2 family: a language model reads the prompt, a transformer of image and text tokens flows from noise.

Two variants share everything but the reading: klein (Qwen3; distilled to a few steps, or with classic guidance) and dev
(Mistral 3; guidance embedded in the time step). Which one a checkpoint is, its own configs say.
traits.py says how checkpoints are recognised, architecture.py how the rest hangs together. What differs from other
families is in variants.py, encode.py, denoise.py, decode.py and sharding.py, a screen each; parts.py is what was
loaded, programs.py what is compiled of it, family.py how a recipe runs through the programs.
"""
