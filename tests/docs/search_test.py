"""The site's search and its two themes in a browser, on the pages as files.

Runs in the folder that docs.site left its site in. $BROWSER and $DRIVER are Chromium's.
"""

import os
import pathlib

from selenium import webdriver
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

SITE = pathlib.Path("out/site").resolve()


def open_browser():
    options = Options()
    options.binary_location = os.environ["BROWSER"]
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--window-size=1300,1000", "--host-resolver-rules=MAP * ~NOTFOUND"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(service=Service(os.environ["DRIVER"]), options=options)


def found(browser, query):
    """What a query finds on a fresh page: the titles, the best first."""
    browser.get((SITE / "fusion.html").as_uri())
    ActionChains(browser).send_keys("/", query).perform()
    items = WebDriverWait(browser, 20).until(
        lambda b: b.find_elements(By.CSS_SELECTOR, "#found:not([hidden]) li"))
    return [item.text.split("\n")[0] for item in items]


def check_search(browser):
    assert found(browser, "engine_of")[0] == "gradus/engine.h › engine_of, replace_engine"
    assert "Stages and derivatives › A memory budget" in found(browser, "memory budg")[:3]
    assert "Commands › gradus gradcheck" in found(browser, "gradch")
    assert found(browser, "radcheck") == ["Nothing found"]  # no word begins so
    found(browser, "gradus.vmap")
    ActionChains(browser).send_keys(Keys.ARROW_DOWN, Keys.ENTER).perform()
    assert browser.current_url.endswith("python-reference.html#gradusvmap"), browser.current_url


def theme(browser):
    return browser.execute_script("return document.documentElement.dataset.theme")


def background(browser):
    return browser.execute_script("return getComputedStyle(document.body).backgroundColor")


def check_themes(browser):
    for scheme in ("dark", "light"):  # follows the system
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": scheme}]})
        browser.get((SITE / "index.html").as_uri())
        assert theme(browser) == scheme
    light = background(browser)
    browser.find_element(By.CSS_SELECTOR, "nav button").click()
    assert theme(browser) == "dark" and background(browser) != light
    browser.get((SITE / "benchmarks.html").as_uri())  # which another page remembers
    assert theme(browser) == "dark" and background(browser) != light


def main():
    browser = open_browser()
    try:
        check_search(browser)
        check_themes(browser)
        errors = [e for e in browser.get_log("browser") if e["level"] == "SEVERE"]
        assert not errors, errors
    finally:
        browser.quit()


if __name__ == "__main__":
    main()
