"""A toy task through the engine: killed and resumed, spread over devices, and refused when it goes wrong."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pipelines.demos.learning import KEPT, Course, Task, Unfinished, train
from pipelines.errors import LumeshError, RecipeError
from pipelines.runtime.devices.mesh import build_mesh
from pipelines.training.engine.loop import DivergedError, Stop
from tests.forked_python import find_forked_python
from tests.places import ROOT

STEPS = 40
BROKEN_AT = 4
WEIGHT = np.array(
    [[1.0, -2.0, 0.5, 0.0], [0.0, 1.0, 1.0, -1.0], [2.0, 0.0, -0.5, 1.0], [0.5, 0.5, 0.5, 0.5]], np.float32
)


def draw_batch(step: int) -> dict[str, np.ndarray]:
    inputs = np.random.default_rng(step).normal(size=(16, 4)).astype(np.float32)
    return {"inputs": inputs, "targets": inputs @ WEIGHT.T}


def measure(parameters: Mapping[str, Any], batch: Mapping[str, Any], key: jax.Array) -> jax.Array:
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
    }
    return Task(**fields | changes)


def draw_parameters(width: int = 8) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "hidden.weight": rng.normal(size=(width, 4)).astype(np.float32),
        "head.weight": rng.normal(size=(4, width)).astype(np.float32) / 3,
        "head.bias": np.zeros(4, np.float32),
    }


def run(folder: Path, *, mesh: str = "dp=1", stop: Stop | None = None, **changes: Any) -> dict[str, np.ndarray]:
    return train(make_task(**changes), draw_parameters(), mesh=build_mesh(mesh), folder=folder, stop=stop or Stop())


def find_steps(folder: Path) -> list[int]:
    return sorted(int(state.name) for state in (folder / "state").iterdir() if state.name.isdecimal())


def read_losses(folder: Path) -> dict[int, float]:
    lines = (json.loads(line) for line in (folder / "log.jsonl").read_text("utf-8").splitlines())
    return {line["step"]: line["loss"] for line in lines if line["event"] == "step"}


def assert_same(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray], *, within: float = 0.0) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_allclose(value, other[name], rtol=0, atol=within, err_msg=name)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training that nothing disturbs, empty before."""
    return tmp_path_factory.mktemp("unbroken")


@pytest.fixture(scope="module")
def unbroken(whole: Path) -> dict[str, np.ndarray]:
    """Its EMA."""
    return run(whole)


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training that broke in the middle."""

    def draw_until(step: int) -> dict[str, np.ndarray]:
        if step == BROKEN_AT:
            raise KeyError("the disk is gone")
        return draw_batch(step)

    folder = tmp_path_factory.mktemp("broken")
    with pytest.raises(KeyError, match="the disk is gone"):
        run(folder, draw_batch=draw_until, save_every_s=0.0)
    return folder


@pytest.fixture
def half_way(broken: Path, tmp_path: Path) -> Path:
    """A copy of that folder, with its states."""
    return shutil.copytree(broken, tmp_path / "half-way")


def test_it_learns(unbroken: dict[str, np.ndarray]) -> None:
    batch = draw_batch(1000)
    before, after = (float(measure(values, batch, jax.random.key(0))) for values in (draw_parameters(), unbroken))
    assert after < 0.5 * before


def test_a_resumed_training_ends_where_an_unbroken_one_does(half_way: Path, unbroken: dict[str, np.ndarray]) -> None:
    drawn: list[int] = []

    def watch(step: int) -> dict[str, np.ndarray]:
        drawn.append(step)
        return draw_batch(step)

    assert_same(run(half_way, draw_batch=watch), unbroken)
    assert drawn[0] == BROKEN_AT


KILLED = """
import json, os, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
import test_learning as toy

def draw_and_die(step):
    if step == 8 and sys.argv[3] == "die":  # drawn while the loop is some steps behind
        os.kill(os.getpid(), 9)
    return toy.draw_batch(step)

ema = toy.run(Path(sys.argv[1]), draw_batch=draw_and_die, save_every_s=0.0 if sys.argv[3] == "die" else 1e9)
print(json.dumps({name: value.tolist() for name, value in ema.items()}))
"""


def test_kill_9_costs_only_the_steps_since_the_last_state(tmp_path: Path, unbroken: dict[str, np.ndarray]) -> None:
    command = [find_forked_python(), "-c", KILLED, str(tmp_path / "toy"), str(Path(__file__).parent)]
    options: dict[str, Any] = {"cwd": ROOT, "capture_output": True, "text": True, "timeout": 600}
    options["env"] = os.environ | {"PYTHONPATH": str(ROOT)}
    killed = subprocess.run([*command, "die"], **options)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    assert 0 < find_steps(tmp_path / "toy")[-1] <= 8
    resumed = subprocess.run([*command, "live"], **options)
    assert resumed.returncode == 0, resumed.stderr[-2000:]
    found = {name: np.asarray(value, np.float32) for name, value in json.loads(resumed.stdout).items()}
    assert_same(found, unbroken, within=1e-6)


def test_a_damaged_newest_state_gives_way_to_the_one_before(
    half_way: Path, unbroken: dict[str, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    newest = find_steps(half_way)[-1]
    damage(half_way / "state" / str(newest))
    assert_same(run(half_way), unbroken)
    told = f"The state after {newest} steps is damaged; the one before is taken."
    assert told in "".join(capsys.readouterr())
    assert (half_way / "state" / f"damaged-{newest}").is_dir()


def test_states_that_are_all_damaged_are_said_and_not_begun_anew(half_way: Path) -> None:
    for step in find_steps(half_way):
        damage(half_way / "state" / str(step))
    with pytest.raises(LumeshError, match="is damaged, and there is no other"):
        run(half_way)


def damage(state: Path) -> None:
    for file in (state / "state" / "d").iterdir():
        file.write_bytes(bytes(file.stat().st_size))


def test_a_half_written_state_is_not_seen(half_way: Path, unbroken: dict[str, np.ndarray]) -> None:
    (half_way / "state" / "39.orbax-checkpoint-tmp").mkdir()
    assert_same(run(half_way), unbroken)


def test_only_the_newest_states_are_kept(broken: Path) -> None:
    assert find_steps(broken) == [BROKEN_AT + 1 - KEPT, BROKEN_AT]


def test_a_finished_training_is_not_run_again(whole: Path, unbroken: dict[str, np.ndarray]) -> None:
    def fail(_step: int) -> dict[str, np.ndarray]:
        raise AssertionError("nothing is left to learn")

    assert_same(run(whole, draw_batch=fail), unbroken)


def test_a_state_of_another_network_is_refused(half_way: Path) -> None:
    with pytest.raises(RecipeError, match="holds a training with 68 in place of 52"):
        train(make_task(), draw_parameters(width=6), mesh=build_mesh("dp=1"), folder=half_way, stop=Stop())


def test_eight_devices_learn_what_one_does(tmp_path: Path, unbroken: dict[str, np.ndarray]) -> None:
    assert_same(run(tmp_path, mesh="dp=8"), unbroken, within=1e-4)


def test_a_step_that_is_not_finite_is_skipped_and_ten_in_a_row_end_it(tmp_path: Path) -> None:
    def poison(*steps: int) -> Callable[[int], dict[str, np.ndarray]]:
        return lambda step: {
            name: value * (np.nan if step in steps else 1) for name, value in draw_batch(step).items()
        }  # fmt: skip

    values = run(tmp_path / "once", draw_batch=poison(3))
    assert all(np.isfinite(value).all() for value in values.values())
    with pytest.raises(DivergedError, match="10 steps in a row"):
        run(tmp_path / "often", draw_batch=poison(*range(3, STEPS)))


def test_time_up_leaves_a_state_to_go_on_from(tmp_path: Path, unbroken: dict[str, np.ndarray]) -> None:
    stop = Stop()

    def draw_until_time_is_up(step: int) -> dict[str, np.ndarray]:
        if step == BROKEN_AT:  # drawn some steps ahead
            stop.limit(0.0)
        return draw_batch(step)

    with pytest.raises(Unfinished):
        run(tmp_path, stop=stop, draw_batch=draw_until_time_is_up)
    (saved,) = find_steps(tmp_path)
    assert (0 < saved < STEPS, stop.reason) == (True, "time limit")
    with pytest.raises(Unfinished):  # before its next step
        run(tmp_path, stop=stop)
    assert find_steps(tmp_path) == [saved]
    assert_same(run(tmp_path), unbroken)
    assert [*read_losses(tmp_path)] == [*range(1, STEPS + 1)]


def test_frozen_parameters_are_seen_but_neither_moved_nor_kept(tmp_path: Path) -> None:
    parameters = draw_parameters()
    hidden = {"hidden.weight": parameters.pop("hidden.weight")}
    mesh = build_mesh("dp=1")
    learnt = train(make_task(frozen=hidden), parameters, mesh=mesh, folder=tmp_path / "one", stop=Stop())
    assert learnt.keys() == parameters.keys()
    other = {"hidden.weight": hidden["hidden.weight"] * 2}
    elsewhere = train(make_task(frozen=other), parameters, mesh=mesh, folder=tmp_path / "other", stop=Stop())
    assert not np.allclose(learnt["head.weight"], elsewhere["head.weight"])


def test_only_hidden_matrices_are_orthogonalised() -> None:
    """A first Muon step moves every direction of a matrix alike; AdamW's follows the signs of the gradient."""
    course = Course(steps=10, muon_learning_rate=0.1, adam_learning_rate=0.1, warmup_steps=1)
    gradient = jnp.asarray(np.random.default_rng(1).normal(size=(4, 4)).astype(np.float32)) * jnp.array([10, 1, 1, 0.1])
    parameters = {"hidden.weight": gradient, "head.weight": gradient}
    shapes = {name: value.shape for name, value in parameters.items()}
    optimizer: Any = course.build_optimizer(shapes, is_hidden=lambda name: name.startswith("hidden"))
    moves, _ = optimizer.update(parameters, optimizer.init(parameters), parameters, rate=0.1)
    directions = np.linalg.svd(moves["hidden.weight"], compute_uv=False)
    assert directions.max() < 2 * directions.min()
    sizes = np.abs(moves["head.weight"])
    assert sizes.max() < 1.01 * sizes.min()


@pytest.mark.parametrize("fields", [{"steps": 0}, {"steps": 5, "ema_decay": 1.0}])
def test_a_course_checks_itself(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Course(muon_learning_rate=0.1, adam_learning_rate=0.1, **fields)
