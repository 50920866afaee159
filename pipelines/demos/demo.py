"""The training method of every demo model: first its text encoders, then its denoiser on their embeddings, in stages.

Each finished part is saved as a file (deadline.py). Not here: the models and their data (demo_sdxl/, demo_flux2/,
demo_wan/).
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import Mesh

from pipelines.demos.reading import Exam, Read, Tokenize, train_reading
from pipelines.demos.training.deadline import Deadline
from pipelines.demos.training.network import Network
from pipelines.demos.training.optimizer import IsHidden

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
    train_stage: Callable[[Any, Values, Values, float | None], Values],
    mesh: Mesh,
    folder: Path,
    deadline: Deadline,
) -> dict[str, np.ndarray]:
    """Trains all parameters of the network; `train_stage(stage, denoiser, text, seconds left)` returns the denoiser's.

    The text encoders are trained separately and then frozen, as for the real models. Trained jointly, they unlearned
    which of two colours belongs to which subject, in favour of the average picture (linear probes fell from 100 % to
    about half).
    """
    text = deadline.finish(
        folder / "text.safetensors",
        lambda left_s: train_reading(
            read,
            {name: value for name, value in network.initial.items() if name.startswith("text_encoder")},
            exam=exam,
            widths=read_widths,
            tokenize=tokenize,
            is_hidden=is_hidden,
            mesh=mesh,
            folder=folder / "text",
            stop_after_s=left_s,
        ),
    )
    denoiser = {name: value for name, value in network.initial.items() if name not in text}
    for stage in stages:
        denoiser = deadline.finish(
            folder / f"{stage.name}.safetensors",
            lambda left_s, stage=stage, denoiser=denoiser: train_stage(stage, denoiser, text, left_s),
        )
    return text | denoiser
