"""A UMT5 tokenizer (a unigram model) with the clips' words, and letters for everything else.

Characters that are not letters here (other scripts, emoji) become the unknown token; no caption needs them.
"""

import string
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from transformers import T5Tokenizer

from pipelines.demos.demo_wan.architecture import TEXT_LENGTH
from pipelines.demos.motions import vocabulary_text
from pipelines.families.wan.encode import tokenize as tokenize_as_wan

SPECIAL = (("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0))
WORD_SCORE, LETTER_SCORE = -1.0, -8.0  # a whole word is always likelier than its letters


def build_tokenizer(folder: Path, *, captions: int = 20_000) -> Any:
    """Builds the tokenizer from every word of the captions, writes its files into `folder` and returns it."""
    words = Counter(
        word.strip(string.punctuation)
        for line in vocabulary_text(np.random.default_rng(0), captions)
        for word in line.split()
    )
    spellings = sorted(
        {form for word in words if word for form in (word, word.lower(), word.capitalize(), word.upper())}
    )
    letters = string.ascii_letters + string.digits + string.punctuation
    make: Any = T5Tokenizer
    tokenizer = make(
        vocab=[
            *SPECIAL,
            *((f"▁{word}", WORD_SCORE) for word in spellings),
            *((letter, LETTER_SCORE) for letter in letters),
        ],
        extra_ids=0,
        model_max_length=TEXT_LENGTH,
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


def tokenize(tokenizer: Any, captions: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns token ids and attention mask, both (B, TEXT_LENGTH) int32, as WanPipeline does."""
    ids, is_text = tokenize_as_wan(tokenizer, captions, length=TEXT_LENGTH)
    return ids, is_text.astype(np.int32)
