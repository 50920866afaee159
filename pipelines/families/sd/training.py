"""How Stable Diffusion 1 and 2 learn: their UNet is told the text and nothing else."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.families.unet.training import UNetLearner
from pipelines.runtime.weights.components import read_json

_TEXT_WIDTH_2 = 1024  # of Stable Diffusion 2's text encoder; that of 1 has 768


class SdLearner(UNetLearner):
    """See `trainable.Learner`."""

    def describe_base(self, folder: Path, scheduler_config: Mapping[str, Any]) -> Mapping[str, str]:
        is_2 = read_json(folder / "unet" / "config.json")["cross_attention_dim"] == _TEXT_WIDTH_2
        is_v = scheduler_config.get("prediction_type") == "v_prediction"
        architecture = f"stable-diffusion-v2-{'768-v' if is_v else '512'}" if is_2 else "stable-diffusion-v1"
        return {
            "ss_base_model_version": f"sd_v{2 if is_2 else 1}{'_v' if is_v else ''}",
            "ss_v2": str(is_2),
            "modelspec.architecture": f"{architecture}/lora",
            "modelspec.prediction_type": "v" if is_v else "epsilon",
        }


LEARNER = SdLearner()
