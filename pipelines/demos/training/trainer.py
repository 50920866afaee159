"""The training loop: one jitted step over the mesh, EMA, checkpoints that survive kill -9, and progress lines.

It is data parallel: parameters are replicated, each batch is split over the mesh's `dp` axis, and XLA adds the
gradients' all-reduce. Batches are a pure function of the step, so a resumed run sees the same batches as an
uninterrupted one.
Not here: what is learned (demo.py), how parameters move (optimizer.py).
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tqdm import tqdm

from pipelines.demos.training.checkpoint import load_checkpoint, save_checkpoint
from pipelines.demos.training.optimizer import Course, IsHidden, build_optimizer
from pipelines.runtime.bridge.environment import linear_layers_as
from pipelines.training.engine import linear

Parameters = dict[str, jax.Array]
Batch = Mapping[str, np.ndarray]
Loss = Callable[[Parameters, Mapping[str, jax.Array], jax.Array], jax.Array]
"""loss(parameters, batch, random key) -> scalar, fp32."""


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
    frozen: Mapping[str, np.ndarray] = field(default_factory=dict)
    dtype: Any = jnp.float32
    seed: int = 0
    checkpoint_every_s: float = 120.0


def fill_mesh(count: int, mesh: Mesh) -> int:
    """Rounds a batch size up to a multiple of `dp`."""
    dp = mesh.shape["dp"]
    return -(-count // dp) * dp


def train(
    task: Task,
    initial: Mapping[str, np.ndarray],
    *,
    mesh: Mesh,
    folder: Path,
    stop_after_s: float | None = None,
) -> dict[str, np.ndarray]:
    """Trains from the start or the newest checkpoint in `folder`, and returns the EMA of the parameters.

    After `stop_after_s` the call writes a checkpoint and ends; a later call continues.
    """
    replicated = NamedSharding(mesh, PartitionSpec())
    parameters = {name: jnp.asarray(value, jnp.float32) for name, value in initial.items()}
    optimizer = build_optimizer(task.course, parameters, is_hidden=task.is_hidden)
    state = {"parameters": parameters, "ema": parameters, "optimizer": optimizer.init(parameters)}
    found = load_checkpoint(folder, state)
    first_step = 0
    if found is not None:
        state, first_step = found
    state = jax.device_put(jax.tree.map(jnp.copy, state), replicated)
    frozen = jax.device_put({name: jnp.asarray(value) for name, value in task.frozen.items()}, replicated)

    compute_gradients = _build_gradients(task)
    update = _build_update(task, optimizer)
    deadline = time.monotonic() + stop_after_s if stop_after_s else None
    last_saved = time.monotonic()
    smoothed: float | None = None
    pictures = 0
    with tqdm(total=task.course.steps, initial=first_step, desc=task.name, unit="step", mininterval=2.0) as bar:
        for step, batch in _prefetch(task, first_step, mesh):
            started = time.monotonic()
            key = jax.random.key(task.seed * 1_000_003 + step)
            loss, gradients = compute_gradients(state["parameters"], frozen, batch, key)
            state = update(state, gradients, step)
            value = float(loss)
            if not np.isfinite(value):
                raise FloatingPointError(f"{task.name}: the loss is {value} at step {step}; lower the learning rates")
            smoothed = value if smoothed is None else 0.98 * smoothed + 0.02 * value
            pictures = len(next(iter(batch.values())))
            bar.set_postfix_str(f"loss {smoothed:.4f}, {pictures / (time.monotonic() - started):.0f} pictures/s")
            bar.update()
            done = step + 1
            is_last = done == task.course.steps or (deadline is not None and time.monotonic() > deadline)
            if is_last or time.monotonic() - last_saved > task.checkpoint_every_s:
                save_checkpoint(folder, state, step=done, facts={"task": task.name})
                last_saved = time.monotonic()
            if is_last:
                break
    return {name: np.asarray(value) for name, value in jax.device_get(state["ema"]).items()}


def _build_gradients(task: Task) -> Callable[..., tuple[jax.Array, Parameters]]:
    def compute(
        parameters: Parameters, frozen: Parameters, batch: Mapping[str, jax.Array], key: jax.Array
    ) -> tuple[jax.Array, Parameters]:
        def loss(parameters: Parameters) -> jax.Array:
            cast = {name: value.astype(task.dtype) for name, value in {**parameters, **frozen}.items()}
            with linear_layers_as(linear.linear) if is_cpu else contextlib.nullcontext():
                return task.loss(cast, batch, key).astype(jnp.float32)

        return jax.value_and_grad(loss)(parameters)

    is_cpu = jax.default_backend() == "cpu"
    if is_cpu:
        linear.choose_dtype()  # not while tracing

    return jax.jit(compute)


def _build_update(task: Task, optimizer: optax.GradientTransformation) -> Callable[..., Any]:
    def update(state: Any, gradients: Parameters, step: jax.Array) -> Any:
        moves, optimizer_state = optimizer.update(gradients, state["optimizer"], state["parameters"])
        parameters = optax.apply_updates(state["parameters"], moves)
        # Early on the average covers about a tenth of the steps so far, so that it forgets the random start.
        decay = jnp.minimum(task.course.ema_decay, (1.0 + step) / (10.0 + step))
        ema = optax.incremental_update(parameters, state["ema"], 1.0 - decay)
        return {"parameters": parameters, "ema": ema, "optimizer": optimizer_state}

    return jax.jit(update, donate_argnums=0)


def _prefetch(task: Task, first_step: int, mesh: Mesh) -> Iterator[tuple[int, dict[str, jax.Array]]]:
    """Draws the next batches in a thread while the devices work on the current one."""
    waiting: queue.Queue[Any] = queue.Queue(maxsize=2)
    is_over = threading.Event()
    split = NamedSharding(mesh, PartitionSpec("dp"))

    def draw() -> None:
        for step in range(first_step, task.course.steps):
            try:
                item: Any = (step, task.draw_batch(step))
            except Exception as error:  # noqa: BLE001 - handed to the loop, which raises it
                item = error
            while not is_over.is_set():
                try:
                    waiting.put(item, timeout=0.2)
                    break
                except queue.Full:
                    continue
            if is_over.is_set() or isinstance(item, Exception):
                return

    thread = threading.Thread(target=draw, name="draw-batches", daemon=True)
    thread.start()
    try:
        for _ in range(first_step, task.course.steps):
            item = waiting.get()
            if isinstance(item, Exception):
                raise item
            step, batch = item
            yield step, {name: jax.device_put(value, split) for name, value in batch.items()}
    finally:
        is_over.set()
        thread.join()
