"""Two hosts of two devices each, as processes: they learn and make what one with four does, and end together.

One training walks through all of them: two hosts begin it and one of them is killed, one host goes on, then two again.
"""

import json
import os
import re
import shutil
import signal
import subprocess
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
from pipelines.training.engine.loop import AGREE_EVERY, LATE, Stop
from pipelines.training.place import Place
from pipelines.training.results.state import find_newest
from pipelines.training.run import train
from pipelines.training.settings import read_settings
from studio.library import training_packs
from tests.conftest import encode_picture, find_free_port, wait_for
from tests.forked_python import find_forked_python
from tests.pipelines.training.zorb import make

STEPS = 800
"""More than any of these trainings comes to."""
MORE = 4
"""Steps that one host makes after the state of two."""
SLICE_STEPS = 24
PAUSED = 3
DEVICES = 2  # of a host
MESH = "dp=2,sp=2"
TARGETS = r"to_[qv]$"  # few, since hosts add up the gradients of each
START_S = 400.0  # two processes that compile, on a machine that may be busy
ENDED_S = 60.0
SAME_LOSS = 1e-5
ALONE = """
from pipelines.runtime.devices import hosts
hosts.PATIENT_S = 0.1
with hosts.together(hosts.Address(coordinator="127.0.0.1:{port}", processes=2, process=0), on_loss=lambda: ""):
    pass
"""
"""A host that nobody comes to."""
JOIN = """
import time
from pipelines.runtime.devices import hosts
address = hosts.Address(coordinator="127.0.0.1:{port}", processes=2, process=1)
with hosts.together(address, on_loss=lambda: ""):
    print(hosts._read(hosts._here.group, "lumesh/round/0/0"), flush=True)  # what it was told
    time.sleep(300)
"""
"""A host that comes to the first one, and never says what it was told."""


@dataclass(frozen=True, kw_only=True)
class Alone:
    """Trainings on one host of four devices, in folders of `folder`, which is a data directory, too."""

    settings: dict[str, Any]
    folder: Path
    catalog: Catalog
    cache_dir: Path

    def learn(self, output: str, *, stops_at: int | None = None, **changed: Any) -> dict[int, float]:
        """Trains, or goes on, and returns the losses by step."""
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
class Killed:
    """How the first of two hosts ended when the second one was killed; the losses of one host that goes on and ends."""

    code: int
    said: str
    saved: int
    resumed: dict[int, float]


@dataclass(frozen=True, kw_only=True)
class Two:
    """What two hosts saw as `asked`: each of them, and the leader of the two as a slice."""

    asked: dict[str, Any]
    seen: list[dict[str, Any]]
    slice: dict[str, Any]


def start(process: int, *command: str) -> subprocess.Popen[str]:
    """Starts Python as one of two hosts, with devices of its own."""
    flags = re.sub(r"--xla_force_host_platform_device_count=\d+", "", os.environ["XLA_FLAGS"])
    environment = os.environ | {"XLA_FLAGS": with_devices(flags, DEVICES), "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [find_forked_python(), *command], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


@pytest.fixture(name="alone", scope="module")
def make_alone(cache_dir: Path, short_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Alone:
    folder = tmp_path_factory.mktemp("hosts")
    (folder / "models").symlink_to(short_dir / "models")
    data = make(folder / "zorb", count=4, side=64)
    settings = {"model": "tiny", "data": (str(data),), "lora": True, "steps": STEPS, "global_batch_size": 4, "rank": 4,
                "targets": TARGETS, "learning_rate": 5e-3, "lr_scheduler": "constant", "mesh": "dp=4",
                "mixed_precision": "no"}  # fmt: skip
    return Alone(settings=settings, folder=folder, catalog=load_catalog(folder / "models"), cache_dir=cache_dir)


@pytest.fixture(name="killed", scope="module")
def kill_one_of_two(alone: Alone) -> Killed:
    output, port = alone.folder / "killed", find_free_port()
    command = ["-m", "pipelines", "train", "tiny", "--data", alone.settings["data"][0], "--lora", f"--steps={STEPS}",
               "--global-batch-size", "4", "--rank", "4", "--learning-rate", "5e-3", "--mixed-precision", "no",
               "--targets", TARGETS, "--save-every-minutes", "0.001", "--lr-scheduler", "constant",
               "--output", str(output), "--name", "zorb", "--data-dir", str(alone.folder), "--json",
               "--coordinator", f"127.0.0.1:{port}", "--processes", "2"]  # fmt: skip
    running = [start(one, *command, "--process", str(one)) for one in range(2)]
    try:
        wait_for("a saved state", lambda: find_newest(output / "state"), timeout_s=START_S)
        running[1].kill()
        said, _ = running[0].communicate(timeout=ENDED_S)
    finally:
        for process in running:
            process.kill()
            process.communicate()
    saved = find_newest(output / "state")
    assert saved is not None
    resumed = alone.learn("killed", steps=saved + MORE)
    return Killed(code=running[0].returncode, said=said, saved=saved, resumed=resumed)


@pytest.fixture(name="two", scope="module")
def start_two(alone: Alone, killed: Killed) -> Two:
    """Goes on where one host ended, makes pictures with what that had learnt, and trains as a worker's slice."""
    folder, port = alone.folder, str(find_free_port())
    shutil.copytree(folder / "killed", folder / "half")
    (folder / "loras").mkdir()
    shutil.copyfile(folder / "killed" / "zorb.safetensors", folder / "loras" / "of-hosts.safetensors")
    picture = folder / "picture.png"
    picture.write_bytes(encode_picture("blue", size=(64, 64)))
    recipe = {"model": "tiny", "prompt": "a red sailboat", "seed": 5, "steps": 8, "guidance_scale": 4.0,
              "scheduler": "euler_ancestral", "batch_size": 2, "images": [str(picture)], "strength": 0.9,
              "loras": [{"ref": "of-hosts"}]}  # fmt: skip
    of_slice = {"data": (str(make(folder / "pair", count=2, side=64)),), "steps": SLICE_STEPS,
                "prior_prompt": ("a blue boat",), "sample": ("a zorb",), "sample_every": SLICE_STEPS}  # fmt: skip
    asked = {"folder": str(folder), "training": alone.settings, "stops_at": killed.saved + MORE + 1, "mesh": MESH,
             "recipes": {"cancelled": recipe, "whole": recipe},
             "slice": {"training": {**alone.settings, **of_slice}, "pauses_at": PAUSED}}  # fmt: skip
    (folder / "asked.json").write_text(json.dumps(asked), "utf-8")
    running = [start(one, "-m", "tests.pipelines.on_two_hosts", str(folder), port, str(one)) for one in range(2)]
    try:
        said = [process.communicate(timeout=START_S)[0] for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert [process.returncode for process in running] == [0, 0], said[0][-3000:] + said[1][-3000:]
    seen = [json.loads((folder / f"seen-{one}.json").read_text("utf-8")) for one in range(2)]
    return Two(asked=asked, seen=seen, slice=json.loads((folder / "slice.json").read_text("utf-8")))


@pytest.fixture(name="unbroken", scope="module")
def learn_alone(alone: Alone, two: Two) -> dict[int, float]:
    """The losses of one host that nothing disturbs, as far as the others came."""
    return alone.learn("unbroken", stops_at=max(dict(two.seen[0]["losses"])))


def test_a_killed_host_ends_the_other_and_the_same_command_goes_on(killed: Killed) -> None:
    assert killed.code == 75, killed.said[-3000:]
    (step,) = re.findall(r"lumesh: another host ended; the same command goes on from step (\d+)\.", killed.said)
    assert killed.saved == int(step)
    end = json.loads(killed.said.splitlines()[-1])
    assert end["event"] == "error" and end["error"].endswith(f"goes on from step {step}.")
    assert [*killed.resumed] == [*range(killed.saved + 1, killed.saved + MORE + 1)]


def test_one_host_goes_on_from_the_state_of_two_with_its_losses(killed: Killed, unbroken: dict[int, float]) -> None:
    assert killed.resumed == pytest.approx({step: unbroken[step] for step in killed.resumed}, rel=SAME_LOSS)


def test_two_hosts_go_on_from_the_state_of_one_with_its_losses(
    killed: Killed, two: Two, unbroken: dict[int, float]
) -> None:
    own, other = (dict(seen["losses"]) for seen in two.seen)
    assert own == other
    assert min(own) == killed.saved + MORE + 1
    assert own == pytest.approx({step: unbroken[step] for step in own}, rel=SAME_LOSS)


def test_all_hosts_stop_behind_one_step_when_one_of_them_is_told_to(killed: Killed, two: Two) -> None:
    own, other = (max(dict(seen["losses"])) for seen in two.seen)
    assert own == other
    assert 0 <= own - two.asked["stops_at"] <= LATE + AGREE_EVERY


def test_a_state_that_one_hosts_disk_refuses_is_lost_to_all_and_may_be_saved_again(two: Two, alone: Alone) -> None:
    (common, own), (others_common, others_own) = (seen["states"]["told"] for seen in two.seen)
    assert "File too large" in common and "File too large" in others_common and "(on host 1)" in common
    assert "File too large" in own and others_own == "", "without a folder in common the first host alone writes"
    assert [seen["states"]["common"] for seen in two.seen] == [2, 2]
    assert [entry.name for entry in (alone.folder / "common").iterdir()] == ["2"]


def test_hosts_without_a_common_folder_go_on_from_what_the_first_one_keeps(two: Two, alone: Alone) -> None:
    for seen in two.seen:
        assert seen["states"]["is_whole"] and seen["states"]["own"] == 3
        assert "Host 1 has a state after 3 steps, and the first host" in seen["states"]["refused"]
    assert [[entry.name for entry in (alone.folder / f"own-{one}").iterdir()] for one in range(2)] == [["3"], []]


def test_each_host_encodes_only_what_its_rows_need(two: Two, unbroken: dict[int, float], alone: Alone) -> None:
    assert unbroken
    counts = [len([*(alone.folder / f"host-{one}" / "rows").rglob("*.safetensors")]) for one in range(2)]
    whole = len([*(alone.folder / "rows").rglob("*.safetensors")])
    assert all(0 < count <= whole for count in counts)


def test_two_hosts_make_the_pictures_of_one(two: Two, alone: Alone) -> None:
    own, other = (np.load(alone.folder / f"whole-{process}.npy") for process in range(2))
    catalog = load_catalog(alone.folder / "models", alone.folder / "loras")
    family = registry.load(catalog.get("tiny"), mesh=MESH, cache_dir=alone.cache_dir, on_progress=ignore_progress)
    expected = generate(family, resolve(read_recipe(two.asked["recipes"]["whole"]), catalog)).pixels
    family.unload()
    assert (own == other).all()
    assert np.abs(own.astype(int) - expected).max() <= 1


def test_hosts_run_the_same_programs_whatever_their_clocks_say(two: Two) -> None:
    own, other = (seen["launches"] for seen in two.seen)
    assert own == other
    assert len([launch for launch in own["whole"] if "preview" in launch]) > 1
    assert own["cancelled"][-1] == "cancelled"
    assert own["cancelled"] != own["whole"]


def test_a_slice_trains_without_a_common_folder_pauses_and_goes_on_as_one_host_does(two: Two, alone: Alone) -> None:
    """Trains as a worker of several hosts does: the first leads, and alone keeps the state, which any worker takes."""
    folder = alone.folder
    first, second = two.slice["heard"]
    assert two.slice["files"] == [0, 1]
    paused = max(event["step"] for event in first if event["event"] == "step")
    assert 0 <= paused - PAUSED <= LATE + AGREE_EVERY
    told = [event["step"] for event in second if event["event"] in ("resumed", "sample")]
    assert told == [paused, SLICE_STEPS]
    assert [event["event"] for event in second].count("prior") == 0, "they came with the state"
    assert not [*(folder / "slice-1" / "training").iterdir()]

    training_packs.unpack((folder / "work.zip").read_bytes(), folder / "of-slice")
    training = two.asked["slice"]["training"]
    losses = alone.learn("of-slice", **{name: training[name] for name in ("data", "steps", "prior_prompt")})
    own = {event["step"]: event["loss"] for event in second if event["event"] == "step"}
    assert own == pytest.approx(losses, rel=SAME_LOSS)


def test_check_slice_says_that_two_hosts_work_together(alone: Alone) -> None:
    address = ["--coordinator", f"127.0.0.1:{find_free_port()}", "--processes", "2", "--process"]
    command = ["-m", "pipelines", "check-slice", "--model", "tiny", "--megabytes", "1", "--data-dir", str(alone.folder)]
    running = [start(one, *command, "--json", *address, str(one)) for one in range(2)]
    said = [process.communicate(timeout=START_S)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0], said[0][-3000:] + said[1][-3000:]
    assert json.loads(said[0].splitlines()[-1])["hosts"] == [DEVICES, DEVICES]
    assert '"hosts"' not in said[1]


def test_a_host_that_waits_for_another_to_say_what_it_was_told_ends_by_sigterm(alone: Alone) -> None:
    port = find_free_port()
    address = ["--coordinator", f"127.0.0.1:{port}", "--processes", "2", "--process", "0"]
    command = ["-m", "pipelines", "train", "tiny", "--lora", "--data", alone.settings["data"][0], "--data-dir",
               str(alone.folder), "--allow-cpu", "--check"]  # fmt: skip
    waiting, other = start(0, *command, *address), start(1, "-c", JOIN.format(port=port))
    assert other.stdout is not None
    assert any('"--check": "it"' in line for line in other.stdout)  # hosts that differ in it end with a message
    waiting.send_signal(signal.SIGTERM)
    said, _ = waiting.communicate(timeout=ENDED_S)
    assert waiting.returncode == 130 and "stopped" in said
    told, _ = other.communicate(timeout=ENDED_S)
    assert "host 0 ended: it was told to." in told


def test_a_host_that_waits_for_the_others_says_so_and_hears_ctrl_c() -> None:
    port = find_free_port()
    waiting = start(0, "-c", ALONE.format(port=port))
    assert waiting.stdout is not None
    assert any(f"waiting at 127.0.0.1:{port} (host 0 of 2) for the other hosts" in line for line in waiting.stdout)
    waiting.send_signal(signal.SIGINT)
    waiting.communicate(timeout=ENDED_S)
    assert waiting.returncode == -signal.SIGINT


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (["tiny", "--data", "nowhere"], "data: There is no folder or file nowhere"),
        (["nosuchmodel", "--data", "nowhere"], "model: There is no model"),  # before it joins the others
        (["tiny", "--no-such-flag"], "No such option: --no-such-flag"),  # before its options are read
    ],
)
@pytest.mark.parametrize("place", [0, 1])
def test_a_host_that_has_to_be_mended_ends_the_others_with_its_reason_and_its_code(
    alone: Alone, own: list[str], said: str, place: int
) -> None:
    address = ["--coordinator", f"127.0.0.1:{find_free_port()}", "--processes", "2", "--process"]
    command = ["-m", "pipelines", "train", "--lora", "--data-dir", str(alone.folder), "--allow-cpu", "--check"]
    asked = [["tiny", "--data", alone.settings["data"][0]], own][:: 1 if place else -1]
    running = [start(one, *command, *asked[one], *address, str(one)) for one in range(2)]
    told = [process.communicate(timeout=START_S)[0] for process in running]
    assert [process.returncode for process in running] == [2, 2], told[0][-3000:] + told[1][-3000:]
    assert f"host {place} ended: {said}" in told[1 - place] and said in told[place]
    assert "the same command" not in told[1 - place]
