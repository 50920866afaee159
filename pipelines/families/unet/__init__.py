"""What families with a UNet and CLIP text encoders share: all but how embeddings are read and passed on.

A family names its text encoders and gives a class of its own `Parts` (parts.py); architecture.py makes an architecture
of them. load.py builds the modules without weights and reads the checkpoint directly into sharded arrays; encode.py,
denoise.py, condition.py and decode.py are its programs, programs.py says which of them a shape needs, and family.py is
a recipe's way through them. It is no family by itself.
"""
