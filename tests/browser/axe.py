"""What keeps people from using a page, as far as axe-core sees.

Its script goes into each document once, and only what is wrong comes back: of a whole page, all else is megabytes.
"""

from typing import Any

import pytest

axe_base = pytest.importorskip("axe_playwright_python.base", reason="needs axe-playwright-python")

RUN = """async ([within, options]) =>
  (await axe.run(within ?? document, { ...options, resultTypes: ["violations"] })).violations"""


def run_axe(page: Any, within: str | None = None, options: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Returns each rule that the page, or an element of it, breaks, with the elements that break it."""
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(axe_base.AXE_SCRIPT)
    return page.evaluate(RUN, [within, options or {}])
