"""Two hosts of four devices each, as processes: they learn and make what one with eight does, and end together."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines import registry
from pipelines.generate import generate
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.recipes.recipe import read_recipe
from pipelines.recipes.resolving import resolve
from pipelines.runtime.devices.platform import with_devices
from pipelines.stages import ignore_progress
from pipelines.training.checks import check_training
from pipelines.training.engine.loop import AGREE_EVERY, Stop
from pipelines.training.place import Place
from pipelines.training.results.state import find_newest
from pipelines.training.run import train
from pipelines.training.settings import read_settings
from studio.library import training_packs
from tests.conftest import encode_picture, find_free_port, wait_for
from tests.forked_python import find_forked_python
from tests.pipelines.training.zorb import make

STEPS = 14
SAVED = 3
"""The step at which one host alone is told to stop; what it saved goes on on two."""
MESH = "dp=2,sp=4"
START_S = 400.0  # two processes that compile, on a machine that may be busy
ENDED_S = 60.0
SAME_LOSS = 1e-5


@dataclass(frozen=True, kw_only=True)
class Alone:
    """A training on one host of eight devices: `losses` by step."""

    settings: dict[str, Any]
    folder: Path
    catalog: Catalog
    cache_dir: Path

    def learn(self, output: str, *, stops_at: int | None = None, **changed: Any) -> dict[int, float]:
        model = self.catalog.get("tiny")
        settings = read_settings({**self.settings, "output": self.folder / output, **changed})
        checked = check_training(settings, model, registry.find_learner(model), name="zorb")
        stop, losses = Stop(), {}

        def hear(event: dict[str, Any]) -> None:
            if event["event"] == "step":
                losses[event["step"]] = event["loss"]
                if event["step"] == stops_at:
                    stop.ask("test")

        place = Place(output=self.folder / output, cache=self.folder / "rows", cache_dir=self.cache_dir)
        train(settings, checked, place, stop=stop, on_event=hear, on_progress=ignore_progress)
        return losses


@dataclass(frozen=True, kw_only=True)
class Two:
    """What two hosts saw, and what one of eight devices does."""

    alone: Alone
    losses: dict[int, float]
    saved: int
    recipes: dict[str, Any]
    seen: list[dict[str, Any]]


def start(process: int, *command: str) -> subprocess.Popen[str]:
    """Starts Python as one of two hosts, with four devices of its own."""
    flags = re.sub(r"--xla_force_host_platform_device_count=\d+", "", os.environ["XLA_FLAGS"])
    environment = os.environ | {"XLA_FLAGS": with_devices(flags, 4), "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [find_forked_python(), *command], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def run_both(module: str, folder: Path) -> None:
    """Runs a module as both hosts, and waits for both to end well."""
    port = str(find_free_port())
    running = [start(one, "-m", module, str(folder), port, str(one)) for one in range(2)]
    try:
        said = [process.communicate(timeout=START_S)[0] for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert [process.returncode for process in running] == [0, 0], said[0][-3000:] + said[1][-3000:]


@pytest.fixture(name="alone", scope="module")
def make_alone(
    local_catalog: Catalog, cache_dir: Path, data_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Alone:
    folder = tmp_path_factory.mktemp("hosts")
    data = make(folder / "zorb", count=4, side=64)
    settings = {"model": "tiny", "data": (str(data),), "lora": True, "steps": STEPS, "global_batch_size": 8, "rank": 4,
                "learning_rate": 5e-3, "mixed_precision": "no"}  # fmt: skip
    return Alone(settings=settings, folder=folder, catalog=local_catalog, cache_dir=cache_dir)


@pytest.fixture(name="two", scope="module")
def start_two(alone: Alone, data_dir: Path) -> Two:
    folder = alone.folder
    losses = alone.learn("one", stops_at=SAVED)
    saved = max(losses)
    shutil.copytree(folder / "one", folder / "half")
    losses |= alone.learn("one")
    (data_dir / "loras").mkdir(exist_ok=True)
    shutil.copyfile(folder / "one" / "zorb.safetensors", data_dir / "loras" / "of-hosts.safetensors")
    picture = folder / "picture.png"
    picture.write_bytes(encode_picture("blue", size=(64, 64)))
    recipe = {"model": "tiny", "prompt": "a red sailboat", "seed": 5, "steps": 8, "guidance_scale": 4.0,
              "scheduler": "euler_ancestral", "batch_size": 2, "images": [str(picture)], "strength": 0.9,
              "loras": [{"ref": "of-hosts"}]}  # fmt: skip
    recipes = {"cancelled": recipe, "whole": recipe}
    asked = {"models": str(data_dir / "models"), "folder": str(folder), "training": alone.settings,
             "stops_at": saved + 1, "mesh": MESH, "recipes": recipes}  # fmt: skip
    (folder / "asked.json").write_text(json.dumps(asked), "utf-8")
    run_both("tests.pipelines.on_two_hosts", folder)
    seen = [json.loads((folder / f"seen-{one}.json").read_text("utf-8")) for one in range(2)]
    return Two(alone=alone, losses=losses, saved=saved, recipes=recipes, seen=seen)


def test_two_hosts_go_on_from_the_state_of_one_with_its_losses(two: Two) -> None:
    own, other = (dict(seen["losses"]) for seen in two.seen)
    assert own == other
    assert min(own) == two.saved + 1
    assert own == pytest.approx({step: two.losses[step] for step in own}, rel=SAME_LOSS)


def test_all_hosts_stop_behind_one_step_when_one_of_them_is_told_to(two: Two) -> None:
    assert [max(dict(seen["losses"])) for seen in two.seen] == [AGREE_EVERY] * 2


def test_one_host_goes_on_from_the_state_of_two_with_its_losses(two: Two) -> None:
    resumed = two.alone.learn("half")
    assert min(resumed) == AGREE_EVERY + 1
    assert resumed == pytest.approx({step: two.losses[step] for step in resumed}, rel=SAME_LOSS)


def test_each_host_encodes_only_what_its_rows_need(two: Two) -> None:
    counts = [len([*(two.alone.folder / f"host-{one}" / "rows").rglob("*.safetensors")]) for one in range(2)]
    whole = len([*(two.alone.folder / "rows").rglob("*.safetensors")])
    assert all(0 < count <= whole for count in counts)


def test_two_hosts_make_the_pictures_of_one(two: Two, load_family: Callable[..., Any], data_dir: Path) -> None:
    own, other = (np.load(two.alone.folder / f"whole-{process}.npy") for process in range(2))
    catalog = load_catalog(data_dir / "models", data_dir / "loras")
    expected = generate(load_family(mesh=MESH), resolve(read_recipe(two.recipes["whole"]), catalog)).pixels
    assert (own == other).all()
    assert np.abs(own.astype(int) - expected).max() <= 1


def test_hosts_run_the_same_programs_whatever_their_clocks_say(two: Two) -> None:
    own, other = (seen["launches"] for seen in two.seen)
    assert own == other
    assert len([launch for launch in own["whole"] if "preview" in launch]) > 1
    assert own["cancelled"][-1] == "cancelled"
    assert own["cancelled"] != own["whole"]


def test_a_killed_host_ends_the_other_and_the_same_command_goes_on(alone: Alone, data_dir: Path) -> None:
    output, port = alone.folder / "killed", find_free_port()
    command = ["-m", "pipelines", "train", "tiny", "--data", alone.settings["data"][0], "--lora", "--steps", "800",
               "--global-batch-size", "8", "--rank", "4", "--learning-rate", "5e-3", "--mixed-precision", "no",
               "--save-every-minutes", "0.001", "--lr-scheduler", "constant", "--output", str(output), "--name", "zorb",
               "--data-dir", str(data_dir), "--coordinator", f"127.0.0.1:{port}", "--processes", "2"]  # fmt: skip
    running = [start(one, *command, "--process", str(one)) for one in range(2)]
    try:
        wait_for("a saved state", lambda: find_newest(output / "state"), timeout_s=START_S)
        running[1].kill()
        said, _ = running[0].communicate(timeout=ENDED_S)
    finally:
        for process in running:
            process.kill()
            process.communicate()

    assert running[0].returncode == 75, said[-3000:]
    assert re.search(r"lumesh: another host ended; the same command goes on from step \d+0\.", said)
    (step,) = re.findall(r"goes on from step (\d+)", said)
    resumed = alone.learn("killed", steps=800, lr_scheduler="constant", stops_at=int(step) + 1)
    assert min(resumed) == int(step) + 1


def test_a_slice_trains_without_a_common_folder_pauses_and_goes_on_as_one_host_does(
    alone: Alone, data_dir: Path
) -> None:
    """Trains as a worker of several hosts does: the first leads, and alone keeps the state, which any worker takes."""
    folder = alone.folder
    training = {**alone.settings, "prior_prompt": ["a blue boat"], "sample": ["a zorb"], "sample_every": STEPS}
    asked = {"models": str(data_dir / "models"), "training": training, "pauses_at": SAVED}
    (folder / "asked-slice.json").write_text(json.dumps(asked), "utf-8")
    run_both("tests.studio.worker.on_a_slice", folder)
    seen = json.loads((folder / "slice.json").read_text("utf-8"))
    first, second = seen["heard"]
    assert seen["files"] == [0, 1]
    assert max(event["step"] for event in first if event["event"] == "step") == AGREE_EVERY
    assert [event["step"] for event in second if event["event"] in ("resumed", "sample")] == [AGREE_EVERY, STEPS]
    assert [event["event"] for event in second].count("prior") == 0, "they came with the state"
    assert not [*(folder / "slice-1" / "training").iterdir()]

    training_packs.unpack((folder / "work.zip").read_bytes(), folder / "of-slice")
    losses = alone.learn("of-slice", prior_prompt=("a blue boat",))
    own = {event["step"]: event["loss"] for event in second if event["event"] == "step"}
    assert own == pytest.approx(losses, rel=SAME_LOSS)


def test_check_slice_says_that_two_hosts_work_together(data_dir: Path) -> None:
    address = ["--coordinator", f"127.0.0.1:{find_free_port()}", "--processes", "2", "--process"]
    command = ["-m", "pipelines", "check-slice", "--model", "tiny", "--megabytes", "1", "--data-dir", str(data_dir)]
    running = [start(one, *command, "--json", *address, str(one)) for one in range(2)]
    said = [process.communicate(timeout=START_S)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0], said[0][-3000:] + said[1][-3000:]
    assert json.loads(said[0].splitlines()[-1])["hosts"] == [4, 4]
    assert '"hosts"' not in said[1]
