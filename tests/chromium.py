"""A real browser for the pages' tests."""

import shutil

import pytest


@pytest.fixture(scope="module")  # longer, its driver would wait for processes that other tests fork
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("no chromium, chromium-browser or google-chrome on the PATH")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()
