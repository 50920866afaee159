"""Meshes read from text; what is none is refused with an example."""

import pytest

from pipelines.errors import MeshError
from pipelines.mesh_text import REST, check_mesh, parse_mesh


def test_axes_and_sizes_are_read() -> None:
    assert parse_mesh(" dp=2, tp = 4") == {"dp": 2, "tp": 4}
    assert parse_mesh("dp=2,tp=*") == {"dp": 2, "tp": REST}


@pytest.mark.parametrize("text", ["dp", "dp=0", "dp=-1", "xx=2", "dp=2,dp=2", "dp=2;sp=2", "dp=2,", "sp=*,tp=*"])
def test_what_is_no_mesh_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(MeshError, match=r"is not a mesh.*dp=2,sp=4.*dp, sp, tp"):
        parse_mesh(text)


def test_an_output_a_chip_and_no_wish_are_let_through() -> None:
    assert [check_mesh(text) for text in ("throughput", None, "dp=2,sp=4")] == ["throughput", None, "dp=2,sp=4"]
    with pytest.raises(MeshError, match="'latency' is not a mesh"):
        check_mesh("latency")
