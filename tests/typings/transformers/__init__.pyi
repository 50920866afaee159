"""Names of transformers for the type checker, each from its own module.

The package's own file names four thousand from six hundred modules, all of which the checker would read.
"""

from typing import Any

from transformers.models.auto.configuration_auto import AutoConfig as AutoConfig
from transformers.models.auto.modeling_auto import AutoModel as AutoModel
from transformers.models.auto.tokenization_auto import AutoTokenizer as AutoTokenizer
from transformers.models.clip.configuration_clip import CLIPTextConfig as CLIPTextConfig
from transformers.models.clip.configuration_clip import CLIPVisionConfig as CLIPVisionConfig
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil as CLIPImageProcessorPil
from transformers.models.clip.modeling_clip import CLIPTextModel as CLIPTextModel
from transformers.models.clip.modeling_clip import CLIPTextModelWithProjection as CLIPTextModelWithProjection
from transformers.models.clip.modeling_clip import CLIPVisionModel as CLIPVisionModel
from transformers.models.clip.tokenization_clip import CLIPTokenizer as CLIPTokenizer
from transformers.models.qwen2.tokenization_qwen2 import Qwen2Tokenizer as Qwen2Tokenizer
from transformers.models.qwen3.configuration_qwen3 import Qwen3Config as Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM as Qwen3ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3Model as Qwen3Model
from transformers.models.t5.tokenization_t5 import T5Tokenizer as T5Tokenizer
from transformers.models.umt5.configuration_umt5 import UMT5Config as UMT5Config
from transformers.models.umt5.modeling_umt5 import UMT5EncoderModel as UMT5EncoderModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase as PreTrainedTokenizerBase

def __getattr__(name: str) -> Any: ...
