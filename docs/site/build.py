"""Builds the documentation's site: build.py --gradus TOOL [--stubs FOLDER] --out FOLDER

FOLDER/pages are the pages as they are given to mkdocs: those of docs/, README.md and HACKING.md, those
of the examples, and the references. These are of the operators (from `gradus ops --json`), the
commands (from `--help`), the public headers (cpp.py) and the Python module (python_names.py; the stubs
of its compiled part are in the folder that --stubs names). Drawings are made by `gradus view`, from
bench/results (plots.py) and from the folders' includes (folders.py). FOLDER/site is the site, with the
index of its search; its links are checked. Nothing is fetched from anywhere.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys

import cpp
import folders
import links
import plots
import python_names
import search
from comments import escaped
from folders import ROOT

LINK = re.compile(r"\]\(([^)\s]+)\)")


class Composer:
    def __init__(self, gradus, pages):
        self.gradus, self.pages = gradus, pages

    def run(self, *arguments):
        return subprocess.run([self.gradus, *map(str, arguments)], check=True, text=True,
                              stdout=subprocess.PIPE).stdout

    def source(self, path):
        """A file of the tree that a page links to, beside the pages; of a folder its main.cpp."""
        path = path / "main.cpp" if path.is_dir() else path
        name = pathlib.Path("source") / path.relative_to(ROOT)
        (self.pages / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, self.pages / name)
        return str(name)

    def link(self, page, target):
        if re.match(r"[a-z]+:|#", target):
            return target
        path, _, anchor = target.partition("#")
        path = (page.parent / path).resolve()
        if path.parent == ROOT / "docs" and path.suffix == ".md":
            new = path.name
        elif path in (ROOT / "README.md", ROOT / "HACKING.md"):
            new = PAGE_NAMES[path.name]
        elif path.name == "README.md" and path.parent.parent == ROOT / "examples":
            new = example_page(path)
        elif path.exists():
            new = self.source(path)
        else:
            new = target  # mkdocs complains of it
        return f"{new}#{anchor}" if anchor else new

    def drawing(self, page, name, order, caption):
        program = re.search(rf"^```ir {re.escape(name)}\n(.*?)^```$", page.read_text(), re.M | re.S)
        stem = f"{page.stem}-{pathlib.Path(name).stem}"
        text = self.pages / f"{stem}.ir"
        text.write_text(program[1])
        self.run("grad", text, "--order", order, "-o", text)
        self.run("view", text, "-o", self.pages / f"{stem}.svg")
        text.unlink()
        return f"![{caption}]({stem}.svg)"

    def page(self, path, name):
        text = path.read_text()
        text = re.sub(r"<!-- drawing ([\w.]+), order (\d+): (.*?) -->",
                      lambda m: self.drawing(path, *m.groups()), text, flags=re.S)
        if "<!-- plots -->" in text:
            text = text.replace("<!-- plots -->", plots.draw(ROOT / "bench/results", self.pages))
        if "<!-- folders -->" in text:
            text = text.replace("<!-- folders -->", folders.draw(self.pages))
        text = re.sub(r"<!-- setup\n.*?-->\n", "", text, flags=re.S)
        # What a fence says to the tests is not for mkdocs.
        text = re.sub(r"^( *```\w+) .*$", r"\1", text, flags=re.M)
        text = LINK.sub(lambda m: f"]({self.link(path, m[1])})", text)
        (self.pages / name).write_text(with_plain_lists(text))

    def operators(self):
        table = json.loads(self.run("ops", "--json"))
        lines = [
            "# Operators", "",
            f"The {len(table)} operators, from their definitions: what `gradus ops` lists. Operands "
            "that may be `none` have a question mark, those that may be any number end in `...`; "
            "attributes without a default have to be given.", "",
            " ".join(f"[`{op['name']}`](#{op['name']})" for op in table), "",
        ]
        for op in table:
            derivative = ("zero everywhere" if op["zero_gradient"] else
                          "of any order" if op["differentiable"] else "none")
            lines += [f"## {op['name']}", "", f"`{op['signature']}`", "", escaped(op["doc"]) + ".",
                      "", f"Derivative: {derivative}.", ""]
            rows = [f"| `{a['name']}` | " + ("has to be given |" if a.get("required") else
                                             f"`{a['default']}` |") for a in op["attributes"]]
            if rows:
                lines += ["| attribute | default |", "| --- | --- |", *rows, ""]
        (self.pages / "operators.md").write_text("\n".join(lines))

    def commands(self):
        whole = self.run("--help")
        names = re.findall(r"^  ([\w-]+) ", whole.partition("\nSubcommands:\n")[2], re.M)
        parts = ["# Commands", "The output of `gradus --help` and of `gradus COMMAND --help`. [The "
                 "command-line tool](command-line.md) describes the commands.",
                 " ".join(f"[`{name}`](#gradus-{name})" for name in names), f"```text\n{whole}```"]
        for name in names:
            parts += [f"## gradus {name}", f"```text\n{self.run(name, '--help')}```"]
        (self.pages / "command-reference.md").write_text("\n\n".join(parts) + "\n")


def with_plain_lists(text):
    """What mkdocs knows of lists: four columns, and no fences within them."""
    lines, fence = [], None
    for line in text.split("\n"):
        begins = re.match(r"( +)```", line)
        if begins and fence is None:
            fence = len(begins[1])
            lines.append("")
        elif begins:
            fence = None
        elif fence is not None:
            lines.append(" " * 8 + line[fence:] if line else "")
        else:
            lines.append(re.sub(r"^   (?=\S)", "    ", line))
    return "\n".join(lines)


PAGE_NAMES = {"README.md": "index.md", "HACKING.md": "hacking.md"}


def example_page(readme):
    return f"example-{readme.parent.name}.md"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gradus", required=True)
    parser.add_argument("--stubs", type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    pages, site = out / "pages", out / "site"
    shutil.rmtree(pages, ignore_errors=True)
    pages.mkdir(parents=True)
    composer = Composer(arguments.gradus, pages)
    for name, page in PAGE_NAMES.items():
        composer.page(ROOT / name, page)
    for path in sorted((ROOT / "docs").glob("*.md")):
        composer.page(path, path.name)
    for path in sorted((ROOT / "examples").glob("*/README.md")):
        composer.page(path, example_page(path))
    composer.operators()
    composer.commands()
    cpp.write(pages)
    python_names.write(pages, arguments.stubs)
    config = out / "mkdocs.yml"
    # Its theme is our own: those that come with mkdocs fetch scripts, or miss them on Debian.
    theme = {"name": None, "custom_dir": str(ROOT / "docs/site/theme")}
    places = {"theme": theme, "docs_dir": str(pages), "site_dir": str(site)}
    config.write_text((ROOT / "docs/site/mkdocs.yml").read_text()
                      + "".join(f"{key}: {json.dumps(value)}\n" for key, value in places.items()))
    mkdocs = subprocess.run(["mkdocs", "build", "--quiet", "--clean", "--strict", "-f", config])
    if mkdocs.returncode:
        return 1
    search.write(site)
    faults = links.faults_of(site)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
