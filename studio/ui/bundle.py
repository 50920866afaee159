"""The page's scripts as one script, its style sheets as one sheet, and how they and the texts are sent: in Brotli.

A hundred small files cost a hundred answers' headers, more rounds to the server, and half as much again for what each
repeats of the others; so a page asks for `js/page.js` and `css/page.css`, which are made of them once a process. Each
module becomes a function, in the order that browsers would run them. That asks for what tests/studio/ui/test_scripts.py
holds: imports and exports in one way of writing each, no circles, and no export that changes later.
The files themselves are served as well, for the login page, the manual and tests.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import brotli
from fastapi import APIRouter, Request
from fastapi.responses import Response

IMPORT = re.compile(r'^import\s+(?:\{([^}]*)\}\s+from\s+)?"([^"]+)";\n?', re.MULTILINE)
EXPORT = re.compile(r"^export\s+((?:async\s+)?function\*?|const|class)\s+(\w+)", re.MULTILINE)
QUALITY = 7  # 0.1 s for all scripts; 11 takes 2 s for another tenth
FOR_EVER = {"Cache-Control": "private, max-age=31536000, immutable", "Vary": "Accept-Encoding"}


def join_scripts(folder: Path, entry: str) -> str:
    """Returns the module `entry` of the folder, with all that it imports, as one module."""
    numbers: dict[Path, int] = {}
    parts = [
        _enclose(file, numbers.setdefault(file, len(numbers)), numbers, folder)
        for file in _list_in_order(folder / entry, set())
    ]
    return "\n".join(parts)


def _list_in_order(file: Path, seen: set[Path]) -> Iterator[Path]:
    """Lists a module after those that it imports."""
    if file in seen:
        return
    seen.add(file)
    for _, target in IMPORT.findall(file.read_text("utf-8")):
        yield from _list_in_order((file.parent / target).resolve(), seen)
    yield file


def _enclose(file: Path, number: int, numbers: dict[Path, int], folder: Path) -> str:
    """Writes a module as a function that takes its imports from those before and returns its exports."""
    text = file.read_text("utf-8")
    names = [name for _, name in EXPORT.findall(text)]

    def take(found: re.Match[str]) -> str:
        if not (found[1] or "").strip():
            return ""
        wanted = re.sub(r"(\w+)\s+as\s+(\w+)", r"\1: \2", " ".join(found[1].split()))
        return f"const {{ {wanted} }} = m{numbers[(file.parent / found[2]).resolve()]};\n"

    body = EXPORT.sub(r"\1 \2", IMPORT.sub(take, text))
    keeps = f"const m{number} = " if names else ""
    returns = f"return {{ {', '.join(names)} }};\n" if names else ""
    name = file.relative_to(folder).as_posix()
    return f"// {name}\n{keeps}await (async () => {{\n{body}{returns}}})();\n"


def join_styles(files: Iterable[Path]) -> str:
    """Returns style sheets of one folder as one, in this order."""
    return "\n".join(file.read_text("utf-8") for file in files)


def make_sender(
    make: Callable[[], str | bytes], media_type: str, headers: Mapping[str, str] = FOR_EVER
) -> Callable[[Request], Response]:
    """Returns a function that answers with what `make` makes, made and compressed once, when it is first asked for."""

    @cache
    def content() -> bytes:
        made = make()
        return made.encode() if isinstance(made, str) else made

    @cache
    def compressed() -> bytes:
        return brotli.compress(content(), quality=QUALITY)

    def send(request: Request) -> Response:
        if not takes_brotli(request.headers.get("accept-encoding", "")):
            return Response(content(), media_type=media_type, headers=headers)
        return Response(compressed(), media_type=media_type, headers={**headers, "Content-Encoding": "br"})

    return send


def takes_brotli(accepted: str) -> bool:
    """Returns whether an Accept-Encoding header names Brotli, and not with q=0."""
    for part in accepted.lower().split(","):
        name, _, quality = part.partition(";")
        if name.strip() == "br":
            return not re.fullmatch(r"\s*q=0(\.0*)?\s*", quality)
    return False


def make_router(prefix: str, *, static: Path, entry: str, styles: Iterable[str]) -> APIRouter:
    """Serves both below `prefix`, which has a content hash (page.py), so browsers cache them for ever."""
    router = APIRouter(include_in_schema=False)
    sheets = [static / "css" / f"{name}.css" for name in styles]
    send_script = make_sender(lambda: join_scripts((static / "js").resolve(), entry), "text/javascript")
    send_sheet = make_sender(lambda: join_styles(sheets), "text/css")

    @router.get(f"{prefix}/js/page.js")
    def read_script(request: Request) -> Response:
        return send_script(request)

    @router.get(f"{prefix}/css/page.css")
    def read_sheet(request: Request) -> Response:
        return send_sheet(request)

    return router
