"""States that are half there, of another version, or half written: told, put aside, removed."""

import asyncio
import errno
import gc
import logging
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from pipelines.errors import LumeshError
from pipelines.training.results import abandoned
from pipelines.training.results.state import StateFolder, find_newest, read_facts
from pipelines.training.results.sums import SUMS

FACTS = {"model": "tiny"}
LATER = {"_CHECKPOINT_METADATA", "commit_success.txt"}  # which hold nothing of a state
SIZE = 4096  # of noise: small arrays, and those that become small, lie within orbax' lists


def save(folder: Path, *steps: int) -> dict[str, Any]:
    """Saves a state after each of the steps, and returns what describes them."""
    states = StateFolder(folder, keep=len(steps))
    for step in steps:
        noise = jax.random.normal(jax.random.key(step), (SIZE,))
        states.save(step, {"step": jnp.asarray(step), "w": noise}, FACTS)
    states.close()
    return {"step": jax.ShapeDtypeStruct((), jnp.int32), "w": jax.ShapeDtypeStruct((SIZE,), jnp.float32)}


def cut_facts(state: Path) -> None:
    (state / "facts" / "metadata").write_text('{"model":')


def find_arrays(state: Path) -> Path:
    """Returns the file that holds the arrays."""
    return max((state / "state").rglob("*"), key=lambda file: file.stat().st_size)


def change_list(state: Path) -> None:
    (file,) = (state / "state" / "d").iterdir()
    content = file.read_bytes()
    file.write_bytes(content[:150] + b"\xff" * 8 + content[158:])


def empty(state: Path) -> None:
    shutil.rmtree(state)
    state.mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        empty,
        cut_facts,
        lambda state: shutil.rmtree(state / "facts"),
        lambda state: shutil.rmtree(state / "state"),
        lambda state: (state / "facts" / "metadata").unlink(),
        lambda state: (state / "facts" / "metadata").write_bytes(b'{"model": "\xff"}'),
        lambda state: find_arrays(state).unlink(),
        lambda state: find_arrays(state).write_bytes(b""),  # as after a loss of power
        lambda state: find_arrays(state).write_bytes(find_arrays(state).read_bytes()[:1000]),
        change_list,
    ],
)
def test_a_state_that_is_only_half_there_is_put_aside_and_the_one_before_is_taken(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    described = save(tmp_path, 2, 5)
    damage(tmp_path / "5")
    (tmp_path / "damaged-5" / "state").mkdir(parents=True)  # an earlier one

    told: list[str] = []
    states = StateFolder(tmp_path, keep=2)
    found = states.load(described, FACTS, tell=lambda text: told.append(str(text)))
    states.close()

    assert int(found["step"]) == 2
    assert told == ["The state after 5 steps is damaged; the one before is taken."]
    assert find_newest(tmp_path) == 2 and (tmp_path / "damaged-5").is_dir()


def test_a_bit_that_the_disk_has_changed_in_any_file_is_found(tmp_path: Path) -> None:
    """Tensorstore sums its lists, and reads an array of which a bit has changed as if nothing were."""
    described = save(tmp_path / "whole", 2, 5)
    names = sorted(file.relative_to(tmp_path / "whole") for file in (tmp_path / "whole" / "5").rglob("*"))
    names = [name for name in names if (tmp_path / "whole" / name).is_file() and name.name not in LATER]
    assert len(names) > 8
    for name in names:
        folder = shutil.copytree(tmp_path / "whole", tmp_path / name.as_posix().replace("/", "-"))
        content = bytearray((folder / name).read_bytes())
        content[len(content) // 2] ^= 4
        (folder / name).write_bytes(content)
        if name.parts[1] == "facts":
            assert read_facts(folder) is None, "of another training, they would be refused before anything is read"
        told: list[str] = []
        states = StateFolder(folder, keep=2)
        found = states.load(described, FACTS, tell=lambda text, told=told: told.append(str(text)))
        states.close()
        assert (int(found["step"]), told) == (2, ["The state after 5 steps is damaged; the one before is taken."]), name


def test_a_state_that_may_not_be_read_is_not_taken_for_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(file))

    described = save(tmp_path, 2, 5)
    monkeypatch.setattr("pipelines.training.results.sums._sum", refuse)
    states = StateFolder(tmp_path, keep=2)
    with pytest.raises(PermissionError):
        states.load(described, FACTS)
    states.close()
    assert find_newest(tmp_path) == 5 and not [*tmp_path.glob("damaged*")]


def test_a_state_of_an_earlier_version_has_no_sums_and_is_read(tmp_path: Path) -> None:
    described = save(tmp_path, 2, 5)
    (tmp_path / "5" / SUMS).unlink()
    states = StateFolder(tmp_path, keep=2)
    assert int(states.load(described, FACTS)["step"]) == 5
    states.close()
    assert read_facts(tmp_path) == FACTS


def test_a_state_whose_sums_the_disk_refuses_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_state: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    save(tmp_path, 2)
    monkeypatch.setattr("pipelines.training.results.state.write_sums", refuse)
    states = StateFolder(tmp_path, keep=2)
    states.save(5, {"step": jnp.asarray(5)}, FACTS)
    with pytest.raises(OSError, match="No space left"):
        states.wait()
    states.close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["2"]


def test_a_damaged_state_that_is_the_only_one_is_told_each_time_until_somebody_removes_it(tmp_path: Path) -> None:
    described = save(tmp_path, 5)
    empty(tmp_path / "5")
    for _ in range(2):
        states = StateFolder(tmp_path, keep=2)
        assert states.newest == 5, "else the training would begin anew"
        with pytest.raises(LumeshError, match="there is no other. Choose another output folder, or remove"):
            states.load(described, FACTS)
        states.close()


@pytest.mark.parametrize(
    "asked",
    [
        {"w": jax.ShapeDtypeStruct((SIZE,), jnp.float32)},
        {"step": jax.ShapeDtypeStruct((), jnp.int32), "w": jax.ShapeDtypeStruct((8,), jnp.float32)},
    ],
)
def test_a_state_with_other_arrays_is_told_as_one_of_another_version_and_stays(
    tmp_path: Path, asked: dict[str, Any]
) -> None:
    save(tmp_path, 2)
    states = StateFolder(tmp_path, keep=2)
    with pytest.raises(LumeshError, match="another version of Lumesh.*another output folder"):
        states.load(asked, FACTS)
    states.close()
    assert find_newest(tmp_path) == 2


def test_reads_that_are_given_up_behind_one_that_failed_are_not_told_but_other_errors_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: told.append(str(unraisable.exc_value)))
    abandoned.keep_quiet.__wrapped__()

    async def read() -> None:  # as orbax does
        try:
            await asyncio.sleep(1000)
        except BaseException as error:
            raise ValueError("while reading") from error

    class Broken:
        def __del__(self) -> None:
            raise ValueError("of ours")

    async def begin() -> None:
        read().send(None)

    asyncio.run(begin())
    Broken()
    gc.collect()
    assert told == ["of ours"]


def test_a_read_that_never_began_behind_one_that_failed_is_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = save(tmp_path, 2, 5)
    states = StateFolder(tmp_path, keep=2)
    restore = states._manager.restore

    async def read_names() -> None: ...

    def fail_with_names_unread(step: int, *args: Any, **options: Any) -> Any:
        if step == 5:
            names = read_names()
            raise ValueError(f"DATA_LOSS before {names}")
        return restore(step, *args, **options)

    monkeypatch.setattr(states._manager, "restore", fail_with_names_unread)
    found = states.load(described, FACTS)
    states.close()
    assert int(found["step"]) == 2
    gc.collect()  # where Python would warn of it, and the warning would be an error


@pytest.mark.parametrize(
    ("text", "lines"),
    [("DATA_LOSS: cut off", 0), ("Error opening (os_error_code='28')", 0), ("a fault of ours", 1)],
)
def test_what_nobody_waited_for_is_told_but_for_files_that_the_read_has_told_of(
    caplog: pytest.LogCaptureFixture, text: str, lines: int
) -> None:
    abandoned.keep_quiet()
    abandoned.tell_held(went_well=True)  # what other tests were told of

    async def begin() -> None:
        asyncio.get_running_loop().create_future().set_exception(ValueError(text))

    with caplog.at_level(logging.ERROR):
        asyncio.run(begin())
        gc.collect()
    assert caplog.text.count("was never retrieved") == lines
    abandoned.tell_held()
    assert caplog.text.count("was never retrieved") == lines + ("os_error_code" in text)


def log_refusal(text: str = "Error writing (os_error_code='13')") -> None:
    try:
        raise ValueError(text)
    except ValueError:
        logging.getLogger("absl").exception("Handler Commit failed")


def test_a_refusal_that_nobody_is_told_of_is_logged_after_all(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    states = StateFolder(tmp_path, keep=2)
    states.wait()
    log_refusal()
    assert not caplog.records, "somebody may ask yet"
    states.wait()  # and nothing is raised
    assert [record.message for record in caplog.records] == ["Handler Commit failed"]
    log_refusal()
    states.close()
    assert len(caplog.records) == 2


def test_a_refusal_that_is_raised_is_not_logged_beside_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = StateFolder(tmp_path, keep=2)
    states.wait()

    def fail() -> None:
        log_refusal()
        raise ValueError("os_error_code='13'")

    with monkeypatch.context() as patched:
        patched.setattr(states._manager, "wait_until_finished", fail)
        with pytest.raises(PermissionError, match="Permission denied"):
            states.wait()
    log_refusal()  # of another part of the same state
    states.close()
    log_refusal()
    abandoned.tell_held()
    assert not caplog.records


def test_a_refusal_of_something_else_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    abandoned.keep_quiet()
    try:
        raise PermissionError(errno.EACCES, "Permission denied", "/somewhere")
    except PermissionError:
        logging.getLogger("asyncio").exception("Exception in callback")
    assert len(caplog.records) == 1


def test_what_a_killed_process_left_half_written_is_removed(tmp_path: Path) -> None:
    save(tmp_path, 2)
    shutil.copytree(tmp_path / "2", tmp_path / "3.orbax-checkpoint-tmp")
    StateFolder(tmp_path, keep=2).close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["2"]
