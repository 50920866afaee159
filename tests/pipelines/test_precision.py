"""Which weights stay in fp32 on accelerators is what diffusers and transformers prescribe for each module."""

import pytest
from diffusers import (
    AutoencoderKL,
    AutoencoderKLFlux2,
    AutoencoderKLWan,
    Flux2Transformer2DModel,
    UNet2DConditionModel,
    WanTransformer3DModel,
)
from transformers import (
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPVisionModel,
    MistralModel,
    Qwen3Model,
    UMT5EncoderModel,
)


@pytest.mark.parametrize(
    "module", [UNet2DConditionModel, AutoencoderKL, Flux2Transformer2DModel, AutoencoderKLFlux2, AutoencoderKLWan]
)
def test_diffusers_asks_for_nothing_where_every_weight_is_narrowed(module: type) -> None:
    assert not module._keep_in_fp32_modules


def test_diffusers_asks_for_what_wan_keeps() -> None:
    """The weights among them are read in fp32 (families/wan/test_bf16.py); `rope` is a table of our own."""
    kept = {"rope", "time_embedder", "scale_shift_table", "norm1", "norm2", "norm3"}
    assert set(WanTransformer3DModel._keep_in_fp32_modules) == kept


@pytest.mark.parametrize(
    "module",
    [CLIPTextModel, CLIPTextModelWithProjection, CLIPVisionModel, MistralModel, Qwen3Model, UMT5EncoderModel],
)
def test_transformers_asks_for_nothing_under_bf16(module: type) -> None:
    """UMT5 has a list as well, which counts under fp16 alone."""
    assert not module._keep_in_fp32_modules_strict
