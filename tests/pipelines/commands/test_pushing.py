"""Uploads: what would stop one is found before, and one that fails says how to try again."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from huggingface_hub.errors import HfHubHTTPError

from pipelines.commands.pushing import check_push, push
from pipelines.errors import LumeshError, RecipeError


@dataclass(kw_only=True)
class Hub:
    """A hub that knows one user; `error` is what it raises whenever it is asked."""

    role: str = "write"
    has_card: bool = False
    error: Exception | None = None
    sent: dict[str, Any] = field(default_factory=dict[str, Any])

    def whoami(self) -> dict[str, Any]:
        self._fail()
        return {"name": "me", "orgs": [{"name": "ours"}], "auth": {"accessToken": {"role": self.role}}}

    def create_repo(self, repo: str, *, exist_ok: bool) -> Any:
        assert exist_ok
        self._fail()
        return SimpleNamespace(repo_id=repo if "/" in repo else f"me/{repo}")

    def upload_file(self, *, repo_id: str, path_or_fileobj: Any, path_in_repo: str) -> None:
        self.sent[f"{repo_id}/{path_in_repo}"] = path_or_fileobj

    def upload_folder(self, *, repo_id: str, folder_path: Path, ignore_patterns: list[str]) -> None:
        assert "state*" in ignore_patterns
        self.sent[repo_id] = folder_path

    def file_exists(self, _repo: str, _name: str) -> bool:
        return self.has_card

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error


def _answer(status: int) -> HfHubHTTPError:
    return HfHubHTTPError("no", response=httpx.Response(status, request=httpx.Request("GET", "https://hf.co")))


@pytest.mark.parametrize(("repo", "whole"), [("corgi", "me/corgi"), ("me/corgi",) * 2, ("ours/corgi",) * 2])
def test_what_can_be_uploaded_is_not_refused(repo: str, whole: str) -> None:
    assert check_push(repo, Hub()) == whole


@pytest.mark.parametrize(
    ("repo", "hub", "said"),
    [
        ("corgi", Hub(error=httpx.ConnectError("no route")), "no route"),
        ("corgi", Hub(error=_answer(401)), "does not know the token"),
        ("corgi", Hub(error=_answer(503)), "cannot be asked"),
        ("corgi", Hub(role="read"), "may only read"),
        ("theirs/corgi", Hub(), "theirs is neither"),
        ("my corgi!", Hub(), "my corgi!"),
    ],
)
def test_what_would_stop_an_upload_is_found_before_anything_is_learnt(repo: str, hub: Hub, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        check_push(repo, hub)


def test_a_lora_is_uploaded_with_a_card_unless_there_is_one(tmp_path: Path) -> None:
    file = tmp_path / "corgi.safetensors"
    file.write_bytes(b"")
    hub = Hub()
    push([file], "corgi", "a card", hub)
    assert hub.sent == {"me/corgi/corgi.safetensors": file, "me/corgi/README.md": b"a card"}
    own = Hub(has_card=True)
    push([file], "corgi", "a card", own)
    assert [*own.sent] == ["me/corgi/corgi.safetensors"]
    whole = Hub()
    push([tmp_path], "corgi", "a card", whole)
    assert whole.sent == {"me/corgi": tmp_path}


@pytest.mark.parametrize("error", [httpx.ConnectError("no route"), _answer(403), OSError("gone"), RuntimeError("odd")])
def test_an_upload_that_fails_for_whatever_reason_says_how_to_try_again(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(LumeshError) as told:
        push([tmp_path / "corgi.safetensors"], "me/corgi", "", Hub(error=error))
    assert f"hf upload me/corgi {tmp_path / 'corgi.safetensors'}" in str(told.value)
