"""The SDXL family: two CLIP encoders, a UNet with size conditioning, classifier-free guidance, a standard autoencoder.

traits.py and lora_traits.py say how its checkpoints and LoRAs are recognised, architecture.py what it reads of prompts
and what its UNet is told besides; all else is what families with a UNet share (families/unet).
"""
