"""How klein and dev tokenize a prompt and use guidance, exactly as diffusers' two pipelines do."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from diffusers.pipelines.flux2.pipeline_flux2 import SYSTEM_MESSAGE, format_input


class Guidance(Enum):
    """The effect of a guidance scale."""

    PAIR = "classifier-free guidance: a negative and a positive forward"
    EMBEDDED = "the scale is an input of the transformer, one forward"
    NONE = "nothing: the model is distilled, one forward"


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Klein or dev: `out_layers` are the hidden states used as embeddings, `tokenize` returns padded ids and mask."""

    out_layers: tuple[int, ...]
    tokenize: Callable[[Any, str, int], tuple[list[int], list[int]]]


def _tokenize_klein(tokenizer: Any, prompt: str, length: int) -> tuple[list[int], list[int]]:
    """Tokenizes one turn of Qwen3's chat, with thinking switched off."""
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    inputs = tokenizer(text, padding="max_length", truncation=True, max_length=length)
    return inputs["input_ids"], inputs["attention_mask"]


def _tokenize_dev(tokenizer: Any, prompt: str, length: int) -> tuple[list[int], list[int]]:
    """Tokenizes Mistral's chat with FLUX.2's system message, without the generation prompt.

    diffusers uses the processor around this tokenizer, which only adds what pictures need (and requires torchvision).
    """
    (messages,) = format_input([prompt], system_message=SYSTEM_MESSAGE)
    inputs = tokenizer.apply_chat_template(
        messages,
        add_generation_prompt=False,
        tokenize=True,
        return_dict=True,
        padding="max_length",
        truncation=True,
        max_length=length,
    )
    return inputs["input_ids"], inputs["attention_mask"]


KLEIN = Variant(out_layers=(9, 18, 27), tokenize=_tokenize_klein)
DEV = Variant(out_layers=(10, 20, 30), tokenize=_tokenize_dev)

# diffusers' pipeline class, as model_index.json names it
VARIANT_OF_PIPELINE = {"Flux2KleinPipeline": KLEIN, "Flux2KleinInpaintPipeline": KLEIN, "Flux2Pipeline": DEV}


def find_guidance(variant: Variant, *, is_distilled: bool) -> Guidance:
    if variant is DEV:
        return Guidance.EMBEDDED
    return Guidance.NONE if is_distilled else Guidance.PAIR
