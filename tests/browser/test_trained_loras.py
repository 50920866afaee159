"""A training that is deleted leaves its LoRA, unless whoever trained it wants that gone too."""

from collections.abc import Callable
from typing import Any

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="browser tests need `pip install playwright`")
expect = playwright_api.expect

from tests.browser.test_training_cards import DONE_MS, ask, card_of, open_train, read

OpenPage = Callable[..., Any]


def test_deleting_a_training_asks_for_its_lora_apart(open_page: OpenPage) -> None:
    page = open_page()
    open_train(page)
    trained = {name: ask(page, name, steps=8) for name in ("kept", "gone")}
    for job_id in trained.values():
        expect(card_of(page, job_id)).to_have_attribute("data-state", "done", timeout=DONE_MS)
    page.locator("#lu-train-earlier summary").click()
    asked: list[str] = []

    def answer(dialog: Any) -> None:
        asked.append(dialog.message)
        dialog.dismiss() if "the LoRA kept" in dialog.message else dialog.accept()

    page.on("dialog", answer)
    for name, job_id in trained.items():
        card_of(page, job_id).get_by_role("button", name=f"Delete: {name}").click()
        expect(card_of(page, job_id)).to_have_count(0)
    expect(page.locator("#lu-toasts")).to_contain_text("Deleted the LoRA gone")
    assert "Delete the LoRA kept too, for everybody?" in asked[1]
    assert read(page, "trainings")["trainings"] == []
    assert [lora["ref"] for lora in read(page, "loras")["loras"]] == ["kept"]
