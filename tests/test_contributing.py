"""What .github/CONTRIBUTING.md says of the source is so: its paths, the tree of folders, the tiers."""

import re
from collections.abc import Iterator

from tests.places import ROOT
from tests.tiers import TIERS

TEXT = (ROOT / ".github" / "CONTRIBUTING.md").read_text("utf-8")
TREE = TEXT.split("```")[1]
PACKAGES = ("pipelines", "studio")
MAX_LINES = 200  # one sitting


def list_tree() -> Iterator[str]:
    """Paths of the tree's lines, from their indentation."""
    parents: list[str] = []
    for line in TREE.strip().splitlines():
        name = line.split()[0]
        parents[(len(line) - len(line.lstrip())) // 2 :] = [name.rstrip("/")]
        yield "/".join(parents)


def test_it_is_read_in_one_sitting() -> None:
    assert len(TEXT.splitlines()) <= MAX_LINES


def test_every_path_is_there() -> None:
    paths = set(re.findall(r"`((?:studio|pipelines|presets|tests)/[\w/.]+)`", TEXT)) | set(list_tree())
    assert len(paths) > 60
    assert not [path for path in paths if not (ROOT / path).exists()]


def test_the_walk_names_what_a_prompt_meets() -> None:
    walk = TEXT[TEXT.index("## One prompt's walk") : TEXT.index("## Adding things")]
    assert len(re.findall(r"`[\w/.]+\.(?:py|js)`", walk)) > 15


def test_every_package_is_in_the_tree() -> None:
    packages = {
        folder.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for folder in (ROOT / package).iterdir()
        if (folder / "__init__.py").exists()
    }
    assert len(packages) > 10
    assert packages - set(list_tree()) == set()


def test_folders_that_a_line_tells_of_are_there() -> None:
    for path, line in zip(list_tree(), TREE.strip().splitlines(), strict=True):
        named = re.findall(r"(\w+)/(?:[ ,;:(]|$)", line.split(maxsplit=1)[1])
        assert not [name for name in named if not (ROOT / path / name).is_dir()], line


def test_every_tier_is_told_of() -> None:
    assert re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE) == list(TIERS)
