"""Classifies a postcard's attributes, so that "follows the prompt" is a number instead of an opinion.

The judge is a convolutional network of about a hundred thousand weights, trained on rendered postcards only. Its scenes
are drawn uniformly (a cactus is as often blue as green), otherwise it would see what is usual instead of what is there;
blur, noise, colour shifts and JPEG as augmentations let it read pictures that are softer than the renderer's. Each kind
of subject has its own attention map over the picture, which gives its presence and pools the features for its colour,
so that two subjects do not mix their colours.

`python -m pipelines.demos.judge` trains it anew, which takes about ten minutes on one core.
Not here: how pictures look (postcards/), any opinion on beauty.
"""

from __future__ import annotations

import argparse
import functools
import io
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from PIL import Image, ImageFilter
from safetensors.numpy import load_file, save_file

from pipelines.demos.postcards import COLOURS, PLACES, SUBJECTS, TIMES, WEATHERS, Scene, Subject, render

WEIGHTS_PATH = Path(__file__).parents[2] / "presets" / "demo" / "judge.safetensors"
SIDE = 64
# (width, height) of the shapes in which the demo checkpoints are trained and shown
SHAPES = ((256, 256), (320, 192), (192, 320), (128, 128))
# 12 input channels, because the picture enters as 2x2 blocks of RGB
CHANNELS = (12, 24, 32, 48, 64, 64, 64)
STRIDES = (1, 2, 1, 2, 1, 1)
CHUNK = 64

Params = dict[str, jax.Array]
Batch = dict[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The attributes that the judge sees in one picture."""

    time: str
    place: str
    weather: str
    subjects: tuple[Subject, ...]


def judge(pictures: np.ndarray | Sequence[np.ndarray]) -> list[Verdict]:
    """Returns one verdict for each uint8 picture (BHWC, or a list of HWC of any shapes)."""
    params = _load_weights(WEIGHTS_PATH)
    small = np.stack([_shrink(Image.fromarray(np.asarray(picture))) for picture in pictures])
    return list(_read(params, small))


def score(verdict: Verdict, scene: Scene) -> dict[str, bool]:
    """Returns which attributes of the scene the picture has; `no_extra` is false if it shows an unwanted subject."""
    seen = {subject.kind: subject.colour for subject in verdict.subjects}
    results = {
        "time": verdict.time == scene.time,
        "place": verdict.place == scene.place,
        "weather": verdict.weather == scene.weather,
    }
    for subject in scene.subjects:
        results[f"{subject.kind} present"] = subject.kind in seen
        results[f"{subject.kind} colour"] = seen.get(subject.kind) == subject.colour
    results["no_extra"] = set(seen) <= {subject.kind for subject in scene.subjects}
    return results


# ---- the network -----------------------------------------------------------------------------------------------------


def _shrink(picture: Image.Image) -> np.ndarray:
    return np.asarray(picture.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BOX))


def _draw_weights(rng: np.random.Generator) -> Params:
    def draw(*shape: int) -> np.ndarray:
        return rng.normal(0, (2 / np.prod(shape[:-1])) ** 0.5, shape).astype(np.float32)

    params: dict[str, np.ndarray] = {}
    for layer, (inner, outer) in enumerate(zip(CHANNELS, CHANNELS[1:], strict=False)):
        params[f"conv_{layer}.weight"] = draw(3, 3, inner, outer)
        params[f"conv_{layer}.bias"] = np.zeros(outer, np.float32)
        params[f"conv_{layer}.scale"] = np.ones(outer, np.float32)
    width = CHANNELS[-1]
    for name, inner, outer in (
        ("time", 2 * width, len(TIMES)),
        ("place", 2 * width, len(PLACES)),
        ("weather", 2 * width, len(WEATHERS)),
        ("map", width, len(SUBJECTS)),
        ("colour", width, len(SUBJECTS) * len(COLOURS)),
    ):
        params[f"{name}.weight"] = draw(inner, outer) * 0.3
        params[f"{name}.bias"] = np.zeros(outer, np.float32)
    return {name: jnp.asarray(value) for name, value in params.items()}


def _apply(params: Params, pictures_BHWC: jax.Array) -> dict[str, jax.Array]:
    batch = pictures_BHWC.shape[0]
    blocks = pictures_BHWC.reshape(batch, SIDE // 2, 2, SIDE // 2, 2, 3).transpose(0, 1, 3, 2, 4, 5)
    features = blocks.reshape(batch, SIDE // 2, SIDE // 2, 12) * 4 - 2
    for layer, stride in enumerate(STRIDES):
        out = jax.lax.conv_general_dilated(
            features,
            params[f"conv_{layer}.weight"],
            (stride, stride),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        out = out * jax.lax.rsqrt(jnp.mean(out * out, axis=-1, keepdims=True) + 1e-5)
        out = jax.nn.relu(out * params[f"conv_{layer}.scale"] + params[f"conv_{layer}.bias"])
        features = features + out if out.shape == features.shape else out
    spots_BLC = features.reshape(batch, -1, CHANNELS[-1])
    pooled = jnp.concatenate([spots_BLC.mean(1), spots_BLC.max(1)], axis=-1)
    logits = {name: pooled @ params[f"{name}.weight"] + params[f"{name}.bias"] for name in ("time", "place", "weather")}
    maps_BLS = spots_BLC @ params["map.weight"] + params["map.bias"]
    found_BSC = jnp.einsum("bls,blc->bsc", jax.nn.softmax(maps_BLS, axis=1), spots_BLC)
    weight_CSK = params["colour.weight"].reshape(-1, len(SUBJECTS), len(COLOURS))
    logits["colour"] = jnp.einsum("bsc,csk->bsk", found_BSC, weight_CSK) + params["colour.bias"].reshape(
        len(SUBJECTS), len(COLOURS)
    )
    logits["present"] = maps_BLS.max(axis=1)
    return logits


_apply_compiled = jax.jit(_apply)


@functools.cache
def _load_weights(path: Path) -> Params:
    return {name: jnp.asarray(value, jnp.float32) for name, value in load_file(path).items()}


def _read(params: Params, small: np.ndarray) -> Iterator[Verdict]:
    for start in range(0, len(small), CHUNK):
        chunk = small[start : start + CHUNK]
        padded = np.zeros((CHUNK, SIDE, SIDE, 3), np.float32)
        padded[: len(chunk)] = chunk / 255
        logits: dict[str, np.ndarray] = {
            name: np.asarray(value) for name, value in _apply_compiled(params, padded).items()
        }
        for row in range(len(chunk)):
            yield Verdict(
                time=TIMES[logits["time"][row].argmax()],
                place=PLACES[logits["place"][row].argmax()],
                weather=WEATHERS[logits["weather"][row].argmax()],
                subjects=tuple(
                    Subject(kind=kind, colour=COLOURS[logits["colour"][row, index].argmax()])
                    for index, kind in enumerate(SUBJECTS)
                    if logits["present"][row, index] > 0
                ),
            )


# ---- training --------------------------------------------------------------------------------------------------------


def draw_even_scene(rng: np.random.Generator) -> Scene:
    """Draws a scene uniformly from all combinations, including held-out ones, which the judge has to recognise too."""
    kinds = rng.permutation(len(SUBJECTS))[: rng.choice(3, p=(0.2, 0.45, 0.35))]
    return Scene(
        time=TIMES[rng.integers(len(TIMES))],
        place=PLACES[rng.integers(len(PLACES))],
        subjects=tuple(Subject(kind=SUBJECTS[kind], colour=COLOURS[rng.integers(len(COLOURS))]) for kind in kinds),
        weather=WEATHERS[rng.integers(len(WEATHERS))],
        layout=int(rng.integers(2**31)),
    )


def _soften(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Imitates what a small decoder and a file format do to a picture: it gets softer, then blocky."""
    if rng.random() < 0.55:
        picture = picture.filter(ImageFilter.GaussianBlur(min(picture.size) * rng.uniform(0.002, 0.014)))
    if rng.random() < 0.3:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=int(rng.integers(20, 90)))
        picture = Image.open(file)
    return picture


def _label(scenes: Iterable[Scene]) -> Batch:
    scenes = list(scenes)
    present = np.zeros((len(scenes), len(SUBJECTS)), np.float32)
    colour = np.zeros((len(scenes), len(SUBJECTS)), np.int32)
    for row, scene in enumerate(scenes):
        for subject in scene.subjects:
            kind = SUBJECTS.index(subject.kind)
            present[row, kind], colour[row, kind] = 1, COLOURS.index(subject.colour)
    return {
        "time": np.array([TIMES.index(scene.time) for scene in scenes], np.int32),
        "place": np.array([PLACES.index(scene.place) for scene in scenes], np.int32),
        "weather": np.array([WEATHERS.index(scene.weather) for scene in scenes], np.int32),
        "present": present,
        "colour": colour,
    }


def _draw_pool(rng: np.random.Generator, count: int) -> Batch:
    scenes = [draw_even_scene(rng) for _ in range(count)]
    pictures = np.zeros((count, SIDE, SIDE, 3), np.uint8)
    for index, scene in enumerate(scenes):
        width, height = SHAPES[index % len(SHAPES)]
        pictures[index] = _shrink(_soften(Image.fromarray(render(scene, width, height)), rng))
    return {"pictures": pictures, **_label(scenes)}


def _disturb(key: jax.Array, pictures_BHWC: jax.Array) -> jax.Array:
    """Augments pictures at random at each step: mirrors them, shifts their colours and adds noise."""
    batch = pictures_BHWC.shape[0]
    keys = jax.random.split(key, 7)
    mirrored = jax.random.bernoulli(keys[0], 0.5, (batch, 1, 1, 1))
    pictures = jnp.where(mirrored, pictures_BHWC[:, :, ::-1], pictures_BHWC)
    contrast = jax.random.uniform(keys[1], (batch, 1, 1, 1), minval=0.82, maxval=1.1)
    gain = jax.random.uniform(keys[2], (batch, 1, 1, 3), minval=0.94, maxval=1.06)
    shift = jax.random.uniform(keys[3], (batch, 1, 1, 1), minval=-0.05, maxval=0.05)
    blotches = jax.random.normal(keys[4], (batch, 16, 16, 3)) * jax.random.uniform(keys[5], (batch, 1, 1, 1)) * 0.05
    blotches = jnp.repeat(jnp.repeat(blotches, SIDE // 16, axis=1), SIDE // 16, axis=2)
    speckle = jax.random.normal(keys[6], pictures.shape) * 0.02
    return ((pictures - 0.5) * contrast * gain + 0.5 + shift + blotches + speckle).clip(0, 1)


def _measure_loss(params: Params, pictures_BHWC: jax.Array, labels: dict[str, jax.Array]) -> jax.Array:
    logits = _apply(params, pictures_BHWC)
    cross_entropy = optax.softmax_cross_entropy_with_integer_labels
    loss = sum(cross_entropy(logits[name], labels[name]).mean() for name in ("time", "place", "weather"))
    presence = optax.sigmoid_binary_cross_entropy(logits["present"], labels["present"]).sum(1).mean()
    colour = cross_entropy(logits["colour"], labels["colour"]) * labels["present"]
    return loss + presence + colour.sum() / labels["present"].sum()


def train(*, pictures: int, steps: int, batch: int = 64, learning_rate: float = 4e-3, seed: int = 0) -> Params:
    rng = np.random.default_rng(seed)
    params = _draw_weights(rng)
    schedule = optax.warmup_cosine_decay_schedule(0, learning_rate, 60, steps, learning_rate / 100)
    optimizer = optax.chain(optax.clip_by_global_norm(2.0), optax.adamw(schedule, weight_decay=1e-3))

    @jax.jit
    def step(params: Params, state: optax.OptState, key: jax.Array, chosen: dict) -> tuple:
        disturbed = _disturb(key, chosen["pictures"].astype(jnp.float32) / 255)
        loss, gradient = jax.value_and_grad(_measure_loss)(params, disturbed, chosen)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, loss

    start_s = time.monotonic()
    pool = _draw_pool(rng, pictures)
    print(f"{pictures} pictures drawn in {time.monotonic() - start_s:.0f} s", flush=True)
    state = optimizer.init(params)
    for number in range(steps):
        rows = rng.integers(pictures, size=batch)
        chosen = {name: values[rows] for name, values in pool.items()}
        params, state, loss = step(params, state, jax.random.key(number), chosen)
        if number % 100 == 99:
            print(f"step {number + 1}: loss {loss:.4f}, {time.monotonic() - start_s:.0f} s", flush=True)
    return params


def measure_accuracy(params: Params, *, count: int, blur: float, seed: int) -> dict[str, float]:
    """Returns the share of right attributes over fresh renders, blurred by `blur` of the shorter side."""
    rng = np.random.default_rng(seed)
    scenes = [draw_even_scene(rng) for _ in range(count)]
    small = []
    for index, scene in enumerate(scenes):
        picture = Image.fromarray(render(scene, *SHAPES[index % len(SHAPES)]))
        small.append(_shrink(picture.filter(ImageFilter.GaussianBlur(min(picture.size) * blur))))
    results: dict[str, list[bool]] = {}
    for verdict, scene in zip(_read(params, np.stack(small)), scenes, strict=True):
        for name, is_right in score(verdict, scene).items():
            results.setdefault(name.rsplit(" ")[-1], []).append(is_right)
    return {name: float(np.mean(values)) for name, values in results.items()}


def main() -> None:
    """Trains the judge, saves it in half precision, and prints how often the saved judge is right."""
    parser = argparse.ArgumentParser(description="train the judge of the demo checkpoints")
    parser.add_argument("--pictures", type=int, default=14000)
    parser.add_argument("--steps", type=int, default=3500)
    parser.add_argument("--output", type=Path, default=WEIGHTS_PATH)
    arguments = parser.parse_args()
    params = train(pictures=arguments.pictures, steps=arguments.steps)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: np.asarray(value, np.float16) for name, value in params.items()}, arguments.output)
    saved = _load_weights(arguments.output)
    for blur in (0.0, 0.006, 0.012):
        accuracy = measure_accuracy(saved, count=1000, blur=blur, seed=1)
        print(f"blur {blur}: " + ", ".join(f"{name} {value:.4f}" for name, value in accuracy.items()))


if __name__ == "__main__":
    main()
