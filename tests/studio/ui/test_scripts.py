"""The page's scripts stand in folders whose imports point down, without circles, and nothing there is left over."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from studio.jobs import training
from studio.library import uploaded_clips, uploads
from studio.ui import bundle, page

SCRIPTS = page.STATIC_DIR / "js"
# A folder imports only folders before it, and itself; what stands beside the folders sees all.
ORDER = ("core", "create", "presets", "queue", "train", "gallery", "canvas", "system", "")
ENTRIES = {
    "main.js",
    "serviceworker.js",
}  # what the bundle begins with, and what the browser asks for by name

_COMMENT = re.compile(r"^\s*(?://|/\*\*|\*).*$", re.MULTILINE)
_ANY_IMPORT = re.compile(r"^\s*(?:import\b|export\b.*\bfrom\b|.*\bimport\()", re.MULTILINE)
_ANY_EXPORT = re.compile(r"^export\b", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Script:
    """One script by its path below the folder of scripts: imported path -> the names asked for, and names exported."""

    imports: dict[str, set[str]]
    exports: set[str]


def read_script(file: Path) -> Script:
    text = _COMMENT.sub("", file.read_text("utf-8"))
    statements = bundle.IMPORT.findall(text)
    exports = [name for _, name in bundle.EXPORT.findall(text)]
    assert len(statements) == len(_ANY_IMPORT.findall(text)), (
        f"{file.name} imports in another way than `import {{…}} from`"
    )
    assert len(exports) == len(_ANY_EXPORT.findall(text)), f"{file.name} exports in another way than where it declares"
    imports: dict[str, set[str]] = {}
    for names, target in statements:
        assert target.startswith("."), f"{file.name} imports {target}, which is no file of ours"
        path = (file.parent / target).resolve().relative_to(SCRIPTS).as_posix()
        imports.setdefault(path, set()).update(
            name.split(" as ")[0].strip() for name in names.split(",") if name.strip()
        )
    return Script(imports=imports, exports=set(exports))


@pytest.fixture(scope="module")
def scripts() -> dict[str, Script]:
    return {file.relative_to(SCRIPTS).as_posix(): read_script(file) for file in sorted(SCRIPTS.rglob("*.js"))}


def list_imports(scripts: dict[str, Script]) -> Iterator[tuple[str, str, set[str]]]:
    for path, script in scripts.items():
        for target, names in script.imports.items():
            yield path, target, names


def test_every_import_names_a_file_and_what_it_exports(scripts: dict[str, Script]) -> None:
    assert len(scripts) > 60
    for path, target, names in list_imports(scripts):
        assert target in scripts, f"{path} imports {target}, which is not there"
        assert names <= scripts[target].exports, f"{path} asks {target} for more than it exports"


@pytest.mark.parametrize(
    ("path", "name", "limit"),
    [
        ("create/inputs.js", "MAX_BYTES", uploads.MAX_BYTES),
        ("train/pictures.js", "MAX_CLIP_BYTES", uploaded_clips.MAX_BYTES),
        ("train/pictures.js", "MAX", training.MAX_PICTURES),
        ("train/tile.js", "MAX_CAPTION", training.MAX_CAPTION_CHARS),
    ],
)
def test_a_limit_of_the_page_is_the_servers(path: str, name: str, limit: int) -> None:
    found = re.search(rf"^(?:export )?const {name} = ([\de]+);", (SCRIPTS / path).read_text("utf-8"), re.MULTILINE)
    assert found is not None and float(found[1]) == limit


def test_every_export_is_imported(scripts: dict[str, Script]) -> None:
    exported = {(path, name) for path, script in scripts.items() for name in script.exports}
    imported = {(target, name) for _, target, names in list_imports(scripts) for name in names}
    assert not exported - imported


def test_imports_make_no_circle(scripts: dict[str, Script]) -> None:
    TopologicalSorter({path: script.imports for path, script in scripts.items()}).prepare()


def test_folders_import_only_folders_before_them(scripts: dict[str, Script]) -> None:
    def place_of(path: str) -> int:
        return ORDER.index(path.rpartition("/")[0])

    assert not [(path, target) for path, target, _ in list_imports(scripts) if place_of(target) > place_of(path)]


def test_every_script_is_reached_from_an_entry(scripts: dict[str, Script]) -> None:
    reached: set[str] = set()
    following = set(ENTRIES)
    while following:
        reached |= following
        following = {target for path in following for target in scripts[path].imports} - reached
    assert reached == scripts.keys()


def test_the_page_asks_for_all_scripts_as_one(scripts: dict[str, Script]) -> None:
    assert re.findall(r'src="[^"]*/js/([^"]+)"', page.MOUNT_OPTIONS["head"]) == ["page.js"]
    whole = bundle.join_scripts(SCRIPTS.resolve(), page.ENTRY)
    order = [line.removeprefix("// ") for line in whole.splitlines() if line.startswith("// ") and line.endswith(".js")]
    assert set(order) == scripts.keys() - {"serviceworker.js"}
    assert len(order) == len(set(order))
    for path, target, _ in list_imports(scripts):
        assert path not in order or order.index(target) < order.index(path)
    assert not re.search(r"^\s*(import|export)\b", whole, re.MULTILINE)
