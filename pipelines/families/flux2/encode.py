"""Prompt to tokens. The language model (families/language_model.py) reads hidden states of three layers, concatenated.

`prompt_embeds` (B, L, 3 * D) holds those of every token, padding included: the transformer gets all L tokens and no
mask.
"""

from collections.abc import Sequence

import numpy as np

from pipelines.families.flux2.parts import Parts


def tokenize(parts: Parts, prompts: Sequence[str]) -> np.ndarray:
    """Returns token ids and attention mask (2, prompt, L) int32; longer text is truncated."""
    pairs = [parts.variant.tokenize(parts.tokenizers[0], prompt, parts.text_length) for prompt in prompts]
    return np.asarray(pairs, np.int32).transpose(1, 0, 2)
