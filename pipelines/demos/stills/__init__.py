"""Code that the picture demos share: autoencoder, albums of its latents, captions, and a denoiser's training stages.

`demo_sdxl` and `demo_flux2` differ in text encoders and denoiser; everything that happens to pixels and words before
these is here.
"""
