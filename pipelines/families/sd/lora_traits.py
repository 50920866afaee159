"""How LoRAs of Stable Diffusion 1 and 2 are recognised, and told from SDXL's, whose layers are named alike."""

import re
from collections.abc import Iterable

from pipelines.families.traits import LoraTraits, Sizes
from pipelines.families.unet.recognition import TEXT_WIDTH, UNET_NAMES, measure_layers, measure_model

TEXT_WIDTHS = (768, 1024)  # of 1 and of 2; SDXL's is 2048

# SDXL has two text encoders; its UNet has a level less, and no attention on the first one.
_OWN = re.compile(
    r"^lora_te_|^text_encoders\.clip_h\.|down_blocks[._]0[._]attentions|(down|up)_blocks[._]3[._]"
    r"|input_blocks[._][12][._]1[._]|(input|output)_blocks[._](9|1[01])[._]"
)


def _owns(names: Iterable[str], sizes: Sizes) -> bool:
    return sizes.get(TEXT_WIDTH) in TEXT_WIDTHS or any(map(_OWN.search, names))


LORA_TRAITS = LoraTraits(
    names=re.compile(rf"^lora_te_|^text_encoder\.|^text_encoders\.clip_[lh]\.|{UNET_NAMES}"),
    owns=_owns,
    measure_layers=measure_layers,
    measure_model=measure_model,
    example="unet.down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q.lora_A.weight",
)
