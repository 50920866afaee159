"""A CLIP tokenizer for the postcards' words, in the files that every reader of CLIP knows (vocab.json, merges.txt).

The vocabulary holds all 256 bytes and their end-of-word forms, so any text can be spelled, and an unknown word never
becomes the end-of-text token (which would cut the pooled embedding short).
"""

import json
from pathlib import Path

import numpy as np
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import CLIPTokenizer

from pipelines.demos.demo_sdxl.architecture import TEXT_LENGTH
from pipelines.demos.postcards import vocabulary_text

BOS = "<|startoftext|>"
EOS = "<|endoftext|>"
MERGES = 300  # every word of the captions ends up as one token

# CLIP's own split into words, single digits, and runs of symbols
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def build_tokenizer(folder: Path, *, captions: int = 20_000) -> CLIPTokenizer:
    """Learns the merges from captions, writes the tokenizer's files into `folder` and returns it."""
    merges = _learn_merges(captions)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), *("".join(pair) for pair in merges)]
    vocabulary = {token: index for index, token in enumerate([*dict.fromkeys(tokens), BOS, EOS])}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), "utf-8")
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", "utf-8")
    config = {
        "tokenizer_class": "CLIPTokenizer",
        "model_max_length": TEXT_LENGTH,
        "bos_token": BOS,
        "eos_token": EOS,
        "unk_token": EOS,
        "pad_token": EOS,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    (folder / "special_tokens_map.json").write_text(
        json.dumps({name: config[name] for name in ("bos_token", "eos_token", "unk_token", "pad_token")}, indent=2)
        + "\n",
        "utf-8",
    )
    return CLIPTokenizer.from_pretrained(folder)


def tokenize(tokenizer: CLIPTokenizer, captions: list[str]) -> np.ndarray:
    """Returns token ids (B, TEXT_LENGTH) int32."""
    ids = tokenizer(captions, padding="max_length", max_length=TEXT_LENGTH, truncation=True)["input_ids"]
    return np.asarray(ids, np.int32)


def _learn_merges(captions: int) -> list[tuple[str, str]]:
    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=2 * len(letters) + MERGES,
        initial_alphabet=letters,
        end_of_word_suffix="</w>",
        show_progress=False,
    )
    tokenizer.train_from_iterator(vocabulary_text(np.random.default_rng(0), captions), trainer)
    learned = json.loads(tokenizer.to_str())["model"]["merges"]
    return [tuple(pair) if isinstance(pair, list) else tuple(pair.split(" ")) for pair in learned]
