"""A Chromium driven by Selenium, and what it must not show: text that is cut off."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
NEEDS_BROWSER = pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="no Chromium with its driver here")
SIZES = {"desktop": (1100, 900), "phone": (390, 844)}
WIDTHS = (390, 1024, 1200, 1920)
PATIENCE = 90

# Each line of text is compared with the boxes that it is in, up to the first that scrolls, and with the window.
# In tables no short word may be torn between two lines.
CLIPPED = r"""
const found = [];
const UNSEEN = ".skip, .unseen, .visually-hidden, script, style, title, option";
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const shows = (node) => node.checkVisibility({ opacityProperty: true, visibilityProperty: true });
for (let text = walker.nextNode(); text; text = walker.nextNode()) {
  const parent = text.parentElement;
  if (!text.textContent.trim() || !shows(parent) || parent.closest(UNSEEN)) continue;
  const range = document.createRange();
  range.selectNodeContents(text);
  const lines = [...range.getClientRects()].filter((box) => box.width > 1);
  if (!lines.length) continue;
  const left = Math.min(...lines.map((box) => box.left));
  const right = Math.max(...lines.map((box) => box.right));
  let [from, to] = [-1, document.documentElement.clientWidth + 1];
  for (let box = parent; box && box !== document.body; box = box.parentElement) {
    const style = getComputedStyle(box);
    if (style.display === "inline" || box instanceof SVGElement && box.tagName !== "svg") continue;
    if (style.position === "fixed" || style.transform !== "none") { from = -Infinity; to = Infinity; break; }
    if (/auto|scroll/.test(style.overflowX)) { from = -Infinity; to = Infinity; break; }
    if (/hidden|clip/.test(style.overflowX)) {
      const edge = box.getBoundingClientRect();
      from = Math.max(from, edge.left - 1);
      to = Math.min(to, edge.right + 1);
    }
  }
  const places = [left, right, from, to].map((value) => value.toFixed(0)).join(" ");
  for (const word of parent.closest("th, td") ? text.textContent.matchAll(/(?<!\S)[^\s-]{2,12}(?!\S)/g) : []) {
    range.setStart(text, word.index);
    range.setEnd(text, word.index + word[0].length);
    if (new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1) found.push(`torn: ${word[0]}`);
  }
  if (left < from || right > to) found.push(`${text.textContent.trim().slice(0, 60)} (${places})`);
}
const wide = document.documentElement.scrollWidth;
if (wide > window.innerWidth) found.push(`the page scrolls sideways: ${wide}`);
return found;
"""

# The contrast of text with the ground behind it: 4.5, or 3 for large text (WCAG 2.2, 1.4.3).
FAINT = r"""
const found = new Set();
const parts = (colour) => { const [r, g, b, a] = colour.match(/[\d.]+/g).map(Number); return [r, g, b, a ?? 1]; };
const over = (top, ground) => [0, 1, 2].map((k) => top[k] * top[3] + ground[k] * (1 - top[3]));
const luminance = (colour) => [0.2126, 0.7152, 0.0722].reduce((sum, weight, k) => {
  const share = colour[k] / 255;
  return sum + weight * (share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4);
}, 0);
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let text = walker.nextNode(); text; text = walker.nextNode()) {
  const parent = text.parentElement;
  const shows = parent.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const unseen = parent.closest("script, style, option, .skip, .unseen, :disabled");
  if (!text.textContent.trim() || !shows || unseen) continue;
  const [style, grounds, opaque] = [getComputedStyle(parent), [], { value: 1 }];
  for (let box = parent; box; box = box.parentElement) {
    grounds.unshift(parts(getComputedStyle(box).backgroundColor));
    opaque.value *= Number(getComputedStyle(box).opacity);
  }
  const ground = grounds.reduce((below, top) => over(top, below), [255, 255, 255]);
  const [r, g, b, a] = parts(parent instanceof SVGElement ? style.fill : style.color);
  const [low, high] = [over([r, g, b, a * opaque.value], ground), ground].map(luminance).sort((one, two) => one - two);
  const ratio = (high + 0.05) / (low + 0.05);
  const size = parseFloat(style.fontSize);
  const least = size >= 24 || size >= 18.66 && style.fontWeight >= 700 ? 3 : 4.5;
  if (ratio < least) found.add(`${text.textContent.trim().slice(0, 60)} (${ratio.toFixed(2)})`);
}
return [...found];
"""


class Page:
    """A browser on the page."""

    def __init__(self, driver, url: str) -> None:
        self.driver = driver
        self.url = url

    def go(self, view: str) -> None:
        """Show a view."""
        self.driver.get(f"{self.url}/#{view}")
        self.wait(lambda: self.at(view).is_displayed())

    def at(self, id_: str):
        return self.driver.find_element(By.ID, id_)

    def text(self, id_: str) -> str:
        return self.at(id_).text

    def wait(self, condition: Callable[[], object]):
        """Wait until ``condition`` holds; with the text of the page if it never does."""
        try:
            return WebDriverWait(self.driver, PATIENCE, poll_frequency=0.1).until(lambda _driver: condition())
        except Exception:
            pytest.fail(f"the page says: {self.driver.find_element(By.TAG_NAME, 'body').text}")

    def all(self, selector: str) -> list:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def resize(self, width: int, height: int = 900) -> None:
        """Give the page another size; below 500 pixels it is that of a phone."""
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)

    def clipped(self) -> list[str]:
        """Return texts that are cut off: beyond the window or a box that hides them, and that no scrolling shows.

        Words of tables that are torn between two lines are among them.
        """
        return self.driver.execute_script(CLIPPED)

    def faint(self) -> list[str]:
        """Return texts whose contrast with the ground is too low to be read by everybody."""
        return self.driver.execute_script(FAINT)

    def complaints(self) -> list[str]:
        """Return the messages of the browser's console, but for requests that were refused on purpose."""
        return [entry["message"] for entry in self.driver.get_log("browser") if "status of 4" not in entry["message"]]


@contextmanager
def browser(
    url: str, *, audio: Path | None = None, size: str = "desktop", allow: bool = True, dark: bool = False
) -> Iterator[Page]:
    """A Chromium whose microphone plays ``audio`` again and again (None: there is no microphone)."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    words = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    if audio is not None:
        words += ["--use-fake-device-for-media-stream", f"--use-file-for-fake-audio-capture={audio}"]
        words += ["--use-fake-ui-for-media-stream"] if allow else ["--deny-permission-prompts"]
    if dark:
        words += ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"]
    for word in words:
        options.add_argument(word)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    page = Page(driver, url)
    try:
        page.resize(*SIZES[size])  # a window is never as narrow as a phone
        yield page
    finally:
        driver.quit()
