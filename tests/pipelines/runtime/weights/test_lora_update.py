"""LoHa, LoKr, DoRA and convolutions change weights as the papers and the programs that write them say."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn.functional import conv2d

from pipelines.runtime.weights.lora_build import JointLengthsError, MisfitError, build, deal_out, exchange_halves
from pipelines.runtime.weights.lora_merge import adapt
from pipelines.runtime.weights.lora_update import Update
from pipelines.runtime.weights.stored import Destination, read_headers

FACTOR, SCALE = 0.5, 0.7
RANK = 2

Change = Callable[..., np.ndarray]


@pytest.fixture(name="draw")
def make_draw() -> Callable[..., np.ndarray]:
    rng = np.random.default_rng(0)
    return lambda *shape: rng.normal(size=shape).astype(np.float32)


@pytest.fixture(name="change")
def keep_changer(tmp_path: Path) -> Change:
    """Reads a weight with an update, as the four corners of it that four devices would ask for."""

    def change(base: np.ndarray, update: Update) -> np.ndarray:
        save_file({"weight": torch.from_numpy(base)}, tmp_path / "a.safetensors")
        stored = adapt(read_headers([tmp_path / "a.safetensors"]), {"weight": [update]})["weight"]
        found = np.zeros(base.shape, np.float32)
        rows, columns = base.shape[0] // 2 + 1, base.shape[1] // 3
        for row in (slice(0, rows), slice(rows, base.shape[0])):
            for column in (slice(0, columns), slice(columns, base.shape[1])):
                index = (row, column, *(slice(0, size) for size in base.shape[2:]))
                part = np.empty(found[index].shape, np.float32)
                for read in stored.plan([Destination(index=index, array=part)]):
                    read.run()
                found[index] = part
        return found

    return change


def build_weight(parts: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> Update:
    return build(parts, {"weight": shape}, factor=FACTOR, scale=SCALE)["weight"]


@pytest.mark.parametrize("kernel", [(), (3, 3)])
def test_a_loha_is_the_product_of_two_pairs(
    change: Change, draw: Callable[..., np.ndarray], kernel: tuple[int]
) -> None:
    """LyCORIS and peft: (w1_a w1_b) * (w2_a w2_b) * alpha / rank, reshaped to the weight's own shape."""
    size = int(np.prod(kernel))
    parts = {name: draw(6, RANK) for name in ("hada_w1_a", "hada_w2_a")}
    parts |= {name: draw(RANK, 9 * size) for name in ("hada_w1_b", "hada_w2_b")}
    delta = (parts["hada_w1_a"] @ parts["hada_w1_b"]) * (parts["hada_w2_a"] @ parts["hada_w2_b"])
    base = draw(6, 9, *kernel)
    expected = base + FACTOR * SCALE * delta.reshape(base.shape)
    np.testing.assert_allclose(change(base, build_weight(parts, base.shape)), expected, atol=1e-5)


def test_a_loha_of_a_convolution_may_have_cores(change: Change, draw: Callable[..., np.ndarray]) -> None:
    """LyCORIS' rebuild_tucker: `i j k l, j r, i p -> p r k l` of core, b and a."""
    parts = {name: draw(RANK, 6) for name in ("hada_w1_a", "hada_w2_a")}
    parts |= {name: draw(RANK, 9) for name in ("hada_w1_b", "hada_w2_b")}
    parts |= {name: draw(RANK, RANK, 3, 3) for name in ("hada_t1", "hada_t2")}
    one, other = (
        np.einsum("ijkl,jr,ip->prkl", parts[f"hada_t{n}"], parts[f"hada_w{n}_b"], parts[f"hada_w{n}_a"]) for n in "12"
    )
    base = draw(6, 9, 3, 3)
    found = change(base, build_weight(parts, base.shape))
    np.testing.assert_allclose(found, base + FACTOR * SCALE * one * other, atol=1e-5)


@pytest.mark.parametrize(
    ("parts", "kernel"),
    [
        ({"lokr_w1": (2, 3), "lokr_w2": (3, 3)}, ()),
        ({"lokr_w1": (2, 3), "lokr_w2_a": (3, RANK), "lokr_w2_b": (RANK, 3)}, ()),
        ({"lokr_w1_a": (2, RANK), "lokr_w1_b": (RANK, 3), "lokr_w2": (3, 3)}, ()),
        ({"lokr_w1": (2, 3), "lokr_w2": (3, 3, 3, 3)}, (3, 3)),
        ({"lokr_w1": (2, 3), "lokr_w2_a": (3, RANK), "lokr_w2_b": (RANK, 27)}, (3, 3)),
        ({"lokr_w1": (2, 3), "lokr_w2_a": (RANK, 3), "lokr_w2_b": (RANK, 3), "lokr_t2": (RANK, RANK, 3, 3)}, (3, 3)),
    ],
)
def test_a_lokr_is_a_kronecker_product(
    change: Change, draw: Callable[..., np.ndarray], parts: dict[str, tuple[int, ...]], kernel: tuple[int, ...]
) -> None:
    drawn = {name: draw(*shape) for name, shape in parts.items()}

    def whole(name: str) -> np.ndarray:
        if name in drawn:
            return drawn[name]
        if name == "lokr_w2" and "lokr_t2" in drawn:
            return np.einsum("ijkl,jr,ip->prkl", drawn["lokr_t2"], drawn[f"{name}_b"], drawn[f"{name}_a"])
        return drawn[f"{name}_a"] @ drawn[f"{name}_b"]

    left, right = (torch.from_numpy(np.ascontiguousarray(whole(name))) for name in ("lokr_w1", "lokr_w2"))
    if right.ndim == 4:
        left = left[:, :, None, None]
    base = draw(6, 9, *kernel)
    expected = base + FACTOR * SCALE * torch.kron(left, right).numpy().reshape(base.shape)
    np.testing.assert_allclose(change(base, build_weight(drawn, base.shape)), expected, atol=1e-5)


def test_a_convolution_of_three_matrices_is_three_convolutions(change: Change, draw: Callable[..., np.ndarray]) -> None:
    parts = {"down": draw(RANK, 9, 1, 1), "mid": draw(RANK, RANK, 3, 3), "up": draw(6, RANK, 1, 1)}
    base, picture = draw(6, 9, 3, 3), torch.from_numpy(draw(1, 9, 5, 5))
    down, mid, up = (torch.from_numpy(parts[name]) for name in ("down", "mid", "up"))
    expected = conv2d(picture, torch.from_numpy(base)) + FACTOR * SCALE * conv2d(conv2d(conv2d(picture, down), mid), up)
    found = conv2d(picture, torch.from_numpy(change(base, build_weight(parts, base.shape))))
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("kernel", [(), (3, 3)])
def test_a_dora_gives_each_row_its_length(change: Change, draw: Callable[..., np.ndarray], kernel: tuple[int]) -> None:
    """The layer of peft: base(x) + (m / |W + s BA| - 1) base(x) + m / |W + s BA| s BA x, for any x."""
    parts = {"down": draw(RANK, 9, *kernel), "up": draw(6, RANK, *(1 for _ in kernel)), "magnitude": draw(6)}
    base = draw(6, 9, *kernel)
    low_rank = (parts["up"].reshape(6, RANK) @ parts["down"].reshape(RANK, -1)).reshape(base.shape)
    delta = FACTOR * SCALE * low_rank
    norm = np.linalg.norm((base + delta).reshape(6, -1), axis=1)
    share = (parts["magnitude"] / norm).reshape(6, *(1 for _ in base.shape[1:]))
    expected = base + (share - 1) * base + share * delta
    np.testing.assert_allclose(change(base, build_weight(parts, base.shape)), expected, atol=1e-5)
    scale = parts.pop("magnitude").reshape(6, *(1 for _ in base.shape[1:]))
    again = build_weight(parts | {"dora_scale": scale}, base.shape)
    np.testing.assert_allclose(change(base, again), expected, atol=1e-5)


def test_lycoris_may_give_columns_their_length(change: Change, draw: Callable[..., np.ndarray]) -> None:
    parts = {"down": draw(RANK, 9), "up": draw(6, RANK), "dora_scale": draw(1, 9)}
    base = draw(6, 9)
    whole = base + FACTOR * SCALE * parts["up"] @ parts["down"]
    expected = parts["dora_scale"] * whole / np.linalg.norm(whole, axis=0)
    update = build_weight(parts, base.shape)
    np.testing.assert_allclose(change(base, update), expected, atol=1e-5)
    with pytest.raises(JointLengthsError):
        deal_out(update, [(3, 9), (3, 9)])


def test_rows_of_several_weights_in_one_are_dealt_out(change: Change, draw: Callable[..., np.ndarray]) -> None:
    """Queries, keys and values in one, as the original FLUX.2 has them, of a kind that cannot be split into factors."""
    parts = {"lokr_w1": draw(3, 3), "lokr_w2": draw(4, 3), "magnitude": draw(12)}
    bases = [draw(4, 9) for _ in range(3)]
    whole = np.concatenate(bases) + FACTOR * SCALE * np.kron(parts["lokr_w1"], parts["lokr_w2"])
    expected = parts["magnitude"][:, None] * whole / np.linalg.norm(whole, axis=1, keepdims=True)
    dealt = deal_out(build_weight(parts, (12, 9)), [(4, 9)] * 3)
    for number, (base, update) in enumerate(zip(bases, dealt, strict=True)):
        np.testing.assert_allclose(change(base, update), expected[4 * number : 4 * number + 4], atol=1e-5)


@pytest.mark.parametrize(
    "parts",
    [
        {"hada_w1_a": (6, 2), "hada_w1_b": (2, 8), "hada_w2_a": (6, 2), "hada_w2_b": (2, 8)},
        {"lokr_w1": (2, 2), "lokr_w2": (3, 4)},
        {"lokr_w1": (2,), "lokr_w2": (3, 3)},
        {"down": (2, 9), "up": (6, 2), "magnitude": (5,)},
        {"down": (2, 9), "up": (6, 3)},
        {"diff": (6, 8)},
    ],
)
def test_another_size_is_a_misfit(draw: Callable[..., np.ndarray], parts: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(MisfitError):
        build_weight({name: draw(*shape) for name, shape in parts.items()}, (6, 9))


@pytest.mark.parametrize("kind", ["pair", "loha", "lokr", "difference", "rows", "columns"])
def test_halves_that_a_file_has_the_other_way_round_change_places(
    change: Change, draw: Callable[..., np.ndarray], kind: str
) -> None:
    pair = {"down": draw(RANK, 9), "up": draw(6, RANK)}
    parts = {
        "pair": pair,
        "loha": {name: draw(6, RANK) if name.endswith("a") else draw(RANK, 9)
                 for name in ("hada_w1_a", "hada_w1_b", "hada_w2_a", "hada_w2_b")},
        "lokr": {"lokr_w1": draw(3, 3), "lokr_w2": draw(2, 3)},
        "difference": {"diff": draw(6, 9)},
        "rows": pair | {"dora_scale": draw(6, 1)},
        "columns": pair | {"dora_scale": draw(1, 9)},
    }[kind]  # fmt: skip
    base = draw(6, 9)
    update = build_weight(parts, base.shape)
    there = np.roll(base, 3, axis=0)  # the weight as the file's author has it

    found = change(base, exchange_halves(update, 6))

    np.testing.assert_allclose(found, np.roll(change(there, update), 3, axis=0), atol=1e-5)


def test_a_slice_over_the_middle_of_exchanged_halves_is_of_both(draw: Callable[..., np.ndarray]) -> None:
    values = draw(6, 4)
    update = exchange_halves(build_weight({"diff": values}, (6, 4)), 6)

    for start, stop in ((0, 6), (1, 3), (2, 5), (3, 6), (4, 5)):
        found = update.compute((slice(start, stop), slice(1, 3)))  # pyrefly: ignore[missing-attribute]
        np.testing.assert_allclose(found, SCALE * np.roll(values, 3, axis=0)[start:stop, 1:3], rtol=1e-6)
