"""The Wan family of video models: a UMT5 encoder, a transformer over space and time, a causal video autoencoder.

It covers Wan 2.1 and 2.2: text to video, image to video, and Wan 2.2's two experts for high and low noise.
traits.py says how checkpoints are recognised, architecture.py how the rest hangs together. What differs from other
families is in encode.py, denoise.py, decode.py and sharding.py; attention.py applies the rotary embedding, causal.py
runs the autoencoder frame by frame, condition.py encodes a first picture, preview.py draws previews from latents.
parts.py is what was loaded, programs.py what is compiled of it, family.py how a recipe runs through the programs.
"""
