"""Meshes asked for or chosen from the device count; what does not fit says what would."""

import jax
import pytest

from pipelines.errors import MeshError
from pipelines.runtime.devices.mesh import build_mesh, choose_sizes, describe_mesh


@pytest.mark.parametrize(
    ("devices", "sizes"),
    [(1, {"dp": 1, "sp": 1}), (4, {"dp": 2, "sp": 2}), (8, {"dp": 2, "sp": 4}), (7, {"dp": 1, "sp": 7})],
)
def test_one_picture_is_spread_over_all_devices(devices: int, sizes: dict[str, int]) -> None:
    assert choose_sizes(devices) == sizes


def test_every_axis_exists_even_when_unused() -> None:
    assert dict(build_mesh("tp=4").shape) == {"dp": 1, "sp": 1, "tp": 4}


def test_without_a_wish_all_devices_are_used() -> None:
    assert build_mesh().size == jax.device_count() == 8


def test_a_smaller_mesh_leaves_devices_idle() -> None:
    assert list(build_mesh("dp=2").devices.flat) == jax.devices()[:2]


def test_too_large_a_mesh_names_both_counts() -> None:
    with pytest.raises(MeshError, match=r"dp=4,sp=4 needs 16 devices; there are 8"):
        build_mesh("dp=4,sp=4")


@pytest.mark.parametrize("text", ["sp=6", "dp=3", "dp=2,tp=3", "dp=5"])
def test_devices_that_do_not_divide_all_of_them_are_refused_before_a_compiler_sees_them(text: str) -> None:
    with pytest.raises(
        MeshError, match=r"of 8 devices, which does not divide them. Ask for a mesh of 1, 2, 4, 8 devices"
    ):
        build_mesh(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [("dp=2,tp=*", "dp=2,tp=4"), ("sp=*", "sp=8"), ("sp=8,tp=*", "sp=8"), ("dp=*,sp=2,tp=2", "dp=2,sp=2,tp=2")],
)
def test_a_star_takes_the_devices_that_are_left(text: str, words: str) -> None:
    assert describe_mesh(build_mesh(text)) == words


@pytest.mark.parametrize(("text", "words"), [("dp=2,sp=4", "dp=2,sp=4"), ("tp=8", "tp=8"), ("dp=1", "1 device")])
def test_a_mesh_is_described_without_its_unused_axes(text: str, words: str) -> None:
    assert describe_mesh(build_mesh(text)) == words
