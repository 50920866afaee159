"""The manual under Help: every page opens, its links lead somewhere, and nothing else of the disk is reached."""

import re
from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from studio.ui import help_panel, manual
from studio.ui.catalogues import say

STATIC = "/ui/1"


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    app = FastAPI()
    app.include_router(manual.make_router(STATIC))
    with TestClient(app, follow_redirects=False) as client:
        yield client


def find_addresses(page: str) -> list[str]:
    return re.findall(r'(?:href|src)="([^"]+)"', page)


def test_the_pages_are_the_files_of_both_folders() -> None:
    folders = (manual.ROOT / "studio" / "docs", manual.ROOT / "pipelines" / "docs")
    files = {file.relative_to(manual.ROOT).as_posix() for folder in folders for file in folder.iterdir()}
    assert set(manual.PAGES.values()) == files
    assert len(files) > 10


@pytest.mark.parametrize("name", manual.PAGES)
def test_a_page_opens_with_its_heading_which_the_help_calls_it_by(client: TestClient, name: str) -> None:
    answer = client.get(f"/help/{name}")
    assert answer.status_code == 200
    heading = say(manual.title_id(name))
    assert f'id="{manual.slug(heading)}">{heading}</h1>' in answer.text
    assert f"<title>{heading} · Lumesh</title>" in answer.text
    assert answer.text.count("<h1") == 1
    assert f'href="help/{name}" hreflang="en"' in help_panel.HTML
    assert f'<a href="{name}" aria-current="page">{heading}</a>' in answer.text


@pytest.mark.parametrize("name", ["", *manual.PAGES])
def test_a_page_has_nothing_inline_and_its_policy_says_so(client: TestClient, name: str) -> None:
    answer = client.get(f"/help/{name}")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"<style|<script(?! src=)|\son\w+=|\sstyle=|javascript:", answer.text)


@pytest.mark.parametrize("name", ["", *manual.PAGES])
def test_every_link_and_picture_of_a_page_leads_somewhere(client: TestClient, name: str) -> None:
    page = client.get(f"/help/{name}")
    for address in find_addresses(page.text):
        path, _, anchor = address.partition("#")
        if re.match("https?:", address) or path == "../" or path.startswith(f"../{STATIC.strip('/')}/"):
            continue
        answer = client.get(str(page.url.join(path)) if path else str(page.url))
        assert answer.status_code == 200, address
        assert not anchor or f'id="{anchor}"' in answer.text, address


def test_a_page_names_the_studios_own_style_sheets(client: TestClient) -> None:
    sheets = re.findall(rf'href="\.\.{STATIC}/([^"]+)"', client.get("/help/settings").text)
    assert {"css/tokens.css", "css/manual.css"} <= set(sheets)
    assert all((manual.ROOT / "studio" / "ui" / "static" / sheet).is_file() for sheet in sheets)


def test_a_link_to_a_file_that_is_no_page_becomes_text() -> None:
    body = manual.render("planning").body
    assert "MATRIX.md" not in re.sub(r"<pre.*?</pre>", "", body, flags=re.DOTALL)
    assert "every model on every topology" in body


@pytest.mark.parametrize(
    "path",
    [
        *("nothing", "settings.md", "settings/", "README", "..%2fREADME.md", "%2e%2e/README.md", "../requirements.txt"),
        *("studio/docs/settings", "..%2f..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd", "settings%00", "..%5cREADME.md"),
        *("pictures/", "pictures/..%2fstudio.webp", "pictures/studio.webp", "pictures/%2fetc%2fpasswd"),
    ],
)
def test_a_path_outside_the_manual_is_not_there(client: TestClient, path: str) -> None:
    assert client.get(f"/help/{path}").status_code == 404


def test_the_address_without_a_slash_leads_to_the_list(client: TestClient) -> None:
    assert client.get("/help").headers["location"] == "help/"
    index = client.get("/help/").text
    assert all(f'<li><a href="{name}">' in index for name in manual.PAGES)


def test_what_is_around_a_page_is_in_the_visitors_language(client: TestClient) -> None:
    page = client.get("/help/settings", headers={"Accept-Language": "zh-CN"}).text
    assert '<html lang="zh-CN">' in page
    assert say("manual.back", "zh") in page
    assert '<article lang="en">' in page
    assert "英文" in say("manual.title", "zh")  # as Help calls it too: nobody expects another language


def test_markup_in_a_text_stays_text() -> None:
    parsed = manual._PARSER.render("<script>alert(1)</script> and `<b>`\n\n```html\n<i>\n```\n[x](javascript:alert(1))")
    assert "<script" not in parsed
    assert "&lt;b&gt;" in parsed
    assert "&lt;i&gt;" in parsed
    assert "href" not in parsed


def test_what_is_wider_than_a_phone_scrolls_by_keyboard_and_sentences_stack() -> None:
    body = manual.render("measured").body
    assert body.count("<table>") == body.count('<div class="wide" tabindex="0">') + body.count('class="wide stacks"')
    assert '<div class="wide stacks" tabindex="0">' in manual.render("settings").body
    assert "<pre><" not in manual.render("rest").body
