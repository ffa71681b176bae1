"""The index of the site's search: a script, since a page that is read from a file cannot fetch."""

import json
import pathlib
import re
from html.parser import HTMLParser


class Sections(HTMLParser):
    """[place, heading, text] of each section of a page: what follows a heading with an id."""

    def __init__(self, text):
        super().__init__()
        self.found, self.in_heading, self.skipped = [], False, None
        self.feed(re.search(r"<main>(.*?)<footer>", text, re.S)[1])

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag in ("h1", "h2", "h3") and "id" in attributes:
            self.found.append([attributes["id"], "", ""])
            self.in_heading = True
        elif attributes.get("class") == "headerlink":
            self.skipped = tag
        elif tag in ("p", "li", "td", "th", "pre", "br"):
            self.handle_data(" ")

    def handle_endtag(self, tag):
        if tag == self.skipped:
            self.skipped = None
        elif tag in ("h1", "h2", "h3"):
            self.in_heading = False

    def handle_data(self, text):
        if self.found and not self.skipped:
            self.found[-1][1 if self.in_heading else 2] += text


def write(site):
    """Writes search-index.js: the pages, each with its file, title and sections."""
    pages = []
    for path in sorted(pathlib.Path(site).glob("*.html")):
        sections = [[place, heading.strip(), " ".join(text.split())]
                    for place, heading, text in Sections(path.read_text()).found]
        if sections:
            pages.append([path.name, sections[0][1], sections])
    text = json.dumps(pages, ensure_ascii=False, separators=(",", ":"))
    (site / "search-index.js").write_text(f"const search_index = {text};\n")
