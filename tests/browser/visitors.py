"""Visitors of a studio: contexts of the browser that are emptied between tests instead of made anew.

A page of a new context takes 0.8 s of processor time, 0.55 s in one that has been used, because files and compiled
scripts are still at hand (2026-11-27, 2 cores, Chromium 156). A visitor who was here before is a new one all the same:
cookies, storage, service workers and permissions are gone, and so is every page but one that shows none of the
studio's scripts. It keeps the process alive that has compiled them.
Not here: tests of languages, logins and headers, which need contexts of their own.
"""

from dataclasses import dataclass
from typing import Any

DESK = {"width": 1440, "height": 900}
TIMEOUT_MS = 15_000  # of a machine that does other things too
# The settings under "More" are at hand, as for somebody who opened them once.
OPEN_FOLD = """try {
  localStorage.getItem("lumesh.more") ?? localStorage.setItem("lumesh.more", "open");
} catch { /* a document without an address */ }"""

Kind = tuple[int, int, str, str]


@dataclass(frozen=True, kw_only=True)
class Visitor:
    """A context, its page that stays, and who can empty both."""

    context: Any
    keeper: Any
    session: Any


class Visitors:
    """Gives each page that a test opens to another visitor of one studio."""

    def __init__(self, browser: Any, url: str) -> None:
        self._browser = browser
        self._url = url
        self._absent: dict[Kind, list[Visitor]] = {}
        self._present: list[tuple[Kind, Visitor]] = []

    def open_page(self, viewport: dict[str, int], color_scheme: str, reduced_motion: str) -> Any:
        """Returns an empty page of a visitor whose context was made like this."""
        kind = (viewport["width"], viewport["height"], color_scheme, reduced_motion)
        absent = self._absent.get(kind)
        visitor = absent.pop() if absent else self._invite(viewport, color_scheme, reduced_motion)
        self._present.append((kind, visitor))
        return visitor.context.new_page()

    def _invite(self, viewport: dict[str, int], color_scheme: str, reduced_motion: str) -> Visitor:
        context = self._browser.new_context(viewport=viewport, color_scheme=color_scheme, reduced_motion=reduced_motion)
        context.set_default_timeout(TIMEOUT_MS)
        context.add_init_script(OPEN_FOLD)
        keeper = context.new_page()
        keeper.goto(f"{self._url}/api/v1/health")
        return Visitor(context=context, keeper=keeper, session=context.new_cdp_session(keeper))

    def leave(self) -> None:
        """Closes the pages of all who are here and forgets what they left in their browsers."""
        while self._present:
            kind, visitor = self._present.pop()
            for page in visitor.context.pages:
                if page is not visitor.keeper:
                    page.unroute_all(behavior="ignoreErrors")  # an answer under way would fail the next test
                    page.close()
            visitor.keeper.evaluate("localStorage.clear()")
            visitor.session.send("Storage.clearDataForOrigin", {"origin": self._url, "storageTypes": "all"})
            visitor.context.clear_permissions()
            self._absent.setdefault(kind, []).append(visitor)
