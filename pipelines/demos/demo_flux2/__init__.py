"""The demo model `demo-flux2`, trained from scratch: tokenizer, a tiny Qwen3, then a FLUX.2 transformer.

`python -m pipelines make-demo demo-flux2` runs the stages in order, each resumable, and writes a diffusers folder
of Flux2KleinPipeline (the base kind, with classifier-free guidance). Its autoencoder and postcards are in `stills/`.
"""
