"""LoRA files: which there are, what each was made for, and how it is read by its names and header."""
