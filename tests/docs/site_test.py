"""The documentation's site builds, its links lead somewhere, and what is generated is all there; a
link that is broken is noticed. $GRADUS is the tool, $GRADUS_SOURCE_DIR the tree."""

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


def main():
    check_links_are_noticed()
    subprocess.run([sys.executable, SOURCE / "docs/site/build.py", "--gradus", GRADUS, "--out",
                    "out"], check=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
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
    # Nothing of what is for the tests alone is shown, and no fence is left as it was written.
    for page in site.glob("*.html"):
        text = re.sub(r"<(pre|code).*?</\1>", "", page.read_text(), flags=re.S)
        assert "```" not in text and "setup" not in re.findall(r"<!--(.*?)-->", text), page


if __name__ == "__main__":
    main()
