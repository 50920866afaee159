"""Gradio's sign of loading, mended: it rests as soon as it is taken away.

The sign that covers a loading page moves on springs and counts seconds, both frame by frame. In Gradio's own script the
springs swing on for four seconds after the page has taken its place, and the counting never ends: 4 % of a core for
each open tab. So that one script is answered here, with two places of it changed. A Gradio in whose script they are not
found, each once, sends its own.
"""

import hashlib
import logging
from email.utils import formatdate
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import Response
from gradio.route_utils import BUILD_PATH_LIB

from studio.ui import bundle

ASSETS = Path(BUILD_PATH_LIB)
NAME = "statustracker-*.js"
CHANGES = (
    # The counting: a flag says that it goes on, and only a change of the sign's state takes the flag away.
    ("W&&=!1}O(()=>{o.status===`pending`?", "W&&=!1}O(()=>()=>{W=!1}),O(()=>{o.status===`pending`?"),
    # The springs: a flag is looked at after each round of four seconds. A hard value ends a spring at once.
    (
        "async function v(){await Promise.all([f.set([125,0]),p.set([-125,0])]),_()}O(()=>(v(),()=>{F(m,!0)}))",
        "async function v(){await Promise.all([f.set([125,0]),p.set([-125,0])]),_()}"
        "O(()=>(v(),()=>{F(m,!0),f.set([0,0],{hard:!0}),p.set([0,0],{hard:!0})}))",
    ),
)

log = logging.getLogger(__name__)


def make_router(assets: Path = ASSETS) -> APIRouter:
    """Serves the mended script where Gradio serves its own; serves nothing if it is not the one that is known."""
    router = APIRouter(include_in_schema=False)
    found = [(file, mended) for file in assets.glob(NAME) if (mended := mend(file.read_text("utf-8"))) is not None]
    if len(found) != 1:
        log.warning("Gradio's sign of loading cannot be mended: no single %s in %s is known", NAME, assets)
        return router
    ((file, script),) = found
    # Browsers ask again, as for Gradio's other files: the name's hash says nothing of what is changed here.
    headers = {
        "ETag": f'"{hashlib.sha256(script.encode()).hexdigest()[:32]}"',
        "Last-Modified": formatdate(file.stat().st_mtime, usegmt=True),
        "Vary": "Accept-Encoding",
    }
    send = bundle.make_sender(lambda: script, "text/javascript", headers)

    @router.get(f"/assets/{file.name}")
    def read_script(request: Request) -> Response:
        return send(request)

    return router


def mend(script: str) -> str | None:
    """Returns the script with each place changed, or None if it has not each place once."""
    for place, change in CHANGES:
        if script.count(place) != 1:
            return None
        script = script.replace(place, change)
    return script
