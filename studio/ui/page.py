"""Assembles the page: panels in one Gradio app, with their style sheets and scripts.

Gradio hosts the panels that show at first and serves `submit`, `status`, `cancel` and `generate` to `gradio_client`;
everything live is HTML that static/js fills over REST and one event stream. The other panels, more than half of the
markup, come in one file that browsers keep: what Gradio hosts is sent anew with each page, as JSON. There is no
gr.State and no gr.Timer: each would hold a connection per tab. Nothing is loaded from other hosts: fonts, icons and
scripts are our own files.
Not here: what the endpoints do (actions.py), the panels (one file each).
"""

import hashlib
from pathlib import Path
from typing import Any

import gradio as gr
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response

from studio.context import Studio
from studio.ui import (
    accounts_panel,
    actions,
    bundle,
    canvas,
    catalogues,
    controls,
    filmstrip,
    gallery_panel,
    grid_panel,
    header,
    help_panel,
    overlays,
    presets_panel,
    queue_panel,
    system_panel,
    train_panel,
)

STATIC_DIR = Path(__file__).parent / "static"

ENTRY = "main.js"
STYLES = (
    *("tokens", "base", "layout", "controls", "inputs", "loras", "recipe", "canvas", "film", "queue", "presets"),
    *("train",),
    *("gallery", "detail", "griddialog", "system", "accounts", "help"),
    "overlay",
)
PANELS = {
    "header": header,
    "controls": controls,
    "canvas": canvas,
    "filmstrip": filmstrip,
    "queue": queue_panel,
    "train": train_panel,
    "gallery": gallery_panel,
    "presets": presets_panel,
    "grid": grid_panel,
    "system": system_panel,
    "accounts": accounts_panel,
    "help": help_panel,
    "overlays": overlays,
}
SHOWN_FIRST = ("header", "controls", "canvas", "filmstrip", "queue", "overlays")


def join_later_panels() -> str:
    """Returns the panels that show only when somebody opens them; static/js/core/panels.js puts them into the page."""
    return "".join(catalogues.fill(panel.HTML) for name, panel in PANELS.items() if name not in SHOWN_FIRST)


def _digest_files() -> str:
    digest = hashlib.sha256()
    for file in sorted(
        path for folder in (STATIC_DIR, catalogues.FOLDER) for path in folder.rglob("*") if path.is_file()
    ):
        digest.update(file.read_bytes())
    digest.update(join_later_panels().encode())
    return digest.hexdigest()[:10]


# The URL has a hash of what is served below it: after an update no browser mixes new scripts with cached old ones.
STATIC_URL = f"/ui/{_digest_files()}"


def _make_head() -> str:
    base = STATIC_URL.removeprefix("/")  # relative to the page, so that it works behind a proxy's prefix
    return (
        f"<script>{catalogues.make_script(base)}"
        f'window.lumeshPanels = fetch("{base}/panels.html");</script>'
        '<meta name="viewport" content="width=device-width, initial-scale=1, viewport-fit=cover">'
        f'<link rel="preload" href="{base}/fonts/inter-latin.woff2" as="font" type="font/woff2" crossorigin>'
        f'<link rel="stylesheet" href="{base}/css/page.css">'
        f'<link rel="icon" type="image/svg+xml" href="{base}/icons/lumesh.svg">'
        f'<script type="module" src="{base}/js/page.js"></script>'
    )


QUEUE_LOOK_S = 0.05

# Arguments of gr.mount_gradio_app: since Gradio 6 theme and CSS belong to the mount, not to the Blocks.
MOUNT_OPTIONS: dict[str, Any] = {
    "head": _make_head(),
    # Fonts are plain names: a gr.themes.GoogleFont would be fetched from Google.
    "theme": gr.themes.Base(font=["Inter", "system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]),
    "footer_links": [],
    "run_history": False,
    "favicon_path": str(STATIC_DIR / "icons" / "lumesh.png"),
}


def make_router() -> APIRouter:
    """Serves the page's scripts, its style sheets and its later panels, each as one (bundle.py)."""
    router = bundle.make_router(STATIC_URL, static=STATIC_DIR, entry=ENTRY, styles=STYLES)
    send_panels = bundle.make_sender(join_later_panels, "text/html")

    @router.get(f"{STATIC_URL}/panels.html")
    def read_panels(request: Request) -> Response:
        return send_panels(request)

    return router


def build(studio: Studio) -> gr.Blocks:
    """Builds the page's Blocks, to be mounted by `mount`."""
    with gr.Blocks(title="Lumesh", analytics_enabled=False, fill_width=True) as page:
        with gr.Column(elem_id="studio"):
            for name in SHOWN_FIRST:
                markup = catalogues.fill(PANELS[name].HTML)
                gr.HTML(markup, elem_id=f"panel-{name}", apply_default_css=False, js_on_load=None)
        actions.offer(studio)
    # Gradio's own queue, which only `gradio_client` uses, polls for calls a thousand times a second: 4 % of a core.
    page._queue.sleep_when_free = page._queue.progress_update_sleep_when_free = QUEUE_LOOK_S  # noqa: SLF001 - no option sets it
    return page


def mount(app: FastAPI, blocks: gr.Blocks, **options: Any) -> FastAPI:
    """Puts the page at the application's root; `options` are further ones of gr.mount_gradio_app."""
    return gr.mount_gradio_app(app, blocks, path="/", **options, **MOUNT_OPTIONS)


def count_inputs(page: gr.Blocks) -> dict[str, int]:
    """Returns how many values each endpoint of the page takes, by its name, and by its number as text."""
    counts = {str(number): len(endpoint.inputs) for number, endpoint in page.fns.items()}
    return counts | {str(endpoint.api_name): len(endpoint.inputs) for endpoint in page.fns.values()}
