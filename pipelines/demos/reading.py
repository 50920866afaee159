"""Pretrains text encoders on captions, before any denoiser.

The real models start from pretrained text encoders; tiny ones that only get the denoiser's noisy gradient never learn
the late words (after an hour, the weather was still at chance). So linear probes on the embeddings that the denoiser
will get are trained to answer what the picture shows, and thrown away afterwards. For attributes that a caption omits
they learn probabilities, which the denoiser needs too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from pipelines.demos.learning import Batch, Course, IsHidden, Parameters, Task, fill_mesh, train
from pipelines.training.stop import Stop

COURSE = Course(steps=900, muon_learning_rate=0.02, adam_learning_rate=4e-3, ema_decay=0.99)
BATCH_SIZE = 96

Read = Callable[[Parameters, Mapping[str, jax.Array]], dict[str, jax.Array]]
"""Turns parameters and tokens into features, with a probe on each: name -> (B, width)."""
Tokenize = Callable[[list[str]], Batch]
"""Turns captions into the network's inputs."""


@dataclass(frozen=True, kw_only=True)
class Exam:
    """The probes' task: `questions` with their numbers of answers; `draw` returns a caption and the right answers."""

    questions: Mapping[str, int]
    draw: Callable[[np.random.Generator], tuple[str, list[int]]]


def train_reading(
    read: Read,
    initial: Mapping[str, np.ndarray],
    *,
    exam: Exam,
    widths: Mapping[str, int],
    tokenize: Tokenize,
    is_hidden: IsHidden,
    mesh: Mesh,
    folder: Path,
    course: Course = COURSE,
    stop: Stop,
) -> dict[str, np.ndarray]:
    """Trains the text encoders' parameters `initial` and returns them; `widths` are those of the features of `read`."""
    rng = np.random.default_rng(7)
    answers = sum(exam.questions.values())
    probes = {f"probe.{name}": rng.normal(0, width**-0.5, (width, answers)) for name, width in widths.items()}
    trained = train(
        Task(
            name="reading",
            loss=lambda parameters, batch, _key: measure_loss(read, exam, parameters, batch),
            draw_batch=lambda step: _draw_batch(exam, tokenize, fill_mesh(BATCH_SIZE, mesh), step),
            course=course,
            is_hidden=lambda name: is_hidden(name) and not name.startswith("probe."),
        ),
        dict(initial) | {name: value.astype(np.float32) for name, value in probes.items()},
        mesh=mesh,
        folder=folder,
        stop=stop,
    )
    return {name: trained[name] for name in initial}


def measure_loss(read: Read, exam: Exam, parameters: Parameters, batch: Mapping[str, jax.Array]) -> jax.Array:
    """Returns the cross entropy in nats, summed over the questions and averaged over the probes."""
    features = read(parameters, batch)
    logits = jnp.stack([value @ parameters[f"probe.{name}"] for name, value in features.items()])
    starts = np.cumsum([0, *exam.questions.values()])
    losses = [
        optax.softmax_cross_entropy_with_integer_labels(logits[..., start:end], batch["answers"][None, :, index])
        for index, (start, end) in enumerate(zip(starts[:-1], starts[1:], strict=True))
    ]
    return jnp.stack(losses).sum(axis=0).mean()


def _draw_batch(exam: Exam, tokenize: Tokenize, batch_size: int, step: int) -> Batch:
    rng = np.random.default_rng((8, step))
    captions, answers = zip(*(exam.draw(rng) for _ in range(batch_size)), strict=True)
    return {"answers": np.asarray(answers, np.int32), **tokenize(list(captions))}
