# SPDX-License-Identifier: Apache-2.0
"""The HTML report in a browser: it draws itself without an error, and a click on a failing cell shows its failure.

Needs Chromium with its driver and Selenium (chromium, chromium-driver, python3-selenium); exit code 77 where they are
missing. With --screenshots FOLDER it leaves pictures of 1400 and 390 pixels there.
"""
import pathlib
import shutil
import sys
import tempfile

from command import MODULES, expect, finish, run

try:
    from selenium import webdriver
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.chrome.service import Service
except ImportError:
    print("no Selenium")
    sys.exit(77)
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if not CHROMIUM or not DRIVER:
    print("no Chromium")
    sys.exit(77)


def browser(width, height, dark=False):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    # A window cannot be narrower than 500 pixels; a device can.
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                           {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                           {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})
    return driver


def make_report(folder):
    files = {name: folder / f"{name}.json" for name in ("wrong", "right", "times", "cost")}
    run("check", f"{MODULES}/broken.so#top_left", "--suite", "smoke", "--json", files["wrong"], check=1)
    run("check", "naive", "--suite", "smoke", "--json", files["right"], check=0)
    run("bench", "naive", "chunked", "--len", "64,128,256", "--samples", "5", "--sample-time", "0.002s", "--json",
        files["times"], check=0)
    run("cost", "--model", "llama-3-8b", "--compare", "mha,mqa", "--impl", "materialised,flash", "--machine", "h100",
        "--json", files["cost"], check=0)
    page = folder / "report.html"
    run("report", *files.values(), "--html", page, "--markdown", folder / "report.md", check=0)
    run("report", files["wrong"], "--badge", folder / "badge.svg", check=0)
    return page


def look(driver, page):
    driver.get(page.as_uri())
    errors = driver.get_log("browser")
    expect(errors == [], f"console: {errors}")
    charts = driver.find_elements(By.CSS_SELECTOR, "svg.chart")
    expect(len(charts) >= 4, f"{len(charts)} charts")
    for chart in driver.find_elements(By.CSS_SELECTOR, "svg.chart:not(.wide)"):
        marks = chart.find_elements(By.CSS_SELECTOR, "text[text-anchor=end]")
        expect(2 <= len(marks) <= 9, f"{len(marks)} numbers beside {chart.get_attribute('aria-label')}")
    cells = driver.find_elements(By.CSS_SELECTOR, "#record-0 .matrix button")
    expect(len(cells) > 5, f"{len(cells)} cells in the matrix")
    width = driver.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    expect(width[0] <= width[1], f"the page is {width[0]} wide in a window of {width[1]}")


def click(driver):
    failing = driver.find_elements(By.CSS_SELECTOR, "#record-0 .matrix button.bad")
    expect(failing, "no failing cell")
    failing[0].click()
    panel = driver.find_element(By.ID, "record-0-panel")
    expect("cases fail" in panel.text and "attest replay" in panel.text, panel.text[:300])
    expect(failing[0].get_attribute("aria-pressed") == "true", "the cell is not marked")
    # By keyboard: down to the next cell, and Enter.
    before = panel.text
    failing[0].send_keys(Keys.ARROW_DOWN)
    driver.switch_to.active_element.send_keys(Keys.ENTER)
    expect(panel.text != before, "the arrow keys do not move")
    good = driver.find_elements(By.CSS_SELECTOR, "#record-1 .matrix button.good")
    good[0].click()
    expect("Nothing fails here" in driver.find_element(By.ID, "record-1-panel").text, "a good cell")


def screenshots(page, folder):
    """The top of the page wide and narrow, the narrow one in the dark; and the charts of speed."""
    for width, height, dark, place, name in [(1400, 1500, False, None, "report-1400.png"),
                                             (390, 1500, True, None, "report-390.png"),
                                             (1400, 1000, False, "speed-0", "report-speed-1400.png")]:
        driver = browser(width, height, dark)
        driver.get(page.as_uri())
        if place:
            driver.execute_script("document.getElementById(arguments[0]).scrollIntoView()", place)
        driver.save_screenshot(str(folder / name))
        driver.quit()


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        page = make_report(folder)
        expect(page.stat().st_size < 2 << 20, f"{page.stat().st_size} bytes")
        for width, dark in [(1400, False), (390, True)]:
            driver = browser(width, 1000, dark)
            look(driver, page)
            if width == 1400:
                click(driver)
            driver.quit()
        if sys.argv[1:2] == ["--screenshots"]:
            screenshots(page, pathlib.Path(sys.argv[2]))
    finish()


main()
