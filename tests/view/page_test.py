"""The page of `gradus view` in a browser: opened, clicked, searched, folded, moved.

Runs in a folder of its own and leaves its screenshots there. $GRADUS is the tool, $BROWSER and
$DRIVER are Chromium's.
"""

import os
import pathlib
import platform
import re
import subprocess
import sys

from selenium import webdriver
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import residual_model  # noqa: E402

BLOCKS = 50


def gradus(*arguments):
    subprocess.run([os.environ["GRADUS"], *arguments], check=True, stdout=subprocess.DEVNULL)


def open_browser():
    options = Options()
    options.binary_location = os.environ["BROWSER"]
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--window-size=1600,1000", "--host-resolver-rules=MAP * ~NOTFOUND"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(service=Service(os.environ["DRIVER"]), options=options)


class Page:
    def __init__(self, browser, file):
        self.browser = browser
        browser.get(pathlib.Path(file).resolve().as_uri())
        assert browser.execute_script("return document.documentElement.dataset.ready") == "yes"

    def run(self, script, *arguments):
        return self.browser.execute_script("return " + script, *arguments)

    def one(self, css):
        return self.browser.find_element(By.CSS_SELECTOR, css)

    def all(self, css):
        return self.browser.find_elements(By.CSS_SELECTOR, css)

    def keys(self, *keys):
        ActionChains(self.browser).send_keys(*keys).perform()

    def panel(self):
        return self.one("aside").text

    def place_of(self, item):
        return self.run("document.getElementById(arguments[0]).getAttribute('transform')", item)


def item_titled(page, title, subtitle):
    return page.run(
        "'i' + model.items.findIndex((i) => i.t === arguments[0] && i.s.includes(arguments[1]))",
        title, subtitle)


def check_places(page, file, least=400):
    """The script places everything where the drawing had it before the script ran."""
    text = pathlib.Path(file).read_text()
    drawn = dict(re.findall(r'<g id="([ig]\d+)"[^>]*transform="translate\(([^)]*)\)"', text))
    assert len(drawn) > least
    placed = page.run("Object.fromEntries([...document.querySelectorAll('.item, .group')].map("
                      "(n) => [n.id, n.getAttribute('transform')]))")
    for name, place in drawn.items():
        x, y = (float(v) for v in place.split(","))
        u, v = (float(v) for v in re.findall(r"[-\d.]+", placed[name]))
        assert abs(x - u) < 0.5 and abs(y - v) < 0.5, (name, place, placed[name])
    paths = dict(re.findall(r'<path id="(l\d+)"[^>]* d="([^"]*)"', text))
    placed = page.run("Object.fromEntries([...document.querySelectorAll('.link')].map("
                      "(n) => [n.id, n.getAttribute('d')]))")
    for name, path in paths.items():
        a, b = (re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", d) for d in (path, placed[name]))
        assert len(a) == len(b), (name, path, placed[name])
        assert all(abs(float(p) - float(q)) < 0.8 for p, q in zip(a, b)), (name, path, placed[name])


def check_selection(page):
    # By a click, where the box is on the screen.
    first = item_titled(page, "matmul", "%block0.down")
    page.one(f"#{first} .title").click()
    assert "matmul" in page.panel() and "definitions (2)" in page.panel(), page.panel()
    assert "f32[N, 16]" in page.panel() and "time" in page.panel()
    assert len(page.all(".item.selected")) == 1
    definitions = {page.run("model.items[arguments[0]].s", int(n.get_attribute("id")[1:]))
                   for n in page.all(".item.definition")}
    assert definitions == {"f32[16, 16]", "%block0.bent: f32[N, 16]"}, definitions
    uses = {page.run("model.items[arguments[0]].t", int(n.get_attribute("id")[1:]))
            for n in page.all(".item.use")}
    assert uses == {"relu", "sub"}, uses
    assert len(page.all(".link.definition")) == 2 and len(page.all(".link.use")) == 2
    page.browser.save_screenshot("selected.png")
    # By the list beside it, and by keys.
    page.one("aside .jump.use").click()
    assert page.one("aside h2").text == "relu"
    page.keys(Keys.ARROW_UP)
    assert page.one("aside h2").text == "matmul"
    page.keys(Keys.ESCAPE)
    assert not page.all(".selected") and "Nothing selected" in page.panel()


def on_screen(page, item):
    box, paper = page.one(f"#{item} .box").rect, page.one("#paper").rect
    return (paper["x"] < box["x"] and box["x"] + box["width"] < paper["x"] + paper["width"] and
            paper["y"] < box["y"] and box["y"] + box["height"] < paper["y"] + paper["height"])


def check_search(page):
    page.keys("/", "block41.gate")
    assert page.one("#found").text == "3 found", page.one("#found").text
    assert len(page.all(".matched")) == 3
    page.keys(Keys.ENTER)
    assert page.one("#found").text == "1 of 3"
    target = page.one(".selected").get_attribute("id")
    assert on_screen(page, target)
    page.browser.save_screenshot("searched.png")
    first = page.panel()
    page.keys(Keys.ENTER)
    assert page.one("#found").text == "2 of 3" and page.panel() != first
    page.keys(Keys.ESCAPE, "N")
    assert page.one("#found").text == "1 of 3"
    page.one("#search").clear()
    page.keys(Keys.ESCAPE)


def check_folding(page):
    page.one("#begin").click()
    # Two kernels a block: of add and tanh, and of the four instructions after the second product.
    groups = page.all(".group")
    assert len(groups) == 2 * BLOCKS, len(groups)
    # A kernel says what it computes, and of what it is made.
    frame = page.one("#g1 .frame")
    ActionChains(page.browser).move_to_element_with_offset(
        frame, -frame.size["width"] // 2 + 4, 0).click().perform()
    assert "kernel 1" in page.panel() and "instructions (4)" in page.panel(), page.panel()
    assert "load f32 [contiguous]" in page.panel() and "relu(" in page.panel()
    page.browser.save_screenshot("kernel.png")
    last = item_titled(page, "block49.out", "f32")
    height = page.place_of(last)
    page.one("#g1 text").click()
    assert "hidden" in page.one("#" + item_titled(page, "relu", "%block0.gate")).get_attribute("class")
    assert page.place_of(last) != height  # what is below moves up
    page.keys("g")
    assert len(page.all(".item.hidden")) == 6 * BLOCKS
    page.browser.save_screenshot("folded.png")
    # What is found inside of a folded kernel is unfolded.
    page.keys("/", "%block7.gated", Keys.ENTER)
    assert len(page.all(".item.hidden")) == 6 * BLOCKS - 4
    page.one("#search").clear()
    page.keys(Keys.ESCAPE, "g", "g")
    assert not page.all(".item.hidden") and page.place_of(last) == height
    page.one("#begin").click()
    page.one("#c0 .column-title").click()
    assert not page.run("[...document.querySelectorAll('.item')].some((n) => "
                        "!n.classList.contains('hidden'))")
    page.one("#c0 .column-title").click()
    assert not page.all(".item.hidden")


def check_moving(page):
    page.one("#fit").click()
    assert page.run("seen.scale") < 0.2
    before = page.run("seen.y")
    paper = page.one("#paper")
    ActionChains(page.browser).move_to_element_with_offset(paper, 400, 300).click_and_hold() \
        .move_by_offset(0, -120).release().perform()
    assert abs(page.run("seen.y") - before + 120) < 2
    scale = page.run("seen.scale")
    page.keys("+", "+")
    assert page.run("seen.scale") > 1.5 * scale
    page.one("#begin").click()


def check_stages(browser):
    """Two stages, and what is held between them."""
    gradus("grad", "model.onnx", "--order", "1", "-o", "stages.ir")
    gradus("view", "stages.ir", "-o", "stages.html")
    page = Page(browser, "stages.html")
    check_places(page, "stages.html")
    held = item_titled(page, "%block0.bent", "64*N B")
    page.run("select(Number(arguments[0].slice(1)), true)", held)
    assert "definitions (1)" in page.panel() and "until stage\n1" in page.panel(), page.panel()
    page.browser.save_screenshot("stages.png")
    # With stage 0 folded the others move to the left, and its links are gone.
    before = page.place_of("c2")
    page.run("toggle('column', 0)")
    assert float(page.place_of("c2")[10:].split(",")[0]) < float(before[10:].split(",")[0]) - 100
    assert page.run("document.getElementById('l0').getAttribute('d')") == ""
    page.run("toggle('column', 0)")
    assert page.place_of("c2") == before


LOOP = """
graph step {
  stage 0 (%h: f64[], %x: f64[], %w: f64[]) {
    %p = mul(%h, %w)
    %s = add(%p, %x)
    return %s, %p
  }
}
graph rollout {
  stage 0 (%h: f64[], %xs: f64[5], %w: f64[]) {
    %last, %ps = scan(%h, %xs, %w) {body = "step", carries = 1, sequences = 1}
    return %last, %ps
  }
}
"""


def check_loops(browser):
    """A loop's body is folded until it is asked for: by a double click, the panel or a search."""
    pathlib.Path("loop.ir").write_text(LOOP)
    gradus("view", "loop.ir", "-o", "loop.html")
    page = Page(browser, "loop.html")
    loop = item_titled(page, "scan", "%last")
    mul = item_titled(page, "mul", "%p")
    hidden = lambda: "hidden" in page.one("#" + mul).get_attribute("class")
    assert [n.get_attribute("id") for n in page.all(".item.opens")] == [loop]
    assert hidden()
    ActionChains(page.browser).double_click(page.one(f"#{loop} .box")).perform()
    assert not hidden()
    check_places(page, "loop.html", least=8)
    page.browser.save_screenshot("loop.png")
    button = page.one("aside .bodies")
    assert button.text == "Fold graph step", button.text
    button.click()
    assert hidden() and page.one("aside .bodies").text == "Unfold graph step"
    page.keys("/", "%p: f64[]", Keys.ENTER)
    assert not hidden()


def check_hostile(browser):
    evil = '</script><script>window.hacked = 1</script><img src=x onerror="window.hacked = 2">'
    model = residual_model.model(1, name=evil).replace(b"block0.gate", b"<b>&\"'\xc3\xa9<b>")
    pathlib.Path("hostile.onnx").write_bytes(model)
    gradus("view", "hostile.onnx", "-o", "hostile.html")
    page = Page(browser, "hostile.html")
    for node in page.all(".item"):
        page.run("select(Number(arguments[0].id.slice(1)), true)", node)
    assert page.run("window.hacked") is None
    assert page.run("document.scripts.length") == 2 and not page.all("img") and not page.all("b")
    assert page.one("h1").text.startswith("</script><script>")


def large_program(steps):
    """Three nodes a step, all of which read one weight, and a loop every hundred steps."""
    lines, last = [], "x"
    for i in range(steps):
        lines += [f"%a{i} = matmul(%{last}, %w)", f"%b{i} = tanh(%a{i})", f"%c{i} = add(%b{i}, %{last})"]
        last = f"c{i}"
        if i % 100 == 50:
            lines.append(f"%l{i}, %p{i} = scan(%{last}, %w) {{body = graph loop{i} "
                         "(%h: f64[N, 8], %w: f64[8, 8]) { %m = matmul(%h, %w) %n = tanh(%m) "
                         "%s = sum(%n) return %n, %s }, carries = 1, length = 5}")
            last = f"l{i}"
    return ("graph large { stage 0 (%x: f64[N, 8], %w: f64[8, 8]) {\n" + "\n".join(lines)
            + f"\nreturn %{last} }} }}")


def check_large(browser):
    """5,000 nodes: what a value with many readers takes is its longest way, not the sum of all."""
    pathlib.Path("large.ir").write_text(large_program(1660))
    gradus("view", "large.ir", "-o", "large.html")
    assert pathlib.Path("large.html").stat().st_size < 10e6
    page = Page(browser, "large.html")
    assert page.run("model.items.length") > 5000
    last = item_titled(page, "matmul", "%a1659")
    page.run("select(Number(arguments[0].slice(1)), true)", last)
    assert on_screen(page, last)
    # The whole way from the weight to its last reader is marked.
    assert len(page.all(".link.definition")) > 1660
    page.keys("/", "%l1650", Keys.ENTER)
    loop = page.one(".selected").get_attribute("id")
    page.one("aside .bodies").click()
    assert page.one("aside .bodies").text == "Fold graph loop1650", page.one("aside .bodies").text
    assert on_screen(page, loop)


def main():
    if platform.machine() == "x86_64":  # of 512 bits the cost model makes other kernels
        os.environ["GRADUS_ISA"] = "x86-64-v3"
    pathlib.Path("model.onnx").write_bytes(residual_model.model(BLOCKS))
    gradus("run", "model.onnx", "--random", "1", "--set", "N=256", "--fusion", "first",
           "--profile", "trace.json")
    gradus("view", "model.onnx", "-o", "model.html", "--profile", "trace.json")
    browser = open_browser()
    try:
        page = Page(browser, "model.html")
        assert len(page.all(".item.instruction")) == 8 * BLOCKS
        check_places(page, "model.html")
        page.browser.save_screenshot("opened.png")
        check_selection(page)
        check_search(page)
        check_folding(page)
        check_moving(page)
        check_stages(browser)
        check_loops(browser)
        check_large(browser)
        check_hostile(browser)
        faults = [e for e in browser.get_log("browser") if e["level"] == "SEVERE"]
        assert not faults, faults
    finally:
        browser.quit()


if __name__ == "__main__":
    main()
