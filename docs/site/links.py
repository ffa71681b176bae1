"""Looks at the links of a site: internal ones lead somewhere, external ones are written well, and
nothing that a page needs to be shown is fetched from elsewhere."""

import pathlib
import re
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.needs = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        for key in ("id", "name"):
            if attributes.get(key):
                self.ids.add(attributes[key])
        if tag == "a" and attributes.get("href") is not None:
            self.links.append(attributes["href"])
        if attributes.get("src"):
            self.needs.append(attributes["src"])
        if tag == "link" and attributes.get("rel") in ("stylesheet", "icon", "shortcut icon"):
            self.needs.append(attributes["href"])


def external_fault(link):
    parts = urlsplit(link)
    if parts.scheme == "mailto":
        return None if "@" in parts.path else "no address"
    if parts.scheme not in ("http", "https"):
        return "an unknown kind of link"
    if not re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+(:\d+)?", parts.netloc, re.I):
        return "no host"
    return None


def faults_of(site):
    site = pathlib.Path(site).resolve()
    pages = {p: Page(p.read_text()) for p in site.rglob("*.html")}
    faults = []
    for path, page in pages.items():
        def fault(link, why):
            faults.append(f"{path.relative_to(site)}: {link}: {why}")

        for link in page.needs:
            if urlsplit(link).scheme or link.startswith("//"):
                fault(link, "is fetched from elsewhere")
        for link in page.links + page.needs:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if why := external_fault(link):
                    fault(link, why)
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target = target / "index.html"
            if not target.exists() or not target.is_relative_to(site):
                fault(link, "leads nowhere")
            elif parts.fragment and target in pages and \
                    unquote(parts.fragment) not in pages[target].ids:
                fault(link, "there is no such place on the page")
    return faults


if __name__ == "__main__":
    found = faults_of(sys.argv[1])
    print("\n".join(found))
    sys.exit(1 if found else 0)
