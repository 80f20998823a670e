"""A real browser for the pages' tests, and what no page of it may do."""

import shutil

import pytest
from waiting import PATIENCE

COVERED = """() => [...document.querySelectorAll("main :is(td, th, p, h1, h2, h3, h4, pre, summary, label)")]
    .filter((one) => one.checkVisibility() && !one.closest(".scroll") && !one.classList.contains("hidden"))
    .filter((one) => one.getBoundingClientRect().right > innerWidth + 1 || one.getBoundingClientRect().left < -1)
    .map((one) => one.tagName + " " + one.textContent.slice(0, 40))"""
NAMELESS = """() => [...document.querySelectorAll("svg, input, select, button, a, [role=region], nav")]
    .filter((one) => one.type !== "hidden" && !one.classList.contains("anchor"))
    .filter((one) => !(one.getAttribute("aria-label") || one.textContent.trim() || one.labels?.length))
    .map((one) => one.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")  # longer, its driver would wait for processes that other tests fork
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if path is None:
        pytest.skip("no chromium, chromium-browser or google-chrome on the PATH")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser):
    """Opens an address: what its page says, and asks of others than its server or file, must
    stay nothing.
    """
    contexts, noise = [], []

    def open_page(url, **more):
        contexts.append(browser.new_context(**more))
        page = contexts[-1].new_page()
        own = url if url.startswith("file:") else "/".join(url.split("/")[:3])
        page.set_default_timeout(1000 * PATIENCE)
        page.on("console", lambda message: noise.append(message.text))
        page.on("pageerror", lambda error: noise.append(str(error)))
        page.on("dialog", lambda dialog: (noise.append(dialog.message), dialog.dismiss()))
        ours = (own, "data:image/", "data:,", "data:text/csv")
        page.on("request", lambda asked: asked.url.startswith(ours) or noise.append(asked.url))
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert noise == []
