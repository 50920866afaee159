"""Stable Diffusion 1 and 2: one CLIP encoder, a UNet, classifier-free guidance, a standard autoencoder.

traits.py and lora_traits.py say how its checkpoints and LoRAs are recognised, architecture.py what is its own; all else
is what families with a UNet share (families/unet).
"""
