"""The type of an example request, and its curl command."""

import json
from dataclasses import dataclass, field
from typing import Any

SERVER = "localhost:7860"


@dataclass(frozen=True, kw_only=True)
class Example:
    """One call of a route, identified by `method` and its `path` template.

    `url` is the template filled in. The request carries `body` as JSON, `form` as a form, or the file `sends` (as the
    form field `sends_as`, beside those of `form`; or with `is_whole` as the body). The answer is the route's own model
    (answers/), a file to save as `saves`, or the `lines` of a stream.
    """

    method: str
    path: str
    url: str
    summary: str
    body: dict[str, Any] | None = None
    form: dict[str, str] = field(default_factory=dict[str, str])
    sends: str | None = None
    sends_as: str = "file"
    is_whole: bool = False
    saves: str | None = None
    lines: str | None = None

    @property
    def curl(self) -> str:
        """Returns the curl command, as people type it."""
        has_data = self.body is not None or bool(self.form) or self.sends is not None
        parts = ["curl -sN" if self.lines else "curl -s"]
        if self.method != ("POST" if has_data else "GET"):
            parts.append(f"-X {self.method}")
        parts.append(f"'{SERVER}{self.url}'" if set(self.url) & set("?&") else f"{SERVER}{self.url}")
        if self.body is not None:
            parts.append(f"-H 'content-type: application/json' -d '{json.dumps(self.body)}'")
        flag = "-d" if self.sends is None else "-F"
        parts += [f"{flag} {name}={_quote(value)}" for name, value in self.form.items()]
        if self.sends is not None:
            parts.append(f"--data-binary @{self.sends}" if self.is_whole else f"-F {self.sends_as}=@{self.sends}")
        if self.saves is not None:
            parts.append(f"-o {self.saves}")
        return " ".join(parts)


def _quote(value: str) -> str:
    return f"'{value}'" if " " in value else value


def get(path: str, summary: str, *, url: str | None = None, **rest: Any) -> Example:
    """Makes a GET example; `url` may be left out when the path has no parameters."""
    return Example(method="GET", path=path, url=url or path, summary=summary, **rest)


def post(path: str, summary: str, *, url: str | None = None, **rest: Any) -> Example:
    """Makes a POST example, in the same way."""
    return Example(method="POST", path=path, url=url or path, summary=summary, **rest)
