"""One step of any scheduler on the devices, from a row of its table (runtime/sampling/schedules.py)."""

from typing import Any, NamedTuple

import jax

from pipelines.runtime.sampling.schedules import BASIS, COLUMNS


class State(NamedTuple):
    """State between steps, all fp32 of the latents' shape; the last two only where a scheduler needs them.

    The fields are arrays; where a program is described, what stands for them (shapes, shardings).
    """

    latents: Any
    x0: Any
    older_x0: Any = None
    anchor: Any = None


def read_row(table: jax.Array, index: jax.Array) -> dict[str, jax.Array]:
    return dict(zip(COLUMNS, table[index], strict=True))


def advance(row: dict[str, jax.Array], state: State, output: jax.Array, noise: jax.Array | None = None) -> State:
    """The state after a step in which the denoiser answered `output` (fp32)."""
    basis = {
        "latents": state.latents,
        "output": output,
        "x0": state.x0,
        "older_x0": state.older_x0,
        "anchor": state.anchor,
    }

    def combine(prefix: str) -> jax.Array:
        terms = [row[f"{prefix}_{name}"] * basis[name] for name in BASIS if basis[name] is not None]
        return sum(terms[1:], start=terms[0])

    moved = combine("by")
    if noise is not None:
        moved = moved + row["by_noise"] * noise
    x0 = row["x0_latents"] * state.latents + row["x0_output"] * output
    if state.anchor is None:
        return State(moved, x0)
    return State(moved, x0, state.x0, combine("anchor"))
