"""The System view, the help and the keys in a real browser, and whether everybody can use the page (axe-core)."""

import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

from studio.ui.catalogues import LANGUAGES
from tests.browser.axe import run_axe

pytestmark = pytest.mark.browser
STUDIO_FLAGS = ("--chip-price", "1.2")
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1440, "height": 900}
FILLED = {
    "create": "#lu-film-row img",
    "train": "#lu-train-numbers:not(:empty)",
    "gallery": ".lu-shot img",
    "presets": ".lu-preset",
    "system": "#lu-sys-versions dd",
}
TABS = ("models", "storage", "loras", "plan", "log")
# A dialog covers what else is on the page, but axe looks at that, too.
HIDE_THE_REST = """() => {
  for (const one of document.querySelectorAll("#studio *"))
    if (!one.closest("dialog") && !one.querySelector("dialog")) one.style.setProperty("display", "none", "important");
}"""
# Titles that only opening it in earnest gives are stood in for.
OPEN = """id => {
  const dialog = document.getElementById(id);
  for (const title of dialog.querySelectorAll("h2:empty")) title.textContent = "Title";
  dialog.showModal();
}"""
TAKE_NAMES = """() => {
  const button = document.getElementById("lu-theme");
  const names = ["aria-label", "title"].map((name) => [name, button.getAttribute(name)]);
  for (const [name] of names) button.removeAttribute(name);
  return names;
}"""
GIVE_NAMES = "names => names.forEach(([name, value]) => document.getElementById('lu-theme').setAttribute(name, value))"
# Its rule for names that lack what is seen is not on by itself.
RULES = {"rules": {"label-content-name-mismatch": {"enabled": True}}}
CONTRAST = {"runOnly": ["color-contrast"]}  # all that another colour scheme can change
SLOW_MS = 60_000  # axe looks at every element

OpenPage = Callable[..., Any]
Keep = Callable[[Any, str], None]


@pytest.fixture(autouse=True)
def _idle(studio: Any) -> Iterator[None]:
    """No test leaves a job behind for the next one."""
    yield
    _post(studio, "jobs/cancel", {"scope": "all"})


def _post(studio: Any, path: str, body: dict[str, Any]) -> None:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{studio.url}/api/v1/{path}", json.dumps(body).encode(), headers)
    urllib.request.urlopen(request).close()


def find_violations(page: Any, within: str | None = None, *, rules: dict[str, Any] = RULES) -> list[str]:
    found = run_axe(page, within, rules)
    return [
        f"{one['impact']} {one['id']}: {node['target']} {node['html']} {node['failureSummary']}"
        for one in found
        for node in one["nodes"]
    ]


def make_outputs(studio: Any) -> None:
    """Something on every view: a picture, a failed job, one that waits."""
    for prompt, steps in (("A red sailboat", 2), ("fail please", 2), ("A blue house", 100), ("A green cactus", 4)):
        _post(studio, "jobs", {"model": "demo-sdxl", "prompt": prompt, "steps": steps})


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_axe_finds_nothing_on_any_view(open_page: OpenPage, studio: Any, scheme: str) -> None:
    _post(studio, "jobs", {"model": "demo-wan", "prompt": "Waves", "steps": 2})
    _post(studio, "jobs", {"model": "demo-sdxl", "prompt": "Two boats", "steps": 2, "batch_size": 2})
    rules = RULES if scheme == "dark" else CONTRAST
    page = open_page(color_scheme=scheme)
    page.set_default_timeout(SLOW_MS)
    expect(page.locator(".lu-film-count").nth(1)).to_be_visible()  # what stands on a tile is in its name
    make_outputs(studio)
    for view, filled in FILLED.items():
        page.click(f".lu-views [data-view={view}]")
        page.wait_for_selector(filled)
        assert find_violations(page, rules=rules) == [], view
        for tab in TABS if view == "system" and scheme == "dark" else ():
            page.click(f"#lu-sys-tab-{tab}")
            assert find_violations(page, f"#lu-sys-panel-{tab}") == [], tab
        if view == "gallery":
            page.locator(".lu-shot").first.click()
            page.wait_for_selector("#lu-detail .lu-facts")
            assert find_violations(page, rules=rules) == [], "one output"
            page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.locator("#lu-keys")).to_be_visible()
    assert find_violations(page, rules=rules) == [], "help"


@pytest.mark.parametrize(("viewport", "scheme"), [(DESK, "dark"), (PHONE, "light")], ids=["desk", "phone"])
def test_axe_finds_nothing_in_any_dialog(open_page: OpenPage, viewport: dict[str, int], scheme: str) -> None:
    page = open_page(viewport=viewport, color_scheme=scheme)
    page.set_default_timeout(SLOW_MS)
    dialogs = page.evaluate("[...document.querySelectorAll('#studio dialog')].map(({ id }) => id)")
    assert len(dialogs) > 4
    page.evaluate(HIDE_THE_REST)
    for dialog in dialogs:
        page.evaluate(OPEN, dialog)
        assert find_violations(page, f"#{dialog}") == [], dialog
        page.evaluate("id => document.getElementById(id).close()", dialog)


def test_axe_would_see_a_button_without_a_name(shared_page: Any) -> None:
    page = shared_page
    names = page.evaluate(TAKE_NAMES)
    assert any("button-name" in one for one in find_violations(page, ".lu-header"))
    page.evaluate(GIVE_NAMES, names)
    assert find_violations(page, ".lu-header") == []


def test_axe_finds_nothing_on_a_phone_and_help_is_one_menu_away(open_page: OpenPage, studio: Any, keep: Keep) -> None:
    _post(studio, "jobs", {"model": "demo-sdxl", "prompt": "A red sailboat", "steps": 2})
    page = open_page(viewport=PHONE, color_scheme="light")
    page.set_default_timeout(SLOW_MS)
    page.click("#lu-more")
    assert find_violations(page, "#lu-menu") == []
    page.get_by_role("menuitem", name="Help").click()
    expect(page.locator("#lu-keys")).to_contain_text("“A {red|blue} boat” makes one job for each choice.")
    assert find_violations(page, "#lu-keys") == []
    keep(page, "help-phone")
    page.keyboard.press("Escape")
    for view in FILLED:
        page.click(f".lu-views [data-view={view}]")
        page.wait_for_selector(FILLED[view])
        assert find_violations(page) == [], view
        assert page.evaluate(
            "[document.documentElement, document.getElementById('studio')].every(box => box.scrollWidth <= innerWidth)"
        ), view
    for tab in TABS:
        page.click(f"#lu-sys-tab-{tab}")
        assert find_violations(page, f"#lu-sys-panel-{tab}") == [], tab


def test_the_system_views_tabs_show_machine_models_disk_plan_and_log(shared_page: Any, keep: Keep) -> None:
    page = shared_page
    page.locator(".lu-views [data-view=system]").press("Enter")
    expect(page.locator("#lu-system")).to_be_visible()
    assert page.url.endswith("#system/devices")
    tab = page.get_by_role("tab", selected=True)
    expect(tab).to_have_text("Devices")
    expect(page.locator("#lu-sys-devices [role=meter]:visible")).to_have_count(2)
    expect(page.locator("#lu-sys-machine")).to_contain_text(
        re.compile(r"Last switch.* in .* s: (unloading .*)?loading")
    )
    expect(page.locator("#lu-sys-versions")).to_contain_text("torchax")
    expect(page.locator("#lu-sys-usage tr")).to_have_count(1)
    keep(page, "system-dark")
    tab.focus()
    for name in ("models", "storage", "loras", "plan", "log"):
        page.keyboard.press("ArrowRight")
        expect(page.locator(f"#lu-sys-panel-{name}")).to_be_visible()
        expect(page.locator("#lu-system [role=tabpanel]:visible")).to_have_count(1)
        assert page.evaluate("document.activeElement.id") == f"lu-sys-tab-{name}"
        assert page.url.endswith(f"#system/{name}")
        keep(page, f"system-{name}-dark")
    expect(page.locator("#lu-sys-log")).not_to_be_empty()
    page.keyboard.press("ArrowRight")
    expect(tab).to_have_text("Devices")
    page.click("#lu-sys-tab-storage")
    expect(page.locator("#lu-sys-disk tr", has_text="Outputs")).to_be_visible()
    page.reload()
    expect(page.locator("#lu-sys-disk tr", has_text="Outputs")).to_be_visible()
    page.click(".lu-views [data-view=create]")
    page.click(".lu-views [data-view=system]")
    expect(tab).to_have_text("Storage")
    page.go_back()
    page.goto(page.url.split("#")[0] + "#system/models")
    expect(page.locator("#lu-sys-models li", has_text="256 × 256: warm").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#lu-system")).to_be_hidden()


def test_clearing_the_cache_asks_first(shared_page: Any) -> None:
    page = shared_page
    page.click(".lu-views [data-view=system]")
    page.click("#lu-sys-tab-storage")
    asked: list[str] = []

    def accept(dialog: Any) -> None:
        asked.append(dialog.message)
        dialog.accept()

    page.once("dialog", accept)
    page.get_by_role("button", name="Clear: Compiled programs").click()
    expect(page.locator("#lu-toasts")).to_contain_text("freed")
    assert len(asked) == 1 and "Delete all compiled programs" in asked[0]
    page.once("dialog", accept)
    page.get_by_role("button", name="Clear: Sharded weights").click()
    assert len(asked) == 2 and "The checkpoints stay" in asked[1]
    page.once("dialog", accept)
    page.get_by_role("button", name="Clear: Ended trainings").click()
    assert len(asked) == 3 and "They would begin anew" in asked[2]


def test_a_kept_plan_shows_at_once_and_says_who_estimated_it(open_page: OpenPage, studio: Any, keep: Keep) -> None:
    page = open_page()
    plan = {
        "model": "demo-sdxl",
        "shape": "256x256",
        "topology": "v6e-8",
        "mode": "latency",
        "mesh": "dp=2,sp=4",
        "batch_size": 1,
        "hbm_limit_bytes": 33_000_000_000,
        "fits": True,
        "estimated_total_s": 1.6,
        "source": "Estimated by the TPU compiler",
        "placement": {"kind": "all", "advice": "Everything stays on the chips.", "resident_bytes": 9_800_000_000},
        "stages": [
            {
                "stage": "denoise",
                "runs": 12,
                "fits": True,
                "hbm_bytes": {"weights": 9_500_000_000, "temp": 300_000_000, "code": 0, "total": 9_800_000_000},
                "compile_s": 70,
                "estimated_ms": 130.5,
                "estimated_parts_ms": {
                    "compute": 50.0,
                    "attention": 40.5,
                    "convolutions": 30.0,
                    "exposed_collectives": 10.0,
                    "hidden_collectives": 5.0,
                    "once_a_chunk": 0.0,
                },
                "collectives": {"all-gather": {"count": 140, "bytes": 1000}},
                "refusal": None,
            }
        ],
    }
    run = {"state": "done", "progress": {}, "plan": plan, "error": "", "other": None}
    page.route("**/api/v1/system/plan?*", lambda route: route.fulfill(json=run))
    page.click(".lu-views [data-view=system]")
    page.click("#lu-sys-tab-plan")
    result = page.locator("#lu-plan-result")
    expect(result).to_contain_text("Estimated by the TPU compiler; nothing was run.")
    expect(result.locator("tbody tr")).to_have_text("Denoise × 12yes9.5 GB300 MB0 bytes9.8 GB70 s130.5 ms70.5 ms10 ms")
    expect(result).to_contain_text("Denoise: 140 all-gather")
    expect(page.locator("#lu-plan-start")).to_be_disabled()
    result.scroll_into_view_if_needed()
    keep(page, "plan-dark")


def test_this_hardware_is_planned_as_it_is_used_and_nothing_starts_unasked(
    open_page: OpenPage, studio: Any, keep: Keep
) -> None:
    """On a v6e-8 that makes many outputs at once; the plan is the one that comes with Lumesh."""
    page = open_page()
    with urllib.request.urlopen(f"{studio.url}/api/v1/system/topologies") as answer:
        machines = json.load(answer) | {
            "here": "v6e-8",
            "here_mode": "throughput",
            "remote_text_encoders": ["sdxl-base"],
        }
    page.route("**/api/v1/system/topologies", lambda route: route.fulfill(json=machines))
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.method) if "/system/plan" in one.url else None)
    page.click(".lu-views [data-view=system]")
    page.click("#lu-sys-tab-plan")
    expect(page.locator("#lu-plan-topology")).to_have_value("v6e-8")
    expect(page.locator("#lu-plan-mode")).to_have_value("throughput")
    page.select_option("#lu-plan-model", "sdxl-base")
    page.select_option("#lu-plan-mode", "latency")
    result = page.locator("#lu-plan-result")
    expect(result.locator("tbody tr th")).to_contain_text(["Encode text", "Denoise", "Decode"])
    expect(result).to_contain_text("This plan came with Lumesh")
    expect(result).to_contain_text("this plan counts the text encoder all the same")
    expect(page.locator("#lu-plan-start")).to_be_enabled()
    result.scroll_into_view_if_needed()
    keep(page, "plan-shipped")
    page.select_option("#lu-plan-topology", "v6e-4")
    expect(result).not_to_contain_text("counts the text encoder")
    page.select_option("#lu-plan-topology", "v6e-8")
    expect(page.locator("#lu-plan-mode")).to_have_value("throughput")
    assert {*asked} == {"GET"}


def test_the_help_lists_every_key_of_the_map(shared_page: Any, keep: Keep) -> None:
    page = shared_page
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    rows = page.locator("#lu-keymap dt")
    script = page.locator("script[src$='js/page.js']").get_attribute("src")
    assert script is not None
    keymap = page.evaluate(
        "async (url) => (await import(new URL(url, document.baseURI))).KEYMAP",
        script.replace("page.js", "core/keymap.js"),
    )
    assert len(keymap) > 20
    assert {*rows.all_inner_texts()} == {str(LANGUAGES["en"].messages[f"key.{row['id']}"]) for row in keymap}
    expect(page.locator("#lu-keys dt", has_text="Compiling")).to_be_visible()
    expect(page.locator("#lu-help-folder")).to_contain_text("data")
    keep(page, "help-dark")


def test_an_output_tells_what_it_cost(open_page: OpenPage, studio: Any) -> None:
    page = open_page()
    page.fill("#lu-prompt", "A yellow boat")
    page.fill("#lu-steps-value", "2")
    page.click("#lu-generate")
    expect(page.locator(".lu-result")).to_be_visible()
    expect(page.locator("#lu-bar .lu-bar-sub")).to_have_text(re.compile(r" s · [\d.,]+ chip-seconds · \$[\d.]+ · "))
    expect(page.locator("#lu-queue-cost")).to_have_text(re.compile(r"^So far: [\d.,]+ chip-seconds · \$[\d.]+$"))
    page.click(".lu-views [data-view=gallery]")
    page.locator(".lu-shot").first.click()
    expect(page.locator("#lu-detail-body .lu-facts").first).to_contain_text("chip-seconds")


def test_with_reduced_motion_nothing_moves_by_itself(open_page: OpenPage) -> None:
    page = open_page(reduced_motion="reduce")
    page.fill("#lu-prompt", "A boat that takes its time")
    page.fill("#lu-steps-value", "30")
    page.click("#lu-generate")
    page.wait_for_selector(".lu-preview")
    moving = page.evaluate(
        """document.getAnimations().filter(({ effect }) => {
          const { duration, iterations } = effect.getComputedTiming();
          return duration * iterations > 50;
        }).map(({ effect }) => effect.target.className)"""
    )
    assert moving == []


def test_a_wildcard_is_written_used_changed_and_deleted(shared_page: Any, studio: Any, keep: Keep) -> None:
    page = shared_page
    page.click(".lu-views [data-view=system]")
    page.click("#lu-sys-tab-loras")
    name, lines, choice = (page.locator(f"#lu-words-{part}") for part in ("name", "lines", "list"))
    name.fill("places/harbours")
    lines.fill("Genoa\nBergen")
    expect(page.locator("#lu-words-note")).to_contain_text("Write __places/harbours__ in a prompt")
    keep(page, "wildcards")
    page.get_by_role("button", name="Save wildcard").click()
    expect(choice.locator("option:checked")).to_have_text("places/harbours: 2 options")

    with urllib.request.urlopen(f"{studio.url}/api/v1/wildcards/places/harbours") as answer:
        assert json.load(answer)["lines"] == ["Genoa", "Bergen"]

    lines.fill("# ports\nGenoa\nBergen\nOporto\n")
    page.get_by_role("button", name="Save wildcard").click()
    expect(choice.locator("option:checked")).to_have_text("places/harbours: 3 options")
    choice.select_option("")
    expect(lines).to_have_value("")
    choice.select_option("places/harbours")
    expect(lines).to_have_value("# ports\nGenoa\nBergen\nOporto")

    name.fill("../etc/passwd")
    page.get_by_role("button", name="Save wildcard").click()
    expect(page.locator("#lu-words-name:invalid")).to_have_count(1)
    name.fill("places/harbours")

    page.once("dialog", lambda dialog: dialog.accept())
    page.locator("#lu-words-delete").click()
    expect(choice.locator("option")).to_have_count(1)
    expect(page.locator("#lu-words-delete")).to_be_hidden()


def test_the_routes_are_described_without_asking_another_host(open_page: OpenPage, studio: Any) -> None:
    page = open_page()
    page.goto(f"{studio.url}/api/docs")
    expect(page.locator("#swagger-ui .info .title")).to_contain_text("Lumesh")
    expect(page.locator(".opblock-summary-path", has_text="/api/v1/jobs").first).to_be_visible()


def test_what_is_not_usable_is_told_and_a_long_list_of_sizes_opens(open_page: OpenPage, studio: Any) -> None:
    file = studio.data_dir / "models" / "old.ckpt"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    try:
        page = open_page()
        page.goto(f"{studio.url}/#system/models")
        unusable = page.locator("#lu-sys-unusable-list li")
        expect(unusable).to_have_count(1)
        expect(unusable).to_contain_text("old.ckpt.ckpt files are not read.")
        file.unlink()
        expect(page.locator("#lu-sys-unusable")).to_be_hidden()
    finally:
        file.unlink(missing_ok=True)
    page.goto(f"{studio.url}/#create")
    sizes, more = page.locator("#lu-sizes .lu-size"), page.locator("#lu-sizes-more")
    expect(more).to_be_hidden()
    page.locator("#lu-model").select_option("sdxl-base")
    expect(sizes).to_have_count(10)
    more.click()
    expect(sizes).to_have_count(42)
    page.locator("#lu-sizes [data-key='512x2048']").click()
    more.click()
    expect(sizes).to_have_count(11)
