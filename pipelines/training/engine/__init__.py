"""The part that learns: the module with its LoRA, the objective, the optimizer, and the compiled step in its loop."""
