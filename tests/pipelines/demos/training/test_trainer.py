"""A toy task through the whole loop: killed and resumed, spread over devices, and refused when it goes wrong."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pipelines.demos.training.checkpoint import KEPT, load_checkpoint, save_checkpoint
from pipelines.demos.training.optimizer import Course, build_optimizer
from pipelines.demos.training.trainer import Task, train
from pipelines.runtime.devices.mesh import build_mesh
from tests.places import ROOT

STEPS = 40
WEIGHT = np.array(
    [[1.0, -2.0, 0.5, 0.0], [0.0, 1.0, 1.0, -1.0], [2.0, 0.0, -0.5, 1.0], [0.5, 0.5, 0.5, 0.5]], np.float32
)


def draw_batch(step: int) -> dict[str, np.ndarray]:
    inputs = np.random.default_rng(step).normal(size=(16, 4)).astype(np.float32)
    return {"inputs": inputs, "targets": inputs @ WEIGHT.T}


def measure(parameters: Mapping[str, jax.Array], batch: Mapping[str, jax.Array], key: jax.Array) -> jax.Array:
    """Mean squared error of a two-layer net, with a little noise on the inputs."""
    noise = 0.01 * jax.random.normal(key, batch["inputs"].shape)
    hidden = jnp.tanh((batch["inputs"] + noise) @ parameters["hidden.weight"].T)
    return jnp.square(hidden @ parameters["head.weight"].T + parameters["head.bias"] - batch["targets"]).mean()


def make_task(**changes: Any) -> Task:
    fields = {
        "name": "toy",
        "loss": measure,
        "draw_batch": draw_batch,
        "course": Course(steps=STEPS, muon_learning_rate=0.02, adam_learning_rate=0.02, warmup_steps=4, ema_decay=0.9),
        "is_hidden": lambda name: name.startswith("hidden"),
        "checkpoint_every_s": 0.0,
    }
    return Task(**fields | changes)


def draw_parameters(width: int = 8) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "hidden.weight": rng.normal(size=(width, 4)).astype(np.float32),
        "head.weight": rng.normal(size=(4, width)).astype(np.float32) / 3,
        "head.bias": np.zeros(4, np.float32),
    }


def run(folder: Path, *, mesh: str = "dp=1", **changes: Any) -> dict[str, np.ndarray]:
    return train(make_task(**changes), draw_parameters(), mesh=build_mesh(mesh), folder=folder)


def find_steps(folder: Path) -> list[int]:
    return sorted(int(file.stem.removeprefix("step-")) for file in folder.glob("step-*.safetensors"))


def assert_same(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray], *, within: float = 0.0) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_allclose(value, other[name], rtol=0, atol=within, err_msg=name)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """The EMA of a training that nothing disturbed."""
    return run(tmp_path_factory.mktemp("unbroken"))


@pytest.fixture
def half_way(tmp_path: Path) -> Callable[..., Path]:
    """A folder with the checkpoints of a training that broke in the middle."""

    def make(broken_at: int = 20) -> Path:
        def draw_until(step: int) -> dict[str, np.ndarray]:
            if step == broken_at:
                raise KeyError("the disk is gone")
            return draw_batch(step)

        with pytest.raises(KeyError, match="the disk is gone"):
            run(tmp_path, draw_batch=draw_until)
        return tmp_path

    return make


def test_it_learns(unbroken: dict[str, np.ndarray]) -> None:
    batch = draw_batch(1000)
    before, after = (float(measure(values, batch, jax.random.key(0))) for values in (draw_parameters(), unbroken))
    assert after < 0.5 * before


def test_a_resumed_training_ends_where_an_unbroken_one_does(
    half_way: Callable[..., Path], unbroken: dict[str, np.ndarray]
) -> None:
    folder = half_way()
    drawn: list[int] = []

    def watch(step: int) -> dict[str, np.ndarray]:
        drawn.append(step)
        return draw_batch(step)

    assert_same(run(folder, draw_batch=watch), unbroken)
    assert drawn[0] == 20


KILLED = """
import json, os, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
import test_trainer as toy

def draw_and_die(step):
    if step == 30 and sys.argv[3] == "die":  # drawn while the loop is at most three steps behind
        os.kill(os.getpid(), 9)
    return toy.draw_batch(step)

ema = toy.run(Path(sys.argv[1]), draw_batch=draw_and_die)
print(json.dumps({name: value.tolist() for name, value in ema.items()}))
"""


def test_kill_9_costs_only_the_steps_since_the_last_checkpoint(tmp_path: Path, unbroken: dict[str, np.ndarray]) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "toy"), str(Path(__file__).parent)]
    options: dict[str, Any] = {"cwd": ROOT, "capture_output": True, "text": True, "timeout": 120}
    options["env"] = os.environ | {"PYTHONPATH": str(ROOT)}
    killed = subprocess.run([*command, "die"], **options)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    assert 20 <= find_steps(tmp_path / "toy")[-1] < STEPS
    resumed = subprocess.run([*command, "live"], **options)
    assert resumed.returncode == 0, resumed.stderr[-2000:]
    found = {name: np.asarray(value, np.float32) for name, value in json.loads(resumed.stdout).items()}
    assert_same(found, unbroken, within=1e-6)


def test_a_torn_newest_checkpoint_gives_way_to_the_one_before(
    half_way: Callable[..., Path], unbroken: dict[str, np.ndarray]
) -> None:
    folder = half_way()
    newest = folder / f"step-{find_steps(folder)[-1]:08d}.safetensors"
    newest.write_bytes(newest.read_bytes()[:-50])
    assert_same(run(folder), unbroken)


def test_a_half_written_checkpoint_is_not_seen(half_way: Callable[..., Path], unbroken: dict[str, np.ndarray]) -> None:
    folder = half_way()
    (folder / "step-00000039.partial").write_bytes(b"half")
    assert_same(run(folder), unbroken)


def test_only_the_newest_checkpoints_are_kept(half_way: Callable[..., Path]) -> None:
    assert find_steps(half_way()) == [21 - KEPT, 20]


def test_a_finished_training_is_not_run_again(tmp_path: Path, unbroken: dict[str, np.ndarray]) -> None:
    run(tmp_path)

    def fail(_step: int) -> dict[str, np.ndarray]:
        raise AssertionError("nothing is left to learn")

    assert_same(run(tmp_path, draw_batch=fail), unbroken)


def test_a_checkpoint_of_another_model_is_refused(half_way: Callable[..., Path]) -> None:
    with pytest.raises(ValueError, match="is of another model or optimizer; give another folder"):
        train(make_task(), draw_parameters(width=6), mesh=build_mesh("dp=1"), folder=half_way())


def test_eight_devices_learn_what_one_does(tmp_path: Path, unbroken: dict[str, np.ndarray]) -> None:
    assert_same(run(tmp_path, mesh="dp=8"), unbroken, within=1e-4)


def test_a_loss_that_is_not_finite_ends_the_training(tmp_path: Path) -> None:
    def poison(step: int) -> dict[str, np.ndarray]:
        return draw_batch(step) if step < 3 else {name: value * np.nan for name, value in draw_batch(step).items()}

    with pytest.raises(FloatingPointError, match=r"toy: the loss is nan at step 3; lower the learning rates"):
        run(tmp_path, draw_batch=poison)
    assert find_steps(tmp_path)[-1] == 3


def test_time_up_leaves_a_checkpoint_to_go_on_from(tmp_path: Path, unbroken: dict[str, np.ndarray]) -> None:
    task = make_task(checkpoint_every_s=1e9)
    train(task, draw_parameters(), mesh=build_mesh("dp=1"), folder=tmp_path, stop_after_s=1e-6)
    assert find_steps(tmp_path) == [1]
    assert_same(run(tmp_path), unbroken)


def test_training_in_bf16_keeps_its_parameters_in_fp32(tmp_path: Path) -> None:
    values = run(tmp_path, dtype=jnp.bfloat16)
    assert {value.dtype for value in values.values()} == {np.dtype(np.float32)}


def test_frozen_parameters_are_seen_but_neither_moved_nor_kept(tmp_path: Path) -> None:
    parameters = draw_parameters()
    hidden = {"hidden.weight": parameters.pop("hidden.weight")}
    mesh = build_mesh("dp=1")
    learnt = train(make_task(frozen=hidden), parameters, mesh=mesh, folder=tmp_path / "one")
    assert learnt.keys() == parameters.keys()
    other = {"hidden.weight": hidden["hidden.weight"] * 2}
    elsewhere = train(make_task(frozen=other), parameters, mesh=mesh, folder=tmp_path / "other")
    assert not np.allclose(learnt["head.weight"], elsewhere["head.weight"])


def test_a_state_reads_back_bit_for_bit(tmp_path: Path) -> None:
    state = {"a": np.float32(np.pi) * np.ones((3, 2), np.float32), "b": [np.int32(7), np.zeros(0, np.float32)]}
    save_checkpoint(tmp_path, state, step=5, facts={"task": "toy"})
    found, step = load_checkpoint(tmp_path, state)
    assert step == 5
    jax.tree.map(np.testing.assert_array_equal, found, state)


def test_an_empty_folder_has_no_checkpoint(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path / "nothing", {"a": np.zeros(1)}) is None


def test_only_hidden_matrices_are_orthogonalised() -> None:
    """A first Muon step moves every direction of a matrix alike; AdamW's follows the signs of the gradient."""
    course = Course(steps=10, muon_learning_rate=0.1, adam_learning_rate=0.1, warmup_steps=1)
    gradient = jnp.asarray(np.random.default_rng(1).normal(size=(4, 4)).astype(np.float32)) * jnp.array([10, 1, 1, 0.1])
    parameters = {"hidden.weight": gradient, "head.weight": gradient}
    optimizer = build_optimizer(course, parameters, is_hidden=lambda name: name.startswith("hidden"))
    moves, _ = optimizer.update(parameters, optimizer.init(parameters), parameters)
    directions = np.linalg.svd(moves["hidden.weight"], compute_uv=False)
    assert directions.max() < 2 * directions.min()
    sizes = np.abs(moves["head.weight"])
    assert sizes.max() < 1.01 * sizes.min()


@pytest.mark.parametrize("fields", [{"steps": 0}, {"steps": 5, "ema_decay": 1.0}])
def test_a_course_checks_itself(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Course(muon_learning_rate=0.1, adam_learning_rate=0.1, **fields)
