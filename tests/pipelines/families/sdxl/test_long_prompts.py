"""Long prompts are read in chunks and weights count, as a plain PyTorch reading of A1111's rules has it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.generate import generate, generate_together
from pipelines.recipes.recipe import Recipe
from pipelines.runtime.programs.compiled import counter

MAX_ERROR = 2e-4  # of hidden states of about 1
LENGTH = 40  # of the tiny tokenizers: 38 word pieces a chunk
LONG = " ".join(f"house{number % 10}" for number in range(25))  # 50 word pieces: a word and a digit each

Encode = Callable[..., dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def encode_plainly(family: Any) -> Encode:
    """Embeds texts, each (word pieces' ids, weight of each), as written down in A1111's wiki and source."""
    import torch
    from transformers import CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer

    folder: Path = family.model.path
    tokenizers = [CLIPTokenizer.from_pretrained(folder / name) for name in ("tokenizer", "tokenizer_2")]
    encoders = [
        CLIPTextModel.from_pretrained(folder / "text_encoder"),
        CLIPTextModelWithProjection.from_pretrained(folder / "text_encoder_2"),
    ]

    @torch.no_grad()
    def encode(chunks: Sequence[Sequence[tuple[str, float]]]) -> dict[str, np.ndarray]:
        rows: list[Any] = []
        pooled = None
        for chunk in chunks:
            hidden: list[Any] = []
            for tokenizer, encoder in zip(tokenizers, encoders, strict=True):
                ids, weights = [tokenizer.bos_token_id], [1.0]
                for text, weight in chunk:
                    own = tokenizer(text, add_special_tokens=False)["input_ids"]
                    ids += own
                    weights += [weight] * len(own)
                ids += [tokenizer.eos_token_id] + [tokenizer.pad_token_id] * (LENGTH - 1 - len(ids))
                weights += [1.0] * (LENGTH - len(weights))
                output = encoder(torch.tensor([ids]), output_hidden_states=True)
                z = output.hidden_states[-2]
                before = z.mean()
                z = z * torch.tensor(weights)[None, :, None]
                hidden.append(z * (before / z.mean()))
                pooled = getattr(output, "text_embeds", None) if pooled is None else pooled
            rows.append(torch.cat(hidden, dim=-1))
        assert pooled is not None
        return {"prompt_embeds": torch.cat(rows, dim=1).numpy(), "pooled": pooled.numpy()}

    return encode


@pytest.mark.parametrize(
    ("prompt", "chunks"),
    [
        pytest.param("a (red:1.4) boat", [[("a", 1.0), ("red", 1.4), ("boat", 1.0)]], id="weight"),
        pytest.param(
            "((a)) [red] (boat [house]:0.5)",
            [[("a", 1.21), ("red", 1 / 1.1), ("boat", 0.5), ("house", 0.5 / 1.1)]],
            id="nested",
        ),
        pytest.param(r"a \(red\) boat", [[("a (red) boat", 1.0)]], id="escaped"),
        pytest.param("a boat BREAK (red:1.2)", [[("a boat", 1.0)], [("red", 1.2)]], id="break"),
        pytest.param(
            f"{LONG} (red:1.3)",
            [
                [(" ".join(LONG.split()[:19]), 1.0)],
                [(" ".join(LONG.split()[19:]), 1.0), ("red", 1.3)],
            ],
            id="long",
        ),
    ],
)
def test_embeddings_are_those_of_the_published_rules(
    family: Any,
    draw_recipe: Callable[..., Recipe],
    encode_plainly: Encode,
    prompt: str,
    chunks: list[list[tuple[str, float]]],
) -> None:
    generate(family, draw_recipe(steps=1))  # warms the encoders
    found, wanted = family.encode(draw_recipe(prompt=prompt)), encode_plainly(chunks)
    assert found["prompt_embeds"].shape == wanted["prompt_embeds"].shape
    assert np.abs(found["prompt_embeds"] - wanted["prompt_embeds"]).max() < MAX_ERROR
    assert np.abs(found["pooled_prompt_embeds"] - wanted["pooled"]).max() < MAX_ERROR


def test_a_short_negative_prompt_is_as_long_as_the_prompt(
    family: Any, draw_recipe: Callable[..., Recipe], encode_plainly: Encode
) -> None:
    generate(family, draw_recipe(steps=1))
    found = family.encode(draw_recipe(prompt=LONG, negative_prompt="a (blue:1.2) house"))
    wanted = encode_plainly([[("a", 1.0), ("blue", 1.2), ("house", 1.0)], []])["prompt_embeds"]
    assert np.abs(found["negative_prompt_embeds"] - wanted).max() < MAX_ERROR
    assert not family.encode(draw_recipe(prompt=LONG, negative_prompt=""))["negative_prompt_embeds"].any()


def test_words_past_the_first_chunk_are_in_the_picture_and_recompile_nothing(
    family: Any, draw_recipe: Callable[..., Recipe]
) -> None:
    first = generate(family, draw_recipe(prompt=f"{LONG} a lighthouse"))
    built = counter.built
    second = generate(family, draw_recipe(prompt=f"{LONG} a red house", seed=5))
    assert second.compiles == 0
    assert counter.built == built
    assert (first.pixels != second.pixels).any()
    assert family.shape_state(draw_recipe().parsed_shape, None, 2) == "warm"


def test_recipes_of_different_lengths_in_one_batch_make_their_own_pictures(
    family: Any, draw_recipe: Callable[..., Recipe]
) -> None:
    recipes = [draw_recipe(prompt=prompt, seed=8 + n) for n, prompt in enumerate(("a boat", LONG, "a red house"))]
    together = generate_together(family, recipes).pixels
    for row, recipe in zip(together, recipes, strict=True):
        alone = generate(family, recipe).pixels[0]
        assert np.abs(row.astype(int) - alone.astype(int)).max() <= 2


def test_what_four_chunks_do_not_hold_is_left_out(family: Any, draw_recipe: Callable[..., Recipe]) -> None:
    recipe = draw_recipe(prompt="a house " * 400)
    assert family.count_text_chunks(recipe) == 4
    assert family.encode(recipe)["prompt_embeds"].shape[1] == 4 * LENGTH
