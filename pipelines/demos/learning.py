"""How a demo's networks learn a loss of their own: by the engine of every training (pipelines/training/engine).

Its are the loop with late losses, stops and signals, Muon and AdamW, the state on disk, and where weights lie on the
mesh; only what is learned is the demos'. Batches are a pure function of the step, so a resumed run sees the same ones.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tqdm import tqdm

from pipelines.messages import english
from pipelines.runtime.devices import hosts
from pipelines.training.engine import linear, placement
from pipelines.training.engine.denoiser import begin, describe_state
from pipelines.training.engine.loop import Cadence, Stop, run_steps
from pipelines.training.engine.optimizers import build_muon, guard
from pipelines.training.engine.step import BINS, Metrics, TrainState, move
from pipelines.training.results.report import Report
from pipelines.training.results.state import StateFolder

KEPT = 2  # states, so that a disk that lies about flushing costs one interval and not the whole training
ADAM_BETA2 = 0.99

Parameters = dict[str, jax.Array]
Batch = Mapping[str, np.ndarray]
Loss = Callable[[Parameters, Mapping[str, jax.Array], jax.Array], jax.Array]
"""loss(parameters, batch, random key) -> scalar, fp32."""
IsHidden = Callable[[str], bool]
"""Returns by a parameter's name whether it is a hidden layer's weight (not an embedding, input or output layer)."""


class Unfinished(Exception):  # noqa: N818 - asked for by a signal or a time limit
    """The training was asked to stop; its state is saved, and a later run continues from it."""


@dataclass(frozen=True, kw_only=True)
class Course:
    """A training schedule: number of optimizer `steps`, and peak learning rates with cosine decay to a hundredth.

    Hidden matrices move by Muon (Jordan 2024): on the demo models it reached 22.7 dB in 197 steps where AdamW alone
    stood at 18-20 dB after 240-760. Embeddings, the first and last layers, norms and biases keep AdamW, as the method's
    author advises.
    """

    steps: int
    muon_learning_rate: float
    adam_learning_rate: float
    warmup_steps: int = 100
    ema_decay: float = 0.999
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        if not self.steps > 0:
            raise ValueError(english(f"{self.steps=} must be positive"))
        if not 0 <= self.ema_decay < 1:
            raise ValueError(english(f"{self.ema_decay=} must be in [0, 1)"))

    def list_rates(self) -> np.ndarray:
        """Returns Muon's learning rate at each step, fp32; AdamW's is always the same share of it."""
        peak = self.muon_learning_rate
        warmup = min(self.warmup_steps, max(1, self.steps // 10))
        schedule = optax.warmup_cosine_decay_schedule(peak / warmup, peak, warmup, self.steps, peak / 100)
        return np.asarray(schedule(jnp.arange(self.steps)), np.float32)

    def build_optimizer(
        self, shapes: Mapping[str, tuple[int, ...]], *, is_hidden: IsHidden
    ) -> optax.GradientTransformation:
        """Builds the engine's optimizer, whose `update` takes the step's `rate`."""
        share = self.adam_learning_rate / self.muon_learning_rate
        moves = build_muon(shapes, is_matrix=is_hidden, adam_share=share, adam_b2=ADAM_BETA2)
        return guard(moves, max_grad_norm=self.clip_norm)


@dataclass(frozen=True, kw_only=True)
class Task:
    """A training task: `draw_batch(step)` must be a pure function; every array's first axis is the batch.

    `frozen` are further parameters for the loss, which are not trained.
    """

    name: str
    loss: Loss
    draw_batch: Callable[[int], Batch]
    course: Course
    is_hidden: IsHidden
    frozen: Mapping[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    seed: int = 0
    save_every_s: float = 120.0


def fill_mesh(count: int, mesh: Mesh) -> int:
    """Rounds a batch size up to a multiple of `dp`."""
    dp = mesh.shape["dp"]
    return -(-count // dp) * dp


def train(
    task: Task, initial: Mapping[str, np.ndarray], *, mesh: Mesh, folder: Path, stop: Stop
) -> dict[str, np.ndarray]:
    """Trains from the start or the newest state in `folder`, and returns the EMA of the parameters.

    Raises Unfinished when it is asked to stop before its last step; DivergedError when ten steps in
    a row have no finite gradients; RecipeError for the state of another task or network.
    """
    course = task.course
    optimizer = course.build_optimizer({name: value.shape for name, value in initial.items()}, is_hidden=task.is_hidden)
    trained = {
        name: hosts.place(np.asarray(value, np.float32), placement.split(name, value.shape, mesh))
        for name, value in initial.items()
    }
    state = begin(trained, optimizer, mesh, has_average=course.ema_decay > 0)
    whole, split = NamedSharding(mesh, PartitionSpec()), placement.rows(mesh)
    frozen = {name: hosts.place(np.asarray(value), whole) for name, value in task.frozen.items()}
    facts = {"task": task.name, "weights": sum(value.size for value in initial.values())}
    with ExitStack() as stack:
        states = StateFolder(folder / "state", keep=KEPT)
        stack.callback(states.close)
        first = 0
        if states.newest is not None:
            state = states.load(describe_state(state), facts, tell=tqdm.write)
            first = int(state.step)
        report = stack.enter_context(Report(folder / "log.jsonl", None, first=first))
        bar = stack.enter_context(tqdm(total=course.steps, initial=first, desc=task.name, unit="step", mininterval=2.0))
        state, done = run_steps(
            jax.jit(
                _build_step(task, optimizer, mesh),
                donate_argnums=0,
                out_shardings=(jax.tree.map(lambda leaf: leaf.sharding, state), whole),
            ),
            state,
            frozen,
            first=first,
            cadence=Cadence(steps=course.steps, save_every_s=task.save_every_s),
            rates=course.list_rates(),
            make_batch=lambda number: {
                name: hosts.place(value, split) for name, value in task.draw_batch(number).items()
            },
            states=states,
            facts=facts,
            stop=stop,
            on_event=_tell(bar, report),
        )
    if done < course.steps:
        raise Unfinished
    return {name: hosts.fetch(value) for name, value in (state.average or state.trained).items()}


def _build_step(task: Task, optimizer: Any, mesh: Mesh) -> Callable[..., tuple[TrainState, Metrics]]:
    """Builds step(state, frozen, batch, learning rate) -> state, metrics, as that of a user's training (step.py)."""
    layers, whole = linear.choose_layers(mesh), NamedSharding(mesh, PartitionSpec())

    def step(
        state: TrainState, frozen: Parameters, batch: Mapping[str, jax.Array], rate: jax.Array
    ) -> tuple[TrainState, Metrics]:
        key = jax.random.fold_in(jax.random.key(task.seed), state.step)

        def compute(trained: Parameters) -> jax.Array:
            gathered = jax.lax.with_sharding_constraint(trained, whole)
            with layers():
                return task.loss({**gathered, **frozen}, batch, key).astype(jnp.float32)

        loss, gradients = jax.value_and_grad(compute)(state.trained)
        moved, update_norm = move(optimizer, state, gradients, rate, ema=task.course.ema_decay)
        unknown = jnp.zeros(BINS)  # not every loss has a noise level
        metrics = Metrics(
            loss=loss,
            gradient_norm=optax.tree.norm(gradients),
            update_norm=update_norm,
            losses=unknown,
            counts=unknown,
            skipped=moved.optimizer.notfinite_count,
        )
        return moved._replace(step=state.step + 1), metrics

    return step


def _tell(bar: Any, report: Report) -> Callable[[dict[str, Any]], None]:
    """Returns what hears events: the log gets them whole, the terminal a smoothed loss."""
    smoothed: float | None = None

    def hear(event: dict[str, Any]) -> None:
        nonlocal smoothed
        report.write(event)
        if event["event"] == "note":
            bar.write(str(event["text"]))
        if event["event"] != "step":
            return
        loss = event["loss"]
        if loss is not None:  # as of a step that was skipped
            smoothed = loss if smoothed is None else 0.98 * smoothed + 0.02 * loss
        skipped = f", {event['skipped']} steps skipped" if event["skipped"] else ""
        bar.set_postfix_str(f"loss {math.nan if smoothed is None else smoothed:.4f}{skipped}")
        bar.update()

    return hear
