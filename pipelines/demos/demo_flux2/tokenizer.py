"""A Qwen2 tokenizer for the postcards' words, with the chat template that FLUX.2 klein applies to prompts.

The template replaces klein's long one (a tiny model has no tokens to waste) and lower-cases all text. All 256 bytes are
in the vocabulary, so that any text can be spelled.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import Qwen2Tokenizer

from pipelines.demos.demo_flux2.architecture import TEXT_LENGTH
from pipelines.demos.postcards import vocabulary_text

PAD = "<|endoftext|>"
END = "<|im_end|>"
MERGES = 420  # every word of the captions ends up as one token
CHAT = "{% for message in messages %} {{ message.content | trim | lower }}" + END + "{% endfor %}"


def build_tokenizer(folder: Path, *, captions: int = 20_000) -> Any:
    """Learns the merges from captions, writes the tokenizer's files into `folder` and returns it."""
    merges = _learn_merges(captions)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*letters, *("".join(pair) for pair in merges), PAD, END]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    make: Any = Qwen2Tokenizer  # its type hints forbid what its documentation shows
    tokenizer = make(
        vocab=vocabulary,
        merges=merges,
        model_max_length=TEXT_LENGTH,
        padding_side="right",
        unk_token=None,
        pad_token=PAD,
        eos_token=END,
    )
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    # Older versions of transformers need these two files.
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), "utf-8")
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", "utf-8")
    return tokenizer


def tokenize(tokenizer: Any, captions: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns token ids and attention mask, both (B, TEXT_LENGTH) int32, as Flux2KleinPipeline does."""
    texts = [
        tokenizer.apply_chat_template([{"role": "user", "content": caption}], tokenize=False) for caption in captions
    ]
    found = tokenizer(texts, padding="max_length", max_length=TEXT_LENGTH, truncation=True)
    return np.asarray(found["input_ids"], np.int32), np.asarray(found["attention_mask"], np.int32)


def _learn_merges(captions: int) -> list[tuple[str, str]]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=len(letters) + MERGES, initial_alphabet=letters, show_progress=False)
    lines = (line.lower() for line in vocabulary_text(np.random.default_rng(0), captions))
    tokenizer.train_from_iterator(lines, trainer)
    learned = json.loads(tokenizer.to_str())["model"]["merges"]
    return [tuple(pair) if isinstance(pair, list) else tuple(pair.split(" ")) for pair in learned]
