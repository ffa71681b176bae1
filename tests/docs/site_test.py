"""The documentation's site builds, its links lead somewhere, and what is generated is all there; a
link that is broken is noticed. $GRADUS is the tool, $GRADUS_SOURCE_DIR the tree, $GRADUS_STUBS the
folder of the Python module's stubs, or empty."""

import ast
import html
import json
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

sys.dont_write_bytecode = True
SOURCE = pathlib.Path(os.environ["GRADUS_SOURCE_DIR"])
sys.path.insert(0, str(SOURCE / "docs/site"))
import folders  # noqa: E402
import links  # noqa: E402

GRADUS = os.environ["GRADUS"]


def check_links_are_noticed():
    bad = pathlib.Path("bad")
    bad.mkdir()
    (bad / "a.html").write_text(
        '<h1 id="here">x</h1><a href="#here">1</a><a href="b.html#there">2</a>'
        '<a href="https://example.org/x">3</a>')
    (bad / "b.html").write_text('<p id="there"></p>')
    assert links.faults_of(bad) == []
    for text in ('<a href="c.html">', '<a href="#nowhere">', '<a href="b.html#nowhere">',
                 '<a href="https://">', '<a href="htps://example.org">', '<img src="x.svg">',
                 '<script src="https://example.org/x.js"></script>', '<a href="../../etc">',
                 '<link rel="stylesheet" href="//example.org/x.css">'):
        (bad / "c2.html").write_text(text)
        assert len(links.faults_of(bad)) >= 1, text


def check_search(site):
    text = (site / "search-index.js").read_text()
    index = json.loads(text.removeprefix("const search_index = ").removesuffix(";\n"))
    assert {file for file, _, _ in index} == {p.name for p in site.glob("*.html")}
    sections = {(file, place): text for file, _, found in index for place, _, text in found}
    for path in site.glob("*.html"):
        for place in re.findall(r'<h[123] id="([^"]+)"', path.read_text()):
            assert (path.name, place) in sections, (path.name, place)
    assert "Stops the threads and waits for them" in sections["cpp-engine.html", "class-engine"]


def headings(page):
    found = re.findall(r"<h2[^>]*>(.*?)<a class", page.read_text())
    return [html.unescape(heading) for heading in found]


def check_headers(site):
    """Each public header has a page, and each class that it defines a heading there."""
    listed = (site / "cpp-reference.html").read_text()
    headers = sorted((SOURCE / "include/gradus").rglob("*.h"))
    assert len(headers) > 60
    for path in headers:
        name = str(path.relative_to(SOURCE / "include/gradus").with_suffix("")).replace("/", "-")
        assert f'href="cpp-{name}.html"' in listed, name
        found = headings(site / f"cpp-{name}.html")
        defined = re.compile(r"^(?:typedef )?(class|struct) ([\w:]+)[^;(<]*\{", re.M)
        for kind, own in defined.findall(path.read_text()):
            assert any(re.fullmatch(rf"{kind} (\w+::)*{own}", heading) for heading in found), \
                (name, own, found)
    assert "void shutdown(std::chrono" in (site / "cpp-engine.html").read_text()


def check_commands(site):
    sources = "".join(p.read_text() for p in (SOURCE / "tools").glob("*.cpp"))
    names = re.findall(r'add_command\(\s*app, c, "([\w-]+)"', sources)
    names += re.findall(r'^ +(?:kinds.*=)? *\{+"(\w+)", "Add the', sources, re.M)
    assert {"run", "check-potential", "hessian", "jvp", "view"} <= {*names} and len(names) >= 18, names
    page = (site / "command-reference.html").read_text()
    for name in names:
        assert f'id="gradus-{name}"' in page and f"Usage: gradus {name} " in page, name


def check_python(site):
    found = headings(site / "python-reference.html")
    text = (SOURCE / "python/gradus/__init__.py").read_text()
    names = ast.literal_eval(re.search(r"__all__ = (\[.*?\])", text, re.S)[1])
    page = (site / "python-reference.html").read_text()
    for name in names:
        assert f"gradus.{name}" in found or f"<code>{name}</code>" in page, name
    assert "gradus.scan" in found and "gradus.torch.function" in found
    if os.environ.get("GRADUS_STUBS"):
        assert "gradus.State" in found and "gradus.parse" in found, found


def check_picture():
    """The picture of README.md is what the tool draws of its program."""
    program = re.search(r"^```ir swing.ir\n(.*?)^```$", (SOURCE / "README.md").read_text(), re.M | re.S)
    pathlib.Path("swing.ir").write_text(program[1])
    subprocess.run([GRADUS, "grad", "swing.ir", "--order", "1", "-o", "swing.ir"], check=True)
    subprocess.run([GRADUS, "view", "swing.ir", "-o", "swing.svg"], check=True)
    drawn = pathlib.Path("swing.svg")
    assert drawn.read_text() == (SOURCE / "docs/swing.svg").read_text(), \
        f"the drawing has changed; if rightly: cp {drawn.resolve()} docs/"


def main():
    check_links_are_noticed()
    check_picture()
    stubs = os.environ.get("GRADUS_STUBS")
    subprocess.run([sys.executable, SOURCE / "docs/site/build.py", "--gradus", GRADUS, "--out", "out",
                    *(["--stubs", stubs] if stubs else [])],
                   check=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    site = pathlib.Path("out/site")
    pages = {p.name for p in site.glob("*.html")}
    assert {p.stem + ".html" for p in (SOURCE / "docs").glob("*.md")} <= pages, pages
    reference = (site / "operators.html").read_text()
    operators = json.loads(subprocess.run([GRADUS, "ops", "--json"], check=True,
                                          capture_output=True).stdout)
    assert len(operators) > 200
    for op in operators:
        assert f'id="{op["name"]}"' in reference, op["name"]
    drawings = list(site.glob("*.svg"))
    assert len(drawings) >= 5
    for drawing in drawings:
        xml.etree.ElementTree.parse(drawing)
    check_search(site)
    check_headers(site)
    check_commands(site)
    check_python(site)
    drawn = (site / "folders.svg").read_text() + (site / "includes.svg").read_text()
    for folder in folders.order_and_headers()[0]:
        assert drawn.count(f">{folder}</text>") == 3, folder
    # Nothing of what is for the tests alone is shown, and no fence is left as it was written.
    for page in site.glob("*.html"):
        text = re.sub(r"<(pre|code).*?</\1>", "", page.read_text(), flags=re.S)
        assert "```" not in text and "setup" not in re.findall(r"<!--(.*?)-->", text), page


if __name__ == "__main__":
    main()
