"""Prompt to tokens: one turn of Qwen3's chat, as diffusers' ZImagePipeline writes it."""

from collections.abc import Sequence

import numpy as np

from pipelines.families.z_image.parts import Parts


def tokenize(parts: Parts, prompts: Sequence[str]) -> np.ndarray:
    """Returns token ids and mask (2, prompt, L) int32; longer text is truncated, shorter filled up at its end."""
    (tokenizer,) = parts.tokenizers
    filling = tokenizer.pad_token_id or 0
    tokens = np.full((2, len(prompts), parts.text_length), filling, np.int32)
    tokens[1] = 0
    for number, prompt in enumerate(prompts):
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True, enable_thinking=True
        )
        ids = tokenizer(text, truncation=True, max_length=parts.text_length)["input_ids"]
        tokens[0, number, : len(ids)] = ids
        tokens[1, number, : len(ids)] = 1
    return tokens
