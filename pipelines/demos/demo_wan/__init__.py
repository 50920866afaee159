"""The demo model `demo-wan`, trained from scratch: tokenizer, video autoencoder, a tiny UMT5, then a Wan transformer.

`python -m pipelines make-demo demo-wan` runs the stages in order, each resumable, and writes a diffusers folder of
WanPipeline. Every clip it learns from is drawn by `motions/`.
"""
