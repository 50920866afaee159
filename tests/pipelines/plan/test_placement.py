"""What is recommended when a model does not fit: the least change that helps."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest

from pipelines.models.catalog import load_catalog
from pipelines.plan.placement import HOST_BYTES_PER_S, Need, Placement, count_moves, recommend
from pipelines.plan.topologies import GIB, TOPOLOGIES, find_topology
from pipelines.runtime.devices.offload import USABLE, Offloader, Parked

CATALOG = load_catalog()
FITTING = {"text_encoder": 4.0, "transformer": 8.0}


def list_needs(weights: Mapping[str, float], *, temp: float = 1.0, decode_temp: float = 1.0, on: str) -> list[Need]:
    """What the stages of a text encoder, a transformer or two and an autoencoder of so many GiB need."""
    stages = {"encode": ("text_encoder", 0.1), "denoise": ("transformer", temp), "decode": ("vae", decode_temp)}
    if "transformer_2" in weights:
        stages = {
            "encode": stages["encode"],
            "denoise": stages["denoise"],
            "denoise_2": ("transformer_2", temp),
        } | stages
    limit_bytes = find_topology(on).chip.hbm_bytes if find_topology(on).chip else 1 << 60
    return [
        Need(
            stage=name,
            components=(component,),
            runs=1,
            fits=(weights[component] + size) * GIB <= limit_bytes,
            weights_bytes=int(weights[component] * GIB),
            temp_bytes=int(size * GIB),
            code_bytes=0,
        )
        for name, (component, size) in stages.items()
    ]


def ask(
    encoder: float, transformer: float, vae: float, *, on: str, model: str = "wan2.1-14b", **temps: float
) -> Placement:
    """The recommendation for components of so many GiB a chip."""
    weights = {"text_encoder": encoder, "transformer": transformer, "vae": vae}
    sizes = {name: int(size * GIB) for name, size in weights.items()}
    chosen = CATALOG.get(model)
    needs = list_needs(weights, on=on, **temps)
    return recommend(needs, sizes, topology=TOPOLOGIES[on], model=chosen, shape=chosen.default_shape)


@pytest.mark.parametrize(
    ("sizes", "kind"),
    [
        ((4, 8, 1), "all"),
        ((20, 18, 1), "unload_text_encoder"),
        ((20, 30, 2), "one_at_a_time"),
        ((4, 40, 1), "does_not_fit"),
    ],
)
def test_each_size_has_its_placement(sizes: tuple[int, int, int], kind: str) -> None:
    assert ask(*sizes, on="v6e-8").kind == kind


def test_the_worst_moment_is_told() -> None:
    assert ask(4, 8, 1, on="v6e-8").resident_bytes == 14 * GIB
    assert ask(20, 18, 1, on="v6e-8").resident_bytes == int(21.1 * GIB), "the autoencoder stays with the text encoder"


def test_what_comes_back_for_a_prompt_takes_time_and_is_named() -> None:
    assert ask(4, 8, 1, on="v6e-8").moves_s == 0
    both = ask(20, 18, 1, on="v6e-8")
    assert both.moves_s == pytest.approx(38 * GIB / HOST_BYTES_PER_S)
    assert both.advice == "For every new prompt the text encoder and the transformer change places: about 3.4 s."
    one = ask(11, 16, 1, decode_temp=3, on="v6e-8")  # only decoding has no room for all
    assert one.moves_s == pytest.approx(11 * GIB / HOST_BYTES_PER_S)
    assert one.advice.startswith("The text encoder leaves when others need its room")


def test_two_experts_take_turns() -> None:
    weights = {"text_encoder": 3, "transformer": 20, "transformer_2": 20, "vae": 1}
    model = CATALOG.get("wan2.2-a14b")
    found = recommend(
        list_needs(weights, on="v6e-8"),
        {name: size * GIB for name, size in weights.items()},
        topology=TOPOLOGIES["v6e-8"],
        model=model,
        shape=model.default_shape,
    )
    assert found.kind == "one_at_a_time"
    assert found.moves_s == pytest.approx(40 * GIB / HOST_BYTES_PER_S), "all else stays"
    assert found.advice.endswith(
        "transformer, transformer_2, in about 3.6 s. The two experts take turns at the boundary."
    )


def test_only_flux_has_its_prompts_read_elsewhere() -> None:
    assert ask(40, 8, 1, on="v6e-1", model="flux2-dev").kind == "offload_text_encoder"
    assert ask(40, 8, 1, on="v6e-1").advice == "encode does not fit. By estimate a v6e-4 has the room."


def test_both_too_large_is_advice_on_both() -> None:
    found = ask(40, 50, 1, on="v6e-1", model="flux2-dev").advice
    assert found.startswith("denoise, encode do not fit. By estimate a v6e-4 has the room. With the text encoder on")
    assert found.endswith("(--text_encoder_url) the chips hold only the rest.")
    found = ask(130, 50, 1, on="v6e-1", model="flux2-dev").advice
    assert "By estimate a v6e-8 has the room." in found
    assert found.endswith("(--text_encoder_url) by estimate a v6e-4 is enough.")
    assert "--text_encoder_url" not in ask(40, 50, 1, on="v6e-1").advice


def test_a_decoder_that_does_not_fit_gets_fewer_frames_or_more_chips() -> None:
    found = ask(4, 8, 1, decode_temp=40, on="v6e-8")
    assert found.kind == "does_not_fit"
    assert "Fewer frames or pixels fit by estimate: --shape 832x480x81." in found.advice
    assert "Or a larger machine: by estimate a v5p-8 has the room." in found.advice
    assert ask(4, 8, 1, decode_temp=600, on="v6e-8").advice == (
        "decode does not fit. It needs more chips than any machine known here has."
    )


def test_a_shape_is_suggested_only_where_it_fits() -> None:
    """Of 1280x720x81 a shape of 832x480x81 has 43 %, 832x480x33 18 %."""
    assert "--shape 832x480x81" in ask(4, 8, 1, temp=45, on="v6e-8").advice
    assert "--shape 832x480x33" in ask(4, 8, 1, temp=60, on="v6e-8").advice
    assert "--shape" not in ask(4, 8, 1, temp=150, on="v6e-8").advice
    assert "--shape" not in ask(4, 40, 1, on="v5e-1").advice, "weights alone do not fit"
    assert "--shape" not in ask(40, 8, 1, temp=30, on="v6e-8").advice, "nor does the text encoder"


def test_a_refusal_that_does_not_say_how_much_gets_no_shape() -> None:
    weights = {"text_encoder": 4 * GIB, "transformer": 8 * GIB, "vae": GIB}
    needs = [replace(need, fits=need.stage != "denoise") for need in list_needs(FITTING | {"vae": 1}, on="v6e-1")]
    model = CATALOG.get("wan2.1-14b")
    found = recommend(needs, weights, topology=TOPOLOGIES["v6e-1"], model=model, shape=model.default_shape)
    assert found.advice == "denoise does not fit. By estimate a v6e-4 has the room."


@pytest.mark.parametrize(
    ("on", "transformer", "suggested"),
    [
        ("v6e-1", 60, "v6e-4"),  # more of the same chips first, though four v5e have twice the memory too
        ("v5e-1", 20, "v5e-4"),
        ("v5e-1", 59.5, "v5e-8"),  # a quarter of it and its working memory: 15.1 of 15.75 GiB, more than 95 %
        ("v5e-8", 20, "v5p-8"),
        ("v4-8", 60, "v5p-8"),
    ],
)
def test_more_of_the_same_chips_come_first_then_the_largest(on: str, transformer: float, suggested: str) -> None:
    assert f"a {suggested} has the room." in ask(4, transformer, 1, on=on).advice


def test_what_stays_leaves_as_much_room_as_the_worker_does() -> None:
    assert ask(11, 17, 1, on="v6e-8").kind == "unload_text_encoder", "30 of 31.25 GiB are more than 95 %"


def test_on_a_cpu_everything_stays() -> None:
    assert ask(4, 400, 1, on="cpu-8").kind == "all"


def test_every_topology_has_a_chip_but_the_cpu() -> None:
    assert [name for name, one in TOPOLOGIES.items() if one.chip is None] == ["cpu-1", "cpu-8"]
    assert find_topology("v4-8").chips == find_topology("v5p-8").chips == 4


@dataclass(frozen=True, kw_only=True)
class Working:
    """A program by its memory alone."""

    temp_size_in_bytes: int
    generated_code_size_in_bytes: int
    output_size_in_bytes: int = 0
    alias_size_in_bytes: int = 0

    def memory_analysis(self) -> "Working":
        return self


def drive(needs: list[Need], weights: Mapping[str, int], *, limit_bytes: int) -> list[list[str]]:
    """What comes back to the devices of a real Offloader for each of two prompts."""
    room, components = Offloader(limit_bytes=limit_bytes), dict[str, dict[str, jax.Array]]()
    for name, size in weights.items():
        own = {"w": jax.device_put(np.zeros(size, np.int8))}
        room.prepare(name, own)
        room.add(name, own)
        components[name] = own
    programs = {
        need.stage: Working(temp_size_in_bytes=need.temp_bytes, generated_code_size_in_bytes=need.code_bytes)
        for need in needs
    }
    returned: list[list[str]] = []
    for _prompt in range(2):
        returned.append([])
        for need in needs:
            away = [name for name in need.components if isinstance(components[name]["w"], Parked)]
            room.use(*need.components, program=programs[need.stage])
            returned[-1] += away
    room.clear()
    return returned


@pytest.mark.parametrize(
    ("sizes", "kind", "back"),
    [
        ({"text_encoder": 4, "transformer": 8, "vae": 1}, "all", []),
        ({"text_encoder": 11, "transformer": 16, "vae": 1}, "unload_text_encoder", ["text_encoder"]),
        ({"text_encoder": 20, "transformer": 18, "vae": 1}, "unload_text_encoder", ["text_encoder", "transformer"]),
        ({"text_encoder": 20, "transformer": 28.5, "vae": 2}, "one_at_a_time", ["text_encoder", "transformer", "vae"]),
        (
            {"text_encoder": 3, "transformer": 20, "transformer_2": 20, "vae": 1},
            "one_at_a_time",
            ["transformer", "transformer_2"],
        ),
    ],
)
def test_what_the_advice_says_a_room_does(sizes: dict[str, float], kind: str, back: list[str]) -> None:
    """GiB as kilobytes, so that real arrays can move."""
    needs = list_needs(sizes, decode_temp=3, on="v6e-1")
    model = CATALOG.get("wan2.2-a14b")
    topology = TOPOLOGIES["v6e-1"]
    weights = {name: int(size * GIB) for name, size in sizes.items()}
    found = recommend(needs, weights, topology=topology, model=model, shape=model.default_shape)
    limit_bytes = int(USABLE * 31.25 * GIB)
    moves = count_moves(needs, weights, limit_bytes=limit_bytes)
    assert (found.kind, list(moves.components)) == (kind, back)
    assert found.moves_s == moves.seconds
    small = [replace(need, temp_bytes=need.temp_bytes >> 20, code_bytes=need.code_bytes >> 20) for need in needs]
    scaled = {name: size >> 20 for name, size in weights.items()}
    assert drive(small, scaled, limit_bytes=limit_bytes >> 20)[1] == back
