"""The Z-Image family: Qwen3 encodes the prompt, a transformer over one stream of picture and text tokens denoises.

Turbo is distilled to 8 steps without guidance; the base model takes 28 to 50 with it. They differ in nothing else but
their scheduler's shift.

traits.py says how checkpoints are recognised, architecture.py how the rest hangs together. The transformer's submodules
are diffusers' own; tokens.py lays a batch out for them, and attention.py attends. parts.py is what was loaded,
programs.py what is compiled of it, family.py how a recipe runs through the programs.
"""
