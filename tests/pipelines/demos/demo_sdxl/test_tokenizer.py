"""Any text can be spelled: an unknown word never becomes the end-of-text token, which would cut the prompt short."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.demos.demo_sdxl.architecture import TEXT_LENGTH
from pipelines.demos.demo_sdxl.tokenizer import tokenize


@pytest.fixture(scope="module")
def tokenizer(data_dir: Path) -> Any:
    from transformers import CLIPTokenizer

    return CLIPTokenizer.from_pretrained(data_dir / "tokenizer")


@pytest.mark.parametrize("text", ["a red sailboat", "zwölf Boxkämpfer", "日本の山", "😀🏔️", "x1 <|&%$ 42!?", "ÅΩж\t\n"])
def test_any_text_is_spelled_between_one_start_and_one_end(tokenizer: Any, text: str) -> None:
    ids = tokenizer(text)["input_ids"]
    assert (ids[0], ids[-1]) == (tokenizer.bos_token_id, tokenizer.eos_token_id)
    assert len(ids) > 2
    assert not {tokenizer.bos_token_id, tokenizer.eos_token_id} & set(ids[1:-1])


def test_words_of_the_captions_are_one_token_each(tokenizer: Any) -> None:
    assert len(tokenizer("a red sailboat on the ocean at sunset")["input_ids"]) == 8 + 2


def test_a_long_prompt_is_cut_and_a_short_one_padded(tokenizer: Any) -> None:
    for text in ("a house " * 60, "a house", ""):
        ids = tokenizer(text, padding="max_length", truncation=True, max_length=tokenizer.model_max_length)["input_ids"]
        assert (len(ids), ids[-1]) == (TEXT_LENGTH, tokenizer.eos_token_id)


def test_captions_have_one_length(tokenizer: Any) -> None:
    ids = tokenize(tokenizer, ["a boat", ""])
    assert (ids.shape, ids.dtype) == ((2, TEXT_LENGTH), np.int32)
