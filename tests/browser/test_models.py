"""Models' files in the System view, with a hub of our own: gated ones, the token, a download, deleting, the default."""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="browser tests need `pip install playwright`")
expect = playwright_api.expect

from pipelines.models.catalog import PRESETS_DIR
from tests.browser.conftest import Studio
from tests.browser.test_system import find_violations
from tests.hub import COMMIT, REPO, Hub, run_hub
from tests.pipelines.models.test_model_arrivals import list_boats
from tests.pipelines.models.test_single_files import write_header
from tests.pipelines.single_files import write_ldm

OpenPage = Callable[..., Any]
Keep = Callable[[Any, str], None]
PHONE = {"width": 390, "height": 844}
TOKEN = "hf_of-somebody-who-accepted"
DROP = """([name, text]) => {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const data = new DataTransfer();
  data.items.add(new File([bytes], name));
  const options = { bubbles: true, cancelable: true, dataTransfer: data };
  document.querySelector("#lu-view").dispatchEvent(new DragEvent("drop", options));
}"""
ENTRY = f"""
[[model]]
id = "own-sdxl"
title = "A friend's SDXL"
like = "sdxl-base"
licence = "OpenRAIL++-M"
repo = "{REPO}"
revision = "{COMMIT}"
variant = "fp16"
weights = "int8"
"""


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with run_hub() as hub:
        hub.accepted, hub.names_sha256 = TOKEN, True
        yield hub


@pytest.fixture(scope="module")
def studio(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    """One that asks this hub, and whose catalogue has a repository of it."""
    folder = tmp_path_factory.mktemp("studio")
    (folder / "data").mkdir()
    (folder / "data" / "models.toml").write_text(ENTRY)
    environment = {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(folder / "hf"),
        "HF_HUB_DISABLE_XET": "1",
        "NO_PROXY": "127.0.0.1",
    }
    studio = Studio(folder, environment=environment)
    studio.start()
    yield studio
    studio.stop()


def open_models(page: Any) -> Any:
    """The card of the friend's model."""
    page.get_by_role("link", name="System").click()
    page.get_by_role("tab", name="Models").click()
    return page.locator('[data-model="own-sdxl"]')


def test_a_model_in_int8_says_so_in_system_and_where_it_is_chosen(shared_page: Any, keep: Keep) -> None:
    page = shared_page
    expect(open_models(page)).to_contain_text("large matrices in int8")
    expect(page.locator('[data-model="demo-sdxl"]')).not_to_contain_text("int8")
    page.get_by_role("tab", name="Devices").click()
    expect(page.locator("#lu-sys-machine")).to_contain_text("large matrices of some models in int8")
    keep(page, "devices-int8")
    page.get_by_role("link", name="Create").click()
    page.locator("#lu-model").select_option("own-sdxl")
    expect(page.locator("#lu-model-note")).to_contain_text("Its large matrices are in int8 here")
    page.locator("#lu-model").select_option("demo-sdxl")


def test_a_gated_model_is_downloaded_with_a_token_paused_resumed_and_deleted(
    shared_page: Any, keep: Keep, hub: Hub
) -> None:
    page = shared_page
    card = open_models(page)
    expect(card).to_contain_text("Not on this machine")
    expect(card.get_by_role("link", name="OpenRAIL++-M")).to_have_attribute("href", f"https://huggingface.co/{REPO}")
    card.get_by_role("button", name="Download").click()
    expect(page.locator("#lu-model-message")).to_contain_text(f"Accept its licence at https://huggingface.co/{REPO}")
    expect(card).to_contain_text("Gated: accept its licence on its page")

    page.get_by_label("Access token").fill(TOKEN)
    page.get_by_role("button", name="Keep", exact=True).click()
    expect(page.locator("#lu-hub-token-state")).to_have_text("The hub is asked with the token that was entered here.")
    expect(page.get_by_label("Access token")).to_have_value("")
    hub.stalls_after = 11 * 2**20
    card.get_by_role("button", name="Download").click()
    expect(card).to_contain_text("of 26.2 MB (4")
    assert find_violations(page, "#lu-sys-panel-models") == []
    keep(page, "models-downloading")
    card.get_by_role("button", name="Pause").click()
    expect(card).to_contain_text("arrived, then it was stopped")
    hub.stalls_after = None
    card.get_by_role("button", name="Go on").click()
    hub.goes_on.set()
    expect(card).to_contain_text("26.2 MB on disk", timeout=30_000)

    page.once("dialog", lambda dialog: dialog.accept())
    card.get_by_role("button", name="Delete files").click()
    expect(card).to_contain_text("Not on this machine")


def test_a_checkpoint_that_is_dropped_becomes_the_chosen_model(
    open_page: OpenPage, keep: Keep, tmp_path: Path, encode_lora: Callable[..., bytes]
) -> None:
    page = open_page()
    pony = write_ldm(PRESETS_DIR / "demo" / "demo-sdxl", tmp_path / "pony.safetensors")
    page.locator("#lu-model-file").set_input_files(pony)
    expect(page.locator("#lu-model option", has_text="pony")).to_have_count(1, timeout=30_000)
    with page.expect_file_chooser() as chooser:
        page.evaluate("document.querySelector('#lu-model-file').click()")
    chooser.value.set_files({"name": "boats.safetensors", "mimeType": "", "buffer": encode_lora()})
    open_models(page)
    expect(page.locator("#lu-model-add-message")).to_contain_text("It is a LoRA, not a model.")
    assert find_violations(page, "#lu-sys-panel-models") == []

    page.get_by_role("link", name="Create").click()
    page.evaluate(DROP, ["illustrious.safetensors", base64.b64encode(pony.read_bytes()).decode()])
    expect(page.get_by_text("kept here, for everybody, and chosen for your next picture")).to_be_visible()
    page.get_by_role("button", name="Add as a model").click()
    expect(page.locator("#lu-model")).to_have_value("illustrious", timeout=30_000)
    keep(page, "models-dropped")


def test_a_repository_is_added(shared_page: Any, hub: Hub) -> None:
    page = shared_page
    open_models(page)
    page.get_by_label("Repository of the hub").fill("someone/nothing")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator("#lu-model-add-message")).to_contain_text("The hub knows no repository someone/nothing")


def test_a_file_is_added_by_its_address_and_a_wrong_one_says_what_it_is(
    shared_page: Any, keep: Keep, hub: Hub, tmp_path: Path
) -> None:
    boats = write_header(tmp_path / "boats.safetensors", list_boats()).read_bytes()
    hub.files = {
        **hub.files,
        "boats.safetensors": boats,
        "words.safetensors": b"no weights, whatever its name says" * 99,
    }
    hub.accepted = None
    page = shared_page
    open_models(page)
    field, add = page.get_by_label("Repository of the hub"), page.get_by_role("button", name="Add", exact=True)
    field.fill(f"{REPO} words.safetensors")
    add.click()
    arrivals = page.locator("#lu-arrivals")
    expect(arrivals).to_contain_text("It is neither a safetensors nor a GGUF file", timeout=30_000)
    keep(page, "models-arrivals")
    arrivals.get_by_role("button", name="Dismiss").click()
    field.fill(f"https://huggingface.co/{REPO}/blob/main/boats.safetensors")
    add.click()
    expect(page.locator('[data-model="boats"]')).to_contain_text("on disk", timeout=30_000)
    expect(arrivals).to_contain_text("boats")
    field.fill("http://127.0.0.1:9/a.safetensors")
    add.click()
    expect(page.locator("#lu-model-add-message")).to_contain_text("is not on the public internet")


def test_the_loras_that_a_preset_lacks_are_downloaded_from_its_card(
    open_page: OpenPage, keep: Keep, hub: Hub, encode_lora: Callable[..., bytes]
) -> None:
    hub.files, hub.accepted = {**hub.files, "crayons.safetensors": encode_lora()}, None
    recipe = {"model": "demo-sdxl", "prompt": "a red boat", "loras": [{"ref": "crayons", "scale": 1.0}]}
    source = {"ref": "crayons", "repo": REPO, "file": "crayons.safetensors", "licence": "MIT"}
    preset = {"schema": 1, "kind": "lumesh.preset", "title": "Crayons", "recipe": recipe, "loras": [source]}
    page = open_page()
    page.get_by_role("link", name="Presets").click()
    written = {"name": "crayons.json", "mimeType": "application/json", "buffer": json.dumps(preset).encode()}
    page.locator("#lu-presets-file").set_input_files(written)
    card = page.locator(".lu-preset", has_text="Crayons")
    lacking = card.locator(".lu-preset-missing")
    lacking.locator("summary").click()
    expect(lacking).to_contain_text("crayons Licence: MIT")
    keep(page, "presets-lacking")
    lacking.get_by_role("button", name="Download").click()
    expect(lacking).to_have_count(0, timeout=30_000)
    expect(page.get_by_text("crayons is here")).to_be_visible()
    card.get_by_role("button", name="Edit").click()
    expect(page.locator("#lu-loras")).to_contain_text("crayons")


def test_a_model_that_came_with_lumesh_cannot_be_deleted(open_page: OpenPage, keep: Keep) -> None:
    page = open_page(viewport=PHONE, color_scheme="light")
    open_models(page)
    card = page.locator('[data-model="demo-wan"]')
    expect(card).to_contain_text("came with Lumesh")
    expect(card.get_by_role("button", name="Delete files")).to_have_count(0)
    assert find_violations(page) == []
    card.scroll_into_view_if_needed()
    keep(page, "models-phone")
