"""The page's service worker, for notifications alone: phones show them only through one (static/js/queue/notify.js).

It is served beside the page and not under /ui/…, because a service worker may look after what lies below it.
"""

from fastapi import APIRouter
from fastapi.responses import FileResponse

from studio.ui.page import STATIC_DIR

PATH = "/service-worker.js"


def make_router() -> APIRouter:
    """The script; browsers ask for it anew, because its address never changes."""
    router = APIRouter(include_in_schema=False)

    @router.get(PATH)
    def read() -> FileResponse:
        return FileResponse(
            STATIC_DIR / "js" / "serviceworker.js",
            media_type="text/javascript",
            headers={"Cache-Control": "no-cache"},
        )

    return router
