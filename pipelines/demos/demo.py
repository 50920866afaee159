"""The training method of every demo model: first its text encoders, then its denoiser on their embeddings, in stages.

Each finished part is saved as a file (parts.py). Not here: the models and their data (demo_sdxl/, demo_flux2/,
demo_wan/).
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import Mesh

from pipelines.demos.learning import IsHidden
from pipelines.demos.network import Network
from pipelines.demos.parts import finish
from pipelines.demos.reading import Exam, Read, Tokenize, train_reading
from pipelines.training.stop import Stop

Values = Mapping[str, np.ndarray]


def train_network(
    network: Network,
    *,
    exam: Exam,
    read: Read,
    read_widths: Mapping[str, int],
    tokenize: Tokenize,
    is_hidden: IsHidden,
    stages: Sequence[Any],
    train_stage: Callable[[Any, Values, Values], Values],
    mesh: Mesh,
    folder: Path,
    stop: Stop,
) -> dict[str, np.ndarray]:
    """Trains all parameters of the network; `train_stage(stage, denoiser, text)` returns the denoiser's.

    The text encoders are trained separately and then frozen, as for the real models. Trained jointly, they unlearned
    which of two colours belongs to which subject, in favour of the average picture (linear probes fell from 100 % to
    about half).
    """
    text = finish(
        folder / "text.safetensors",
        lambda: train_reading(
            read,
            {name: value for name, value in network.initial.items() if name.startswith("text_encoder")},
            exam=exam,
            widths=read_widths,
            tokenize=tokenize,
            is_hidden=is_hidden,
            mesh=mesh,
            folder=folder / "text",
            stop=stop,
        ),
    )
    denoiser = {name: value for name, value in network.initial.items() if name not in text}
    for stage in stages:
        denoiser = finish(
            folder / f"{stage.name}.safetensors",
            lambda stage=stage, denoiser=denoiser: train_stage(stage, denoiser, text),
        )
    return text | denoiser
