"""What stands in a prompt besides words: weights, breaks and LoRA tags; and how much of it a model's encoder reads."""
