"""How SDXL learns: its UNet is told each picture's own size and cut besides the text."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.families.trainable import Rows
from pipelines.families.unet.loras import name_for_kohya
from pipelines.families.unet.training import UNetLearner
from pipelines.loras.file_names import FileNames


class SdxlLearner(UNetLearner):
    """See `trainable.Learner`."""

    compact_vmem_bytes = 15 * 2**20  # a step of a LoRA takes 3 % less than with 12, and half a minute more to compile
    gathered_apart = ("lora",)  # with all weights a step takes 5 % more so on a v5p-8

    def name_for_kohya(self, learned: Collection[str], layers: Collection[str]) -> FileNames:
        return name_for_kohya(learned, layers, is_original=True)

    def describe_base(self, folder: Path, scheduler_config: Mapping[str, Any]) -> Mapping[str, str]:  # noqa: ARG002
        is_v = scheduler_config.get("prediction_type") == "v_prediction"
        return {
            "ss_base_model_version": "sdxl_base_v1-0",
            "ss_v2": "False",
            "modelspec.architecture": "stable-diffusion-xl-v1-base/lora",
            "modelspec.prediction_type": "v" if is_v else "epsilon",
        }

    def describe_cut(self, sizes: tuple[int, int, int, int, int, int]) -> Rows:
        return {"time_ids": np.asarray(sizes, np.float32)}

    def read_conditions(self, rows: Rows, dtype: Any) -> dict[str, Any]:
        names = {"text_embeds": "pooled_prompt_embeds", "time_ids": "time_ids"}
        return {"added_cond_kwargs": {given: rows[name].astype(dtype) for given, name in names.items()}}


LEARNER = SdxlLearner()
