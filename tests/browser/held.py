"""Answers that come late: what the page heard meanwhile has overtaken them."""

import re
from dataclasses import dataclass
from typing import Any


@dataclass
class Held:
    """The first request to a path, with an answer that waits."""

    route: Any = None
    answer: Any = None

    def wait(self, page: Any) -> Any:
        """Returns what the server answered."""
        while self.answer is None:
            page.wait_for_timeout(50)
        return self.answer.json()

    def release(self, page: Any) -> None:
        """Hands the answer to the page, and gives it time to take it."""
        self.route.fulfill(response=self.answer)
        page.wait_for_timeout(500)


def hold_first(page: Any, pattern: str) -> Held:
    """Holds the answer to the first request that matches; later ones pass."""
    held = Held()

    def hold(route: Any) -> None:
        if held.route is not None:
            route.continue_()
        else:
            held.route = route
            held.answer = route.fetch()

    page.route(re.compile(pattern), hold)
    return held
