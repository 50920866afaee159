"""One training step as one compiled program: noise, prediction, gradient, optimizer, average, metrics.

Weights that learn are kept in fp32 and cast where they are used, so that small moves count (bf16 has 8 bits). The
batch is split over the mesh's `dp`; weights may be, too (placement.py), and are gathered where they are used, a layer
of a scan just before it runs. Randomness comes from the seed and the step's number, so any mesh, any way of dividing a
batch, and a resumed run see the same noise.
"""

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pipelines.errors import LumeshError
from pipelines.families.trainable import Learner
from pipelines.messages import say
from pipelines.models.catalog import Shape
from pipelines.runtime.bridge.modules import (
    NARROW_PRODUCT,
    PRODUCT,
    WIDE_PRODUCT,
    LayerPlacement,
    RematPolicy,
    TracedModule,
)
from pipelines.runtime.devices import hosts
from pipelines.runtime.devices.sharding import STACK
from pipelines.runtime.kernels.attention_axes import AttentionAxes
from pipelines.runtime.kernels.attention_gradient import KEPT, KEPT_OF_FEW
from pipelines.runtime.kernels.convolution import PictureAxes
from pipelines.runtime.kernels.low_rank import LOW_RANK
from pipelines.runtime.kernels.norms import MOMENTS
from pipelines.runtime.programs.compiled import Program, Programs
from pipelines.training.data.rows import TWIN
from pipelines.training.engine import linear
from pipelines.training.engine.adapters import is_lora
from pipelines.training.engine.casting import cast
from pipelines.training.engine.objective import Noised, Objective, sum_errors
from pipelines.training.settings import REMATS_BY_SIZE

log = logging.getLogger(__name__)

Weights = dict[str, jax.Array]

_COSTLY = (NARROW_PRODUCT, KEPT, MOMENTS)  # for their bytes
_NARROW = (*_COSTLY, PRODUCT, KEPT_OF_FEW)

POLICIES: Mapping[str, RematPolicy | None] = {
    "none": None,
    "layers": jax.checkpoint_policies.save_only_these_names(*_NARROW, WIDE_PRODUCT, LOW_RANK),
    "narrow": jax.checkpoint_policies.save_only_these_names(*_NARROW, LOW_RANK),
    "attention": jax.checkpoint_policies.save_only_these_names(*_COSTLY, LOW_RANK),
    "full": jax.checkpoint_policies.nothing_saveable,
}
"""What is kept of a layer for its gradient, from all to nothing but what it began with.

`layers` keeps the products of linear layers and convolutions, what attention gave, and the moments of norms, two
numbers a token or group: all else is cheap to compute again, and costs less time than it takes to write and read, so
this is mostly faster than keeping all. `narrow` leaves out products with more features than what they were made of,
such as a feed-forward's first, and `attention` all but those with fewer, such as its last, and attention to few keys.
"""

MOST_EARLY_BYTES = 2**30
"""A LoRA with more bytes than these is gathered layer by layer in any case."""

BINS = 8
"""Parts of the noise's range whose losses are told apart."""


class TrainState(NamedTuple):
    """All that a step changes; `average` is empty without EMA. Arrays are fp32."""

    step: jax.Array
    trained: Weights
    optimizer: Any
    average: Weights


class Metrics(NamedTuple):
    """Of one step, fp32: `losses` and `counts` (BINS,) by sigma; `skipped`: steps in a row that were no numbers."""

    loss: jax.Array
    gradient_norm: jax.Array
    update_norm: jax.Array
    losses: jax.Array
    counts: jax.Array
    skipped: jax.Array


@dataclass(frozen=True, kw_only=True)
class StepPlan:
    """What the step computes; `accumulate` parts of the batch come one after the other.

    On a CPU linear layers multiply in bf16 and add in fp32 (linear.py), unless the step is to be `exact`.
    """

    module: TracedModule
    learner: Learner
    objective: Objective
    optimizer: Any
    mesh: Mesh
    dtype: Any
    trains_all: bool = False
    accumulate: int = 1
    ema: float = 0.0
    seed: int = 0
    remat: str = "none"
    exact: bool = False


def build_step(plan: StepPlan) -> Callable[..., tuple[TrainState, Metrics]]:
    """Builds step(state, frozen weights, rows, learning rate) -> state, metrics.

    Every array of `rows` has the batch as its first axis; `weight` (B,) says how much a row counts in the mean over all
    rows, and is 0 for those that only fill the batch.
    """
    layers = linear.choose_layers(plan.mesh, exact=plan.exact)

    def step(
        state: TrainState, frozen: Weights, rows: Mapping[str, jax.Array], rate: jax.Array
    ) -> tuple[TrainState, Metrics]:
        key = jax.random.fold_in(jax.random.key(plan.seed), state.step)
        latents_key, noise_key = jax.random.split(key)
        noised = plan.objective.add_noise(_draw_latents(rows, latents_key), noise_key)
        # The loss is divided by the number of rows: divided by their weights, equal weights would cancel.
        total = jnp.maximum((rows["weight"] > 0).sum().astype(jnp.float32), 1.0)

        def compute(trained: Weights, part: tuple[Any, Any]) -> tuple[jax.Array, jax.Array]:
            own_rows, own_noised = part
            call = prepare_call(plan, trained | frozen, remat=POLICIES[plan.remat])
            with layers():
                predict = functools.partial(plan.learner.predict, dtype=plan.dtype)
                prediction = predict(call, noisy=own_noised.noisy, timesteps=own_noised.timesteps, rows=own_rows)
                if TWIN in own_rows:
                    noisy, timesteps, twins = _take_twins((own_noised.noisy, own_noised.timesteps, own_rows))
                    unlearnt = prepare_call(plan, jax.tree.map(jnp.zeros_like, trained) | frozen)
                    before = predict(unlearnt, noisy=noisy, timesteps=timesteps, rows=twins)
                    own_noised = _keep(own_noised, jax.lax.stop_gradient(before))
            summed, errors = sum_errors(prediction, own_noised, own_rows["weight"])
            return summed / total, errors

        gradient_of = jax.value_and_grad(compute, has_aux=True)
        own = 2 if TWIN in rows else 1
        (loss, errors), gradients = _accumulate(gradient_of, state.trained, (dict(rows), noised), plan, together=own)
        moved, update_norm = move(plan.optimizer, state, gradients, rate, ema=plan.ema)
        counted = rows["weight"] > 0
        places = jnp.clip((noised.sigmas * BINS).astype(jnp.int32), 0, BINS - 1)
        metrics = Metrics(
            loss=loss,
            gradient_norm=optax.tree.norm(gradients),
            update_norm=update_norm,
            losses=jnp.zeros(BINS).at[places].add(jnp.where(counted, errors, 0)),
            counts=jnp.zeros(BINS).at[places].add(counted.astype(jnp.float32)),
            skipped=moved.optimizer.notfinite_count,
        )
        return moved._replace(step=state.step + 1), metrics

    return step


def move(
    optimizer: Any, state: TrainState, gradients: Weights, rate: jax.Array, *, ema: float
) -> tuple[TrainState, jax.Array]:
    """Returns the state with what the gradients changed, its step not counted yet, and how far its weights moved.

    The distance is of the weights themselves: a compiler that needs the moves besides writes them all.
    """
    moves, after = optimizer.update(gradients, state.optimizer, state.trained, rate=rate)
    trained: Any = optax.apply_updates(state.trained, moves)
    average: Any = state.average
    if average:
        # Early on it covers about a tenth of the steps so far, so that it forgets the start.
        decay = jnp.minimum(ema, (1.0 + state.step) / (10.0 + state.step))
        average = optax.incremental_update(trained, average, 1.0 - decay)
    distance = optax.tree.norm(jax.tree.map(jnp.subtract, trained, state.trained))
    return TrainState(state.step, trained, after, average), distance


def build_program(
    plan: StepPlan, state: TrainState, frozen: Mapping[str, Any], rows: Mapping[str, Any], *, key: tuple[Any, ...]
) -> Program:
    """Describes the compiled step; `state`, `frozen` and `rows` are shapes, dtypes and shardings.

    The state is donated but on a CPU: XLA:CPU copies a donated array that is needed after its successor was computed,
    as all of a state's are, so the step would take about as much memory and a tenth more time.
    """
    replicated: Any = NamedSharding(plan.mesh, PartitionSpec())
    kind = "full" if plan.trains_all else "lora"
    return Program(
        key=key,
        function=build_step(plan),
        arguments=(state, dict(frozen), dict(rows), jax.ShapeDtypeStruct((), jnp.float32, sharding=replicated)),
        donate=() if plan.mesh.devices.flat[0].platform == "cpu" else (0,),
        out_shardings=(
            jax.tree.map(lambda leaf: leaf.sharding, state),
            Metrics._make([replicated] * len(Metrics._fields)),
        ),
        vmem_share=plan.learner.vmem_share_of_all if plan.trains_all else plan.learner.vmem_share,
        compact_vmem_bytes=plan.learner.compact_vmem_bytes,
        joins_little=not plan.module.has_scans,  # as many gradients as there are weights
        learns=True,
        exchanges=kind in plan.learner.exchanged_apart and _is_split(state.trained | dict(frozen)),
        gathers_apart=kind in plan.learner.gathered_apart,
    )


def _is_split(weights: Mapping[str, Any]) -> bool:
    """Tells whether each device holds a part of a model's own weights; a LoRA's, always split, are few to exchange."""
    return any(not weight.sharding.is_fully_replicated for name, weight in weights.items() if not is_lora(name))


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to compute a step: what is computed twice, and in how many parts the batch is."""

    remat: str
    accumulate: int


def name_step(shape: Shape, way: Way) -> tuple[Any, ...]:
    """Returns the key of a step's program, by which packs know it."""
    return ("train", shape, way.remat, way.accumulate)


def list_remats(asked: str, plan: StepPlan) -> tuple[str, ...]:
    """Lists what to try for a setting of remat, the quickest first.

    On a CPU, whose memory is large and whose compiler says nothing, `auto` is `none`. Elsewhere it begins so where no
    layers run as a scan, as in Stable Diffusion's UNet. A scan copies all that is kept for the gradient into arrays of
    all layers, which takes longer than to compute the cheap parts again.
    """
    if asked != "auto":
        return (asked,)
    platform = plan.mesh.devices.flat[0].platform
    if platform == "cpu":
        return ("none",)
    if not plan.module.has_scans:
        return ("none", *REMATS_BY_SIZE)
    knows_quickest = plan.trains_all and platform == "tpu"  # which was only ever estimated for these
    return REMATS_BY_SIZE[REMATS_BY_SIZE.index(plan.learner.remat_of_all) if knows_quickest else 0 :]


def list_ways(asked: str, plan: StepPlan, *, batch_size: int, is_strict: bool = False) -> tuple[Way, ...]:
    """Lists the ways to try for a setting of remat, the quickest first; the batch and so what is learnt stay the same.

    If nothing fits, the batch is computed in twice as many parts, again and again, as long as each device has a picture
    of each part; not if `is_strict`.
    """
    remats, accumulate = list_remats(asked, plan), plan.accumulate
    ways = [Way(remat=remat, accumulate=accumulate) for remat in remats]
    while not is_strict and batch_size % (plan.mesh.shape["dp"] * 2 * accumulate) == 0:
        accumulate *= 2
        ways.append(Way(remat=remats[-1], accumulate=accumulate))
    return tuple(ways)


def compile_first_that_fits(
    programs: Programs,
    build: Callable[[Way], Program],
    ways: Sequence[Way],
    *,
    on_refusal: Callable[[Way, Way | None], None],
    room_bytes: int | None = None,
) -> Way:
    """Compiles the step in one of `ways` after the other until the devices have room for it, and returns that one.

    TPU's compiler refuses what a device cannot hold, a GPU's does not; `room_bytes` are those that a device has beside
    the step's arguments, None if that is not known. `on_refusal` hears which one did not fit, and which is next. Raises
    LumeshError when the last one does not fit. Several hosts take the first with which it fits on all of them.
    """
    for way, following in zip(ways, (*ways[1:], None), strict=True):
        program = build(way)
        has_room = _compile(programs, program) and _has_room(programs, program, room_bytes)
        if all(hosts.collect(f"room for {' '.join(map(str, program.key))}", has_room)):
            return way
        if programs.has(*program.key):
            programs.drop(*program.key)
        on_refusal(way, following)
    if (remat := ways[-1].remat) != REMATS_BY_SIZE[-1]:
        raise LumeshError(
            say("A step does not fit into the devices' memory with remat {remat}.", remat=remat),
            advice=say("Choose remat auto, which computes as much twice as it takes, or take fewer pictures a step."),
        )
    raise LumeshError(
        say("A step does not fit into the devices' memory, even if all of its layers are computed twice."),
        advice=say("Take fewer pictures a step, or compute them in parts (accumulate), or train on more devices."),
    )


def _compile(programs: Programs, program: Program) -> bool:
    """Compiles a program, and tells whether the compiler had room for it."""
    try:
        programs.compile_all([program])
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return False
    return True


def _has_room(programs: Programs, program: Program, room_bytes: int | None) -> bool:
    wanted = programs.count_working_bytes(*program.key)
    if room_bytes is None or wanted <= room_bytes:
        return True
    log.info("%s takes %.2f GB of a device, which has %.2f", program.key, wanted / 1e9, room_bytes / 1e9)
    return False


def _take_twins(rows: Any) -> Any:
    """Returns every second row of all arrays: rows.py has each followed by its twin."""
    return jax.tree.map(lambda value: value.reshape(-1, 2, *value.shape[1:])[:, 1], rows)


def _keep(noised: Noised, before: jax.Array) -> Noised:
    """Returns the batch with what the model predicted of twins before it learnt as their target."""
    pairs = noised.target.reshape(-1, 2, *noised.target.shape[1:])
    target = pairs.at[:, 1].set(before.astype(jnp.float32)).reshape(noised.target.shape)
    return noised._replace(target=target)


def _draw_latents(rows: Mapping[str, jax.Array], key: jax.Array) -> jax.Array:
    """Returns the latents in fp32, drawn from the autoencoder's distribution where the rows have one."""
    if "latents" in rows:
        return rows["latents"].astype(jnp.float32)
    mean, deviation = (rows[name].astype(jnp.float32) for name in ("mean", "deviation"))
    return mean + deviation * jax.random.normal(key, mean.shape)


def prepare_call(plan: StepPlan, weights: Weights, **options: Any) -> Callable[..., Any]:
    """Returns the module with these weights, as the family's `predict` calls it."""
    return functools.partial(
        plan.module.call,
        _gather(weights, plan),
        attention=AttentionAxes(mesh=plan.mesh, rows="dp", learns=True, sums_apart=plan.learner.sums_apart),
        pictures=PictureAxes(mesh=plan.mesh, spec=PartitionSpec("dp"), learns=True),
        running_layer=LayerPlacement(mesh=plan.mesh, rules=((r"", PartitionSpec()),)),
        **options,
    )


def _gather(weights: Weights, plan: StepPlan) -> Weights:
    """Casts the weights, and gathers those outside of scans on every device; a scan gathers its layers one by one.

    A LoRA's are gathered before a scan, too, where the learner says so and they are not large. Without a LoRA all
    weights have masters in fp32; with one, only itself and a few small ones.
    """
    replicated = NamedSharding(plan.mesh, PartitionSpec())
    adapters = {name for name in weights if is_lora(name)}
    ready = {name: cast(value, plan.dtype, is_large=not adapters) for name, value in weights.items()}
    is_small = sum(ready[name].nbytes for name in adapters) <= MOST_EARLY_BYTES
    early = adapters if plan.learner.gathers_adapters and is_small else set[str]()
    return {
        name: jax.lax.with_sharding_constraint(value, replicated) if STACK not in name or name in early else value
        for name, value in ready.items()
    }


def _accumulate(gradient_of: Any, trained: Weights, batch: Any, plan: StepPlan, *, together: int) -> Any:
    """Returns ((loss, each row's error), gradients) of the batch, computed part by part.

    Rows are dealt out so that each part lies on all devices, as the whole does, and `together` of them stay side by
    side.
    """
    if plan.accumulate == 1:
        return gradient_of(trained, batch)
    count = plan.accumulate

    def deal_out(value: jax.Array) -> jax.Array:
        kept = (together, *value.shape[1:]) if together > 1 else value.shape[1:]
        parts = value.reshape(len(value) // together // count, count, *kept).swapaxes(0, 1)
        if together > 1:
            parts = parts.reshape(count, len(value) // count, *value.shape[1:])
        return jax.lax.with_sharding_constraint(parts, NamedSharding(plan.mesh, PartitionSpec(None, "dp")))

    def add(carry: Any, part: Any) -> tuple[Any, Any]:
        loss, gradients = carry
        (own_loss, errors), own = gradient_of(trained, part)
        return (loss + own_loss, jax.tree.map(jnp.add, gradients, own)), errors

    zeros = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, trained))
    (loss, gradients), errors = jax.lax.scan(add, zeros, jax.tree.map(deal_out, batch))
    if together > 1:
        errors = errors.reshape(count, -1, together)
    return (loss, errors.swapaxes(0, 1).reshape(-1)), gradients
