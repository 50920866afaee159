"""Serves the page's service worker, used only for notifications: phones require one (static/js/queue/notify.js).

It is served next to the page and not under /ui/…, because a service worker's scope is its own folder.
"""

from fastapi import APIRouter
from fastapi.responses import FileResponse

from studio.ui.page import STATIC_DIR

PATH = "/service-worker.js"


def make_router() -> APIRouter:
    """Makes the script's route; browsers must revalidate it, because its URL never changes."""
    router = APIRouter(include_in_schema=False)

    @router.get(PATH)
    def read() -> FileResponse:
        return FileResponse(
            STATIC_DIR / "js" / "serviceworker.js",
            media_type="text/javascript",
            headers={"Cache-Control": "no-cache"},
        )

    return router
