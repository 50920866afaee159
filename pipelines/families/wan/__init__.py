"""The Wan family, video: a UMT5 encoder, a diffusion transformer over space and time, a causal video autoencoder.

Wan 2.1 and 2.2 in all their kinds: text to video, two experts that take over from each other, and image to video.
traits.py says how checkpoints are recognised, architecture.py how the rest hangs together. What differs from other
families is in encode.py, denoise.py, decode.py and sharding.py; attention.py turns queries and keys, causal.py walks
through the autoencoder, condition.py brings a first picture in, preview.py learns to draw what the latents hold.
parts.py is what was loaded, programs.py what is compiled of it, family.py how a recipe runs through the programs.
"""
