"""What is recommended when a model does not fit: the least change that helps."""

import pytest

from pipelines.catalog import Shape, load_catalog
from pipelines.plan.placement import Need, recommend
from pipelines.plan.topologies import GIB, TOPOLOGIES, find_topology

MODEL = load_catalog().get("wan2.1-14b")


def ask(encoder: float, transformer: float, vae: float, *, temp: float = 1.0, decode_temp: float = 1.0, on: str):
    """The recommendation for components of so many GiB a chip."""
    weights = {"text_encoder": encoder, "transformer": transformer, "vae": vae}
    stages = {
        "encode": ("text_encoder", 0.1),
        "denoise": ("transformer", temp),
        "decode": ("vae", decode_temp),
    }
    limit_bytes = find_topology(on).chip.hbm_bytes if find_topology(on).chip else 1 << 60
    needs = [
        Need(
            stage=name,
            components=(component,),
            fits=(weights[component] + size) * GIB <= limit_bytes,
            weights_bytes=int(weights[component] * GIB),
            temp_bytes=int(size * GIB),
            code_bytes=0,
        )
        for name, (component, size) in stages.items()
    ]
    sizes = {name: int(size * GIB) for name, size in weights.items()}
    return recommend(needs, sizes, topology=TOPOLOGIES[on], model=MODEL, shape=Shape.parse("1280x720x81"))


@pytest.mark.parametrize(
    ("sizes", "kind"),
    [
        ((4, 8, 1), "all"),
        ((20, 18, 1), "unload_text_encoder"),
        ((20, 30, 2), "one_at_a_time"),
        ((40, 8, 1), "offload_text_encoder"),
        ((4, 40, 1), "does_not_fit"),
    ],
)
def test_each_size_has_its_placement(sizes: tuple[int, int, int], kind: str) -> None:
    assert ask(*sizes, on="v6e-8").kind == kind


def test_the_worst_moment_is_told() -> None:
    assert ask(4, 8, 1, on="v6e-8").resident_bytes == 14 * GIB
    assert ask(20, 18, 1, on="v6e-8").resident_bytes == int(20.1 * GIB)


def test_a_decoder_that_does_not_fit_gets_fewer_frames_or_more_chips() -> None:
    found = ask(4, 8, 1, decode_temp=98, on="v6e-8")
    assert found.kind == "does_not_fit"
    assert "--shape 832x480x81" in found.advice
    assert "more chips than any machine known here" in found.advice


def test_more_chips_are_named_where_there_are_enough() -> None:
    assert "such as v5e-4" in ask(4, 40, 1, on="v5e-1").advice


def test_a_smaller_shape_is_no_advice_where_weights_alone_do_not_fit() -> None:
    assert "--shape" in ask(4, 8, 1, temp=30, on="v6e-8").advice
    assert "--shape" not in ask(4, 40, 1, on="v5e-1").advice
    assert "--shape" not in ask(40, 8, 1, temp=30, on="v6e-8").advice


def test_what_stays_leaves_as_much_room_as_the_worker_does() -> None:
    assert ask(11, 17, 1, on="v6e-8").kind == "unload_text_encoder", "30 of 31.25 GiB are more than 95 %"


def test_on_a_cpu_everything_stays() -> None:
    assert ask(4, 400, 1, on="cpu-8").kind == "all"


def test_every_topology_has_a_chip_but_the_cpu() -> None:
    assert [name for name, one in TOPOLOGIES.items() if one.chip is None] == ["cpu-1", "cpu-8"]
    assert find_topology("v4-8").chips == find_topology("v5p-8").chips == 4
