"""The pages in a real browser: nothing cut, nothing blocked, readable, usable by keyboard, and printed.

The colours are also computed from the style alone, where there is no browser.
"""

import itertools
import re
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser
from command_line import typed

CSS = (Path(__file__).parents[2] / "slurmddp" / "report" / "page.css").read_text()
PAGES = {"run": "crashed/report.html", "sweep": "lrs/report.html", "all": "report.html"}

CONTRAST = """(() => {
  const parse = text => text.match(/[0-9.]+/g).map(Number);
  const linear = c => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => [r, g, b].map(c => linear(c / 255))
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const below = node => { for (; node; node = node.parentElement) {
    const found = parse(getComputedStyle(node).backgroundColor); if (found.length == 3 || found[3] > 0) return found; }
    return [255, 255, 255]; };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), wrong = [];
  let count = 0;
  for (let node; node = walker.nextNode();) {
    const element = node.parentElement, box = element.getBoundingClientRect();
    if (!node.data.trim() || !box.width || element.closest("title, desc, style")) continue;
    const colour = getComputedStyle(element)[element.closest("svg") ? "fill" : "color"];
    const [a, b] = [light(parse(colour)), light(below(element))].sort((x, y) => y - x);
    const contrast = (a + .05) / (b + .05); count += 1;
    if (contrast < 4.5) wrong.push(element.tagName + " " + node.data.trim().slice(0, 30) + " " + contrast.toFixed(2));
  }
  return [count, wrong];
})()"""
WIDE = """[...document.querySelectorAll("main *, footer")].filter(one => !one.closest("svg, .scroll") &&
  one.getBoundingClientRect().right > innerWidth + 1).map(one => one.tagName + "." + one.className)"""
CUT = """[...document.querySelectorAll(".scroll")].filter(one => one.scrollWidth > one.clientWidth &&
  !getComputedStyle(one).backgroundImage.includes("gradient")).length"""
FOCUSABLE = "[...document.querySelectorAll('a[href], summary, [tabindex]')].filter(one => one.checkVisibility()).length"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("there is no chromium")
    found = Browser(tmp_path_factory.mktemp("chromium"))
    yield found
    found.close()


@pytest.fixture
def pages(folder):
    for words in (("crashed",), ("lrs",), ("--all", "--since", "2026-11-01")):
        assert typed("report", *words, cwd=folder.parent).returncode == 0
    return folder


@pytest.mark.parametrize("name", PAGES)
def test_a_page_in_a_browser(browser, pages, name):
    page = pages / PAGES[name]
    for width, dark in itertools.product((390, 768, 1280, 1920), (False, True)):
        browser.open(page, width=width, dark=dark)
        assert browser.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
        assert browser.evaluate(WIDE) == []
        assert browser.evaluate(CUT) == 0  # a shade at its edge shows that a table scrolls
        texts, unreadable = browser.evaluate(CONTRAST)
        assert unreadable == [] and texts > 60
        said = [event["method"] for event in browser.events]
        assert not {"Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"} & set(said)
        assert said.count("Network.requestWillBeSent") == 1
    reached = set()
    for _ in range(browser.evaluate(FOCUSABLE)):
        browser.press_tab()
        reached.add(browser.evaluate("[...document.querySelectorAll('*')].indexOf(document.activeElement)"))
        style = browser.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert style != "none"
    assert len(reached) == browser.evaluate(FOCUSABLE)
    printed = browser.call("Page.printToPDF")["data"]
    assert len(printed) > 10_000


def colours(*, dark):
    """Return the colours of the style by name."""
    light, _, rest = CSS.partition("@media screen and (prefers-color-scheme: dark)")
    found = dict(re.findall(r"--([a-z0-9]+): (#[0-9a-f]{6})", light))
    return found | dict(re.findall(r"--([a-z0-9]+): (#[0-9a-f]{6})", rest.partition("\n* {")[0])) if dark else found


def lightness(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(part * weight for part, weight in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_contrast_of_texts_and_of_lines(dark):
    found = colours(dark=dark)
    least = dict.fromkeys(("ink", "soft", "good", "bad", "c0"), 4.5) | dict.fromkeys(
        ("c1", "c2", "c3", "c4", "c5", "c6", "useful", "held", "startup", "lost", "ending", "unmeasured", "queued"), 3.0
    )
    for name, contrast in least.items():
        for ground in ("paper", "card"):
            high, low = sorted((lightness(found[name]), lightness(found[ground])), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= contrast, (name, ground)
