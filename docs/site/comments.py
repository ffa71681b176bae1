"""Comments and docstrings as Markdown."""

import itertools
import re
import textwrap

CODE = re.compile(r"(``.+?``|`.+?`)", re.S)


def escaped(text):
    """Text that means itself; what is between backticks is code."""
    parts = CODE.split(text)
    for k in range(0, len(parts), 2):
        parts[k] = re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", parts[k])
    return "".join(parts)


def as_markdown(lines):
    """Paragraphs and lists. What is indented, or has several blanks in a row, is shown as it is; so
    is a paragraph with comments of code."""
    parts = []
    for paragraph in re.split(r"\n(?: *-* *\n)+", "\n".join(lines).strip("\n")):
        rows, kinds = paragraph.split("\n"), []
        for row in rows:
            apart = re.search(r"\S {3,}\S", row)
            if re.match(r" *- \S", row) or (kinds[-1:] == ["item"] and row[0] == " " and not apart):
                kinds.append("item")
            else:
                kinds.append("shown" if apart or row.startswith("  ") else "text")
        if re.search(r"\S {2,}# ", paragraph):
            kinds = ["shown"] * len(rows)
        for kind, group in itertools.groupby(zip(kinds, rows), key=lambda pair: pair[0]):
            text = "\n".join(row for _, row in group)
            if kind == "shown":
                parts.append(f"```text\n{textwrap.dedent(text)}\n```")
            elif kind == "item":
                items = re.split(r"(?:^|\n) *- ", text)[1:]
                parts.append("\n".join("- " + escaped(" ".join(item.split())) for item in items))
            else:
                parts.append(escaped(text))
    return "\n\n".join(parts)
