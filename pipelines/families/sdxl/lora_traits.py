"""How SDXL's LoRAs are recognised; of those with the same names, Stable Diffusion 1 and 2 takes its own before."""

import re

from pipelines.families.traits import LoraTraits
from pipelines.families.unet.recognition import UNET_NAMES, measure_layers, measure_model

LORA_TRAITS = LoraTraits(
    names=re.compile(rf"^lora_te[12]_|^text_encoder(_2)?\.|^text_encoders\.clip_[lg]\.|{UNET_NAMES}"),
    measure_layers=measure_layers,
    measure_model=measure_model,
    example="unet.down_blocks.1.attentions.0.transformer_blocks.0.attn1.to_q.lora_A.weight",
)
