"""The parts of every loaded model: modules, weights on the mesh, tokenizers, and the checkpoint's own settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh

from pipelines.runtime.bridge.modules import TracedModule


@dataclass(frozen=True, kw_only=True)
class CheckpointParts:
    """The parts of one checkpoint: `weights` holds the components of the loaded `stages` only.

    The large modules compute in `dtype`. `text_length` counts tokens of a prompt, padding included. A model described
    from its configs has no `tokenizers`.
    """

    mesh: Mesh
    stages: tuple[str, ...]
    modules: Mapping[str, TracedModule]
    weights: dict[str, dict[str, jax.Array]]
    tokenizers: tuple[Any, ...]
    text_length: int
    scheduler_config: Mapping[str, Any]
    dtype: Any

    def config_of(self, component: str) -> Any:
        """Returns the component's config.json as diffusers or transformers hold it."""
        return self.modules[component].module.config
