"""The demo model `demo-sdxl`, trained from scratch: tokenizer, autoencoder, text encoders, then the UNet.

`python -m pipelines make-demo demo-sdxl` runs the stages in order, each resumable, and writes a diffusers folder of
StableDiffusionXLPipeline. Every picture it learns from is drawn by `postcards/`.
"""
