"""The reference of the public headers: a page of each, and a table of them. Doxygen finds the
declarations; each is shown as the header has it, below its comment."""

import itertools
import pathlib
import re
import subprocess
import tempfile
import xml.etree.ElementTree

from comments import as_markdown, escaped
from folders import ROOT, order_and_headers

SETTINGS = f"""
INPUT = "{ROOT}/include"
RECURSIVE = YES
EXTRACT_ALL = YES
EXTRACT_PRIVATE = NO
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = GRADUS_INTERNAL= GRADUS_PUBLIC= GRADUS_INLINE=inline __attribute__(x)=
GENERATE_HTML = NO
GENERATE_LATEX = NO
GENERATE_XML = YES
QUIET = YES
WARNINGS = NO
"""
INCLUDE = re.compile(r'#include "')
CLASSES = ("class", "struct", "union", "concept")
LINK = re.compile(r"(?<![\w/\"\[(])gradus/[a-z0-9_/]+\.h(?!`)")


def page_name(header):
    return "cpp-" + header.removeprefix("gradus/").removesuffix(".h").replace("/", "-") + ".md"


def declarations():
    """{header: {line: (kind, name, its class or "")}} of all that is public, and {header: its
    namespaces}."""
    with tempfile.TemporaryDirectory() as out:
        subprocess.run(["doxygen", "-"], input=SETTINGS + f'OUTPUT_DIRECTORY = "{out}"\n',
                       text=True, check=True, cwd=ROOT)
        compounds = [c for file in sorted(pathlib.Path(out, "xml").glob("*.xml"))
                     for c in xml.etree.ElementTree.parse(file).getroot().iter("compounddef")]
    found, namespaces = {}, {}

    def add(node, kind, name, inside):
        place = node.find("location")
        header = str((ROOT / place.get("file")).relative_to(ROOT / "include"))
        found.setdefault(header, {}).setdefault(int(place.get("line")), (kind, name, inside))
        return header

    hidden = {c.findtext("compoundname") for c in compounds if c.get("prot") == "private"}
    for compound in compounds:
        kind, whole = compound.get("kind"), compound.findtext("compoundname")
        if kind not in (*CLASSES, "namespace", "file") or any(
                whole == h or whole.startswith(h + "::") for h in hidden):
            continue
        inside = ""
        if kind in CLASSES:
            inside = whole
            add(compound, kind, whole, inside)
        for member in compound.iter("memberdef"):
            if member.get("prot") == "private" and member.get("kind") != "friend":
                continue
            if member.get("kind") == "friend" and not member.findtext("argsstring"):
                continue
            header = add(member, member.get("kind"), member.findtext("name"), inside)
            if kind == "namespace":
                namespaces.setdefault(header, set()).add(whole)
    return found, namespaces


class Header:
    def __init__(self, name):
        # Comments of C that have lines of their own, as those of C++.
        text = re.sub(r"^( *)/\*(.*?)\*/$", lambda m: "\n".join(
            m[1] + "//" + re.sub("^" + m[1] + "  ", "", row) for row in m[2].rstrip().split("\n")),
            (ROOT / "include" / name).read_text(), flags=re.M | re.S)
        self.lines = ["", *text.split("\n")]

    def comment_before(self, line):
        """The lines of a comment, and where it begins."""
        begin = line
        while re.match(r" *//", self.lines[begin - 1]):
            begin -= 1
        return [re.sub(r"^ *// ?", "", row) for row in self.lines[begin:line]], begin

    def free_comments(self, of_declarations):
        """(line, lines) of each that begins a line of its own and belongs to no declaration."""
        begin = None
        for n, row in enumerate(self.lines):
            if begin is None and row.startswith("//") and n not in of_declarations:
                begin = n
            elif begin is not None and not row.startswith("//"):
                yield begin, self.comment_before(n)[0]
                begin = None

    def first_line(self, line):
        """Of the declaration that has its name in this line: a template begins before."""
        while re.match(r" *(template|requires|const \S+$)(?!.*[;{]$)", self.lines[line - 1]):
            line -= 1
        return line

    def code(self, kind, line):
        """The declaration as lines, without a function's body or a class's members."""
        begin, text = self.first_line(line), "\n".join(self.lines[line:])
        if kind == "define":
            own = re.match(r"#define \w+(\([^)]*\))?( [^\\\n]+$)?", text, re.M)[0].rstrip()
        else:
            whole = kind in ("variable", "enum", "typedef", "concept")
            end = end_of(text, whole)
            own, rest = text[:end].rstrip(), text[end:]
            if kind in ("function", "friend"):
                own = re.split(r"(?:(?<=\))|(?<=noexcept))\s+:(?!:)", own)[0] + ";"
            comment = re.match(r"(?:.*[;}])?( +(?://(?! NOLINT)|/\*).*(?:\n {20,}//.*)*)", rest)
            own += comment[1] if comment else ""
        rows = self.lines[begin:line] + own.split("\n")
        indent = len(rows[0]) - len(rows[0].lstrip())
        return [row[indent:] for row in rows]


def end_of(text, whole):
    """Of the declaration that a text begins with: before its body, or behind its semicolon."""
    depth = 0
    for at, letter in enumerate(re.sub(r"//.*", lambda m: " " * len(m[0]), text)):
        if depth == 0 and (letter == ";" or letter == "{" and not whole):
            return at + whole
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(letter, 0)
    return len(text)


def page(name, found, namespaces):
    """Markdown of a header: its declarations in its order, members below their class."""
    header = Header(name)
    classes = {whole: line for line, (kind, whole, _) in found.items() if kind in CLASSES}
    blocks, of_declarations = [], set()  # a block: where it stands, kind, names, comment, code, class
    for line in sorted(found, key=lambda n: (classes.get(found[n][2], n), n)):
        kind, own, inside = found[line]
        begin = header.first_line(line)
        comment, start = header.comment_before(begin)
        of_declarations.update(range(start, begin))
        last = blocks[-1] if blocks else (None,) * 6
        if kind == "typedef" and own in classes:  # of C
            continue
        if not {kind, last[1]} & {None, *CLASSES} and last[5] == inside and (
                header.lines[begin - 1].strip() and not comment):
            last[2].append(own)
            last[4].extend(header.code(kind, line))
        else:
            place = (classes.get(inside, line), line)
            blocks.append((place, kind, [own], comment, header.code(kind, line), inside))
    for line, text in header.free_comments(of_declarations):
        includes = itertools.takewhile(INCLUDE.match, header.lines[line + len(text):])
        blocks.append(((line, line), "text", [], text, list(includes), ""))
    spaces = sorted(namespaces, key=len, reverse=True)

    def short(whole):
        return next((whole[len(s) + 2:] for s in spaces if whole.startswith(s + "::")), whole)

    parts = [f"# {escaped(name)}"]
    for _, kind, names, comment, code, inside in sorted(blocks, key=lambda b: b[0]):
        if kind in CLASSES:
            parts.append(f"## {kind} {escaped(short(names[0]))}")
            if code[0] in (f"{kind} {inside.split('::')[-1]}", f"typedef {kind} {inside}"):
                code = []
        elif names and not inside:
            names = list(dict.fromkeys(n for n in names if n and not n.startswith("@")))
            names = names[:4] + (["…"] if len(names) > 4 else []) or ["enum"]
            parts.append(f"## {escaped(', '.join(names))}")
        if comment:
            parts.append(as_markdown(comment))
        if code:
            parts.append("\n".join(["```cpp", *code, "```"]))
        if len(parts) == 2:
            within = f", in namespace `{'`, `'.join(sorted(namespaces))}`" if namespaces else ""
            parts.append(f"`#include \"{name}\"`{within}.")
    return "\n\n".join(parts) + "\n"


def first_sentence(comments):
    text = " ".join(next(iter(comments), (0, [""]))[1]).split("  ")[0]
    return re.split(r"(?<=\.) ", text)[0]


def write(out):
    """Writes the pages beside the others."""
    found, namespaces = declarations()
    _, folders = order_and_headers()
    rows = []
    for name in folders:
        text = page(name, found.get(name, {}), namespaces.get(name, set()))
        parts = re.split(r"(```.*?```)", text, flags=re.S)  # no links in code
        parts[::2] = [LINK.sub(lambda m: m[0] if m[0] == name or m[0] not in folders else
                               f"[{m[0]}]({page_name(m[0])})", part) for part in parts[::2]]
        (out / page_name(name)).write_text("".join(parts))
        about = Header(name).free_comments(())
        rows.append(f"| [{escaped(name)}]({page_name(name)}) | {escaped(first_sentence(about))} |")
    (out / "cpp-reference.md").write_text("\n".join([
        "# C++ and C reference", "",
        "The public headers in dependency order, from their declarations and comments.", "",
        "| header | content |", "| --- | --- |", *rows, ""]))
