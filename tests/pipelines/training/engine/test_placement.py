"""Which axis of a weight is split over the devices while it learns."""

import pytest
from jax.sharding import PartitionSpec as P

from pipelines.runtime.devices.mesh import build_mesh
from pipelines.runtime.devices.sharding import STACK
from pipelines.training.engine import placement


@pytest.mark.parametrize(
    ("name", "shape", "spec"),
    [
        ("to_q.weight", (640, 1280), P(None, "dp")),
        ("to_q.weight", (1280, 640), P("dp", None)),
        ("to_q.weight", (1284, 640), P(None, "dp")),
        (f"blocks.{STACK}.to_q.weight", (16, 640, 1280), P(None, None, "dp")),
        ("conv1.weight", (640, 1280, 3, 3), P("dp", None, None, None)),
        ("conv_out.weight", (4, 2560, 3, 3), P(None, "dp", None, None)),
        ("conv1.bias", (640,), P()),
        ("odd.weight", (1281, 643), P()),
    ],
    ids=str,
)
def test_the_largest_axis_is_split_and_of_convolutions_the_outputs(name: str, shape: tuple[int, ...], spec: P) -> None:
    assert placement.split(name, shape, build_mesh("dp=8")).spec == spec
