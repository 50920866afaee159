"""The FLUX.2 family: a language model encodes the prompt, a transformer over image and text tokens denoises.

Two variants differ only in how they encode prompts and use guidance: klein (Qwen3; distilled to a few steps, or with
classifier-free guidance) and dev (Mistral 3; guidance embedded in the time step). The checkpoint's configs say which
one it is.

traits.py says how checkpoints are recognised, architecture.py how the rest hangs together. What differs from other
families is in variants.py, encode.py, denoise.py, decode.py and sharding.py, a screen each; parts.py is what was
loaded, programs.py what is compiled of it, family.py how a recipe runs through the programs.
"""
