"""What the picture demos share: an autoencoder, postcards as its latents, captions, and the course of a denoiser.

`demo_sdxl` and `demo_flux2` differ in what reads a caption and what denoises; everything a pixel or a word goes
through before that is here.
"""
