"""The page in another language: every word of it, without a moment of English, remembered, and fitting on a phone.

What no catalogue holds is found by a language of which every message stands in brackets: whatever is in sight without
them was written in code, or is somebody's data.
"""

import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

from pipelines.messages import add_codes, english, join, say, say_count
from pipelines.models.catalog import load_catalog
from studio.ui import catalogues
from studio.ui.catalogues import ENGLISH, LANGUAGES, Language, Message
from tests.browser.test_recipes import write_png
from tests.browser.visitors import OPEN_FOLD

pytestmark = pytest.mark.browser
PHONE = {"width": 390, "height": 844}
SAILBOAT = "A red sailboat on the ocean at sunset"
CHOICE = "A {red|blue} sailboat"
FAILING = "fail please"
VIEWS = ("gallery", "presets", "system", "create")

# Somebody's data and names, as they are in every language.
DATA = (
    "#lu-model-note, #lu-knows p, #lu-examples, #lu-cards, #lu-style, .lu-queue-prompt, .lu-notice-prompt, "
    ".lu-detail-prompt, .lu-preset h3, .lu-preset-text, .lu-presets-tags, #lu-sweep-examples, #lu-sys-log, "
    "#lu-sys-versions, .lu-worker strong, #lu-sys-log-file, #lu-help-folder, .lu-help-files dt, .lu-making dd, "
    "#lu-plan-topology, .lu-brand, kbd, code, a[href='api/docs'], option[lang], [readonly], textarea, #lu-scheduler, "
    ".lu-shot"
)
NAMES = re.compile(
    r"Lumesh|Euler( ancestral)?|DPM\+\+ 2M|DDIM|UniPC|Flow match Euler|GIF|WebP|flow_match_euler|"
    r"[\d.,]+ (bytes?|kB|MB|GB|TB|ms)\b|\d+ (min|hr)\. ago|\w+ \d+, \d{4}, [\d:]+\s[AP]M|"
    r"  (Esc|Del|[A-Z])$|#\d+|https?://\S+|^/\S+$"
)

# [where, text] of everything in sight, or told to those who do not see it.
READ = """(data) => {
  const found = [];
  const isSeen = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const isData = (element) => element.closest(data) !== null;
  for (const element of document.querySelectorAll("#studio *")) {
    if (!isSeen(element) || isData(element)) continue;
    for (const node of element.childNodes)
      if (node.nodeType === Node.TEXT_NODE && node.data.trim()) found.push([element.outerHTML.slice(0, 90), node.data]);
    for (const name of ["title", "aria-label", "placeholder", "alt"]) {
      const text = element.getAttribute(name);
      if (text) found.push([`${name} of ${element.outerHTML.slice(0, 90)}`, text]);
    }
  }
  return [...found, ["title", document.title]];
}"""

# Which words stood on the button, frame by frame, since before the page was there.
WATCH = """
window.seen = [];
window.watches = true;
const look = () => {
  const button = document.getElementById("lu-generate");
  if (button?.checkVisibility({ visibilityProperty: true })) window.seen.push(button.innerText);
  if (window.watches) requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""

# What the page makes of the server's messages.
SAY = """async (record) => {
  const { said, saidFields } = await import(document.querySelector('script[type="module"][src*="page.js"]').src
    .replace("page.js", "core/translate_server.js"));
  return { reason: said(record, "reason"), own: said(record, "own"), fields: saidFields(record) };
}"""

SIZES = "832x480x81, 1024x1024"
TABS = {
    "devices": "#lu-sys-versions dd",
    "models": "#lu-sys-models li",
    "storage": "#lu-sys-disk tr",
    "loras": "#lu-words-note",
    "plan": "#lu-plan-topology",
    "log": "#lu-sys-log",
}
OpenPage = Callable[..., Any]
Keep = Callable[[Any, str], None]


@pytest.fixture(autouse=True)
def _idle(studio: Any) -> Iterator[None]:
    """No test leaves a job, or a paused queue, behind for the next one."""
    yield
    _post(studio, "jobs/cancel", {"scope": "all"})
    _post(studio, "queue/resume", {})


def _post(studio: Any, path: str, body: dict[str, Any]) -> None:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{studio.url}/api/v1/{path}", json.dumps(body).encode(), headers)
    urllib.request.urlopen(request).close()


def _read(studio: Any, path: str) -> Any:
    with urllib.request.urlopen(f"{studio.url}/api/v1/{path}") as answer:
        return json.load(answer)


def _mark(message: Message) -> Message:
    return f"⟦{message}⟧" if isinstance(message, str) else {form: f"⟦{text}⟧" for form, text in message.items()}


def _pack_marked() -> bytes:
    """English in brackets, also what the server says and what is shipped."""
    messages = {key: _mark(message) for key, message in LANGUAGES[ENGLISH].messages.items()}
    server: dict[str, Message] = {english: f"⟦{english}⟧" for english in LANGUAGES["zh"].server}
    shipped = {english: f"⟦{english}⟧" for english in LANGUAGES["zh"].shipped}
    return catalogues.pack("zh", Language(tag="en", name="Brackets", messages=messages, server=server, shipped=shipped))


@pytest.fixture(scope="module")
def visitor(browser: Any) -> Any:
    """A Chinese browser; all its pages find the scripts compiled."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, locale="zh-CN", reduced_motion="reduce")
    context.set_default_timeout(15_000)
    context.add_init_script(OPEN_FOLD)
    return context


def _enter(page: Any, studio: Any) -> Any:
    page.goto(studio.url)
    page.wait_for_selector("#lu-sizes [role=radio]")
    page.wait_for_selector(".lu-engine[data-state=idle]")
    return page


@pytest.fixture
def marked(studio: Any, visitor: Any) -> Iterator[Any]:
    page = visitor.new_page()
    page.add_init_script("Object.defineProperty(navigator, 'languages', { get: () => ['zh-CN', 'en-US'] })")
    page.route("**/text/zh.json", lambda route: route.fulfill(body=_pack_marked(), content_type="application/json"))
    yield _enter(page, studio)
    page.close()


@pytest.fixture(scope="module")
def chinese_page(studio: Any, visitor: Any) -> Any:
    page = visitor.new_page()
    page.add_init_script(WATCH)
    _enter(page, studio)
    page.evaluate("window.watches = false")
    return page


@pytest.fixture
def chinese(chinese_page: Any) -> Any:
    """A page in Chinese that shows its first view; what else is on it, an earlier test may have put there."""
    _show(chinese_page, "create")
    return chinese_page


def _list_data(studio: Any) -> list[str]:
    """Names and texts that are in no catalogue: of models, presets and prompts."""
    presets = _read(studio, "presets")["presets"]
    models = [text for model in load_catalog().models for text in (model.id, model.title)]
    texts = [text for one in presets for text in (one["title"], one["author"], one["recipe"]["prompt"]) if text]
    return sorted({SAILBOAT, CHOICE, FAILING, *models, *texts}, key=len, reverse=True)


def _find_unmarked(page: Any, data: list[str]) -> list[str]:
    wrong = []
    for where, text in page.evaluate(READ, DATA):
        rest = text
        while (shorter := re.sub(r"⟦[^⟦⟧]*⟧", "", rest)) != rest:
            rest = shorter
        rest = NAMES.sub("", rest)
        for known in data:
            rest = rest.replace(known, "")
        if re.search(r"[^\W\d_]{2}", rest):
            wrong.append(f"{text!r} in {where}")
    return wrong


def _show(page: Any, view: str) -> None:
    page.click(f".lu-views a[data-view={view}]")


def _make(page: Any, prompt: str) -> None:
    page.fill("#lu-prompt", prompt)
    page.click("#lu-generate")


def test_every_word_of_the_page_comes_from_the_catalogue(marked: Any, studio: Any) -> None:
    page, wrong = marked, {}
    data = _list_data(studio)

    def look(what: str) -> None:
        if found := _find_unmarked(page, data):
            wrong[what] = found

    look("nothing made yet")
    page.click("#lu-negative-toggle")
    page.fill("#lu-prompt", CHOICE)
    page.fill("#lu-seeds", "2")
    expect(page.locator("#lu-sweep-count")).to_be_visible()
    look("choices")
    page.fill("#lu-seeds", "1")
    _make(page, "")
    look("no prompt")
    _make(page, SAILBOAT)
    expect(page.locator("#lu-cancel")).to_be_visible()
    look("running")
    expect(page.locator(".lu-result")).to_be_visible()
    look("done")
    _make(page, FAILING)
    expect(page.locator("#lu-notice")).to_be_visible()
    look("failed")
    page.click("#lu-queue-pause")
    _make(page, SAILBOAT)
    expect(page.locator(".lu-queue-item[data-state=queued]")).to_be_visible()
    look("paused")
    page.click("#lu-queue-more")
    look("menu of the queue")
    page.keyboard.press("Escape")
    page.click(".lu-queue-item[data-state=queued] [aria-haspopup=menu]")
    look("menu of a job")
    page.keyboard.press("Escape")
    page.click("#lu-xyz-open")
    page.fill("#lu-xyz-x-values", "2, 4")
    page.fill("#lu-xyz-y-values", "2-8 (+2)")
    expect(page.locator("#lu-xyz-queue")).to_have_attribute("aria-disabled", "false")
    look("grid")
    page.keyboard.press("Escape")
    _show(page, "gallery")
    page.locator(".lu-shot-choose").first.click()
    look("gallery")
    page.keyboard.press("Escape")
    page.locator(".lu-shot-open").first.click()
    expect(page.locator("#lu-detail-body")).to_be_visible()
    look("one output")
    page.keyboard.press("Escape")
    page.click("#lu-gallery-trash")
    look("trash")
    page.click("#lu-gallery-trash")
    _show(page, "presets")
    expect(page.locator(".lu-preset").first).to_be_visible()
    look("presets")
    page.locator(".lu-preset .lu-icon-button").nth(1).click()
    expect(page.locator("#lu-share")).to_be_visible()
    look("share")
    page.keyboard.press("Escape")
    page.click("#lu-presets-hub")
    look("hub")
    page.keyboard.press("Escape")
    _show(page, "system")
    for tab, filled in TABS.items():
        page.click(f"#lu-sys-tab-{tab}")
        expect(page.locator(filled).first).to_be_visible()
        look(f"system, {tab}")
    page.click("#lu-keys-button")
    look("help")
    assert not wrong, json.dumps(wrong, indent=1, ensure_ascii=False)


def test_somebody_chooses_chinese_and_goes_back(open_page: OpenPage, keep: Keep) -> None:
    page = open_page()
    generate, picker = page.locator("#lu-generate"), page.locator("#lu-language")
    expect(page.locator("html")).to_have_attribute("lang", "en")
    expect(generate).to_contain_text("Generate")
    page.fill("#lu-prompt", SAILBOAT)
    picker.select_option("zh")
    expect(generate).to_contain_text("生成")
    page.reload()
    expect(generate).to_contain_text("生成")
    expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
    expect(picker).to_have_value("zh")
    expect(page.locator("#lu-prompt")).to_have_value(SAILBOAT)
    expect(page.locator(".lu-views")).to_contain_text("图库")
    keep(page, "chinese-dark")
    picker.select_option("en")
    expect(generate).to_contain_text("Generate")
    expect(page.locator("html")).to_have_attribute("lang", "en")


def test_a_chinese_browser_never_shows_english_first(chinese: Any) -> None:
    expect(chinese.locator("#lu-generate")).to_contain_text("生成")
    seen = chinese.evaluate("window.seen")
    assert seen and not any("Generate" in words for words in seen)


def test_what_the_server_says_is_told_in_chinese(chinese: Any) -> None:
    _make(chinese, FAILING)
    expect(chinese.locator("#lu-notice h2")).to_have_text("已按要求失败")
    expect(chinese.locator(".lu-notice-advice")).to_contain_text("请换一条提示词")
    chinese.fill("#lu-steps-value", "999")
    _make(chinese, SAILBOAT)
    expect(chinese.locator("[data-message=steps]")).to_contain_text("999 超出范围")


def test_what_a_file_leaves_out_is_told_in_chinese(chinese: Any, keep: Keep) -> None:
    text = "a red boat\nSteps: 31, Sampler: Euler a, Seed: 77, Size: 640x384, Model: mix, Clip skip: 2"
    file = {"name": "boat.png", "mimeType": "image/png", "buffer": write_png(parameters=text)}
    chinese.set_input_files("#lu-recipe-file", [file])
    panel = chinese.locator("#lu-recipe")
    expect(panel).to_contain_text("模型 mix 此处没有这个模型，继续使用 明信片（演示，SDXL 结构）")
    expect(panel).to_contain_text("文本编码器按模型训练时的方式运行")
    expect(panel).to_contain_text("A1111 生成噪声的方式不同：相同的种子在这里会得到不同的图片。")
    keep(chinese, "chinese-recipe")


def test_a_refused_preset_is_told_in_chinese(chinese: Any) -> None:
    _show(chinese, "presets")
    for content, told in (
        (b'{"title": "x", "code": 1, "recipe": {"model": "a", "prompt": "b"}}', "“bad.json”：code：不是已知的字段"),
        (b"[]", "请选择由 Lumesh 导出的文件。"),
    ):
        file = {"name": "bad.json", "mimeType": "application/json", "buffer": content}
        chinese.set_input_files("#lu-presets-file", [file])
        expect(chinese.locator("#lu-presets-message")).to_contain_text(told)


def test_shipped_presets_are_called_and_found_in_both_languages(chinese: Any, keep: Keep) -> None:
    _show(chinese, "presets")
    cards, search = chinese.locator(".lu-preset"), chinese.locator("#lu-presets-search")
    expect(cards.first).to_be_visible()
    everything = cards.count()
    for words in ("红帆船", "red sailboat sunset"):
        search.fill(words)
        expect(cards).to_have_count(1)
        expect(cards.locator("h3")).to_have_text("日落时的红帆船")
    keep(chinese, "chinese-presets")
    search.fill("")
    expect(cards).to_have_count(everything)
    cards.filter(has_text="日落时的红帆船").get_by_role("button", name="编辑").click()
    expect(chinese.locator("#lu-origin-title")).to_have_text("日落时的红帆船")
    expect(chinese.locator("#lu-prompt")).to_have_value(re.compile("sailboat"))  # the recipe stays as it is


def test_the_page_says_a_sentence_by_its_code(chinese: Any) -> None:
    waits = say_count("{count} job before it", "{count} jobs before it", count=1200)
    record = add_codes(
        {
            "reason": join((waits, say("loading {model}", model="wan")), ";"),
            "own": english("words of ffmpeg"),
            "fields": {"steps": say("is required"), "seed": english("odd")},
        }
    )
    told = chinese.evaluate(SAY, record)
    assert told["reason"] == "前面有 1,200 个任务；正在加载 wan"
    assert told["own"] == "words of ffmpeg"
    assert told["fields"] == {"steps": "为必填项", "seed": "odd"}


def test_the_page_says_sizes_as_its_own_texts_do(open_page: OpenPage) -> None:
    sizes = say("{shape} is not a shape of {model}; allowed: {shapes}", shape="9x9", model="wan", shapes=SIZES)
    typed = say("Fewer pixels fit by estimate: --shape {shape}.", shape="832x480x33")
    told = open_page().evaluate(SAY, add_codes({"reason": sizes, "own": typed, "fields": {}}))
    assert told["reason"] == "9 × 9 is not a shape of wan; allowed: 832 × 480, 81 frames; 1024 × 1024"
    assert told["own"] == "Fewer pixels fit by estimate: --shape 832x480x33."


def test_chinese_fits_on_a_phone(open_page: OpenPage, keep: Keep) -> None:
    page = open_page(viewport=PHONE, color_scheme="light")
    page.click("#lu-more")
    page.get_by_role("menuitemcheckbox", name="中文").click()
    expect(page.locator("#lu-generate")).to_contain_text("生成")
    for view in VIEWS:
        _show(page, view)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
        too_long = page.evaluate(
            "[...document.querySelectorAll('.lu-button, .lu-generate')].filter((one) => one.checkVisibility()"
            " && one.scrollWidth > one.clientWidth + 1).map((one) => one.outerHTML)"
        )
        assert not too_long, view
        keep(page, f"chinese-phone-{view}")
