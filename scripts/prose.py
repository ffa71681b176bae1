"""Checks the prose of README.md, HACKING.md and docs/ outside of code.

    scripts/check-prose [PAGE.md]...    (without pages: all of them but those of SKIPPED)

Prints `file:line: phrase -> remedy` for each phrase of PHRASES and for each sentence of more than
MOST_WORDS words, and exits 1 if there is one.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
MOST_WORDS = 40

# Pages whose prose is not checked.
SKIPPED = {
    # Decision records: each states what was decided at its time, so it speaks of history.
    "docs/decisions.md",
}

# Pattern (case is ignored) -> remedy.
PHRASES = [
    # Diary words: a page describes the present state.
    (r"today|nowadays", "drop it: a page describes the present state"),
    (r"now(?! and then)", "drop it: a page describes the present state"),
    (r"no longer|not any ?more|any ?more", "state what holds"),
    (r"so far|as yet|not yet|(?<!and )yet", "state the limit: 'not supported', 'not tested on a GPU'"),
    (r"used to be|formerly|in the past|of late", "state what holds; history is in git"),
    (r"as ever|as always|as before", "say what happens"),
    (r"for good", "'permanently'"),
    # Riddles for a term of the field.
    (r"what there is (of|on)|what is there", "name the things: 'lists CUDA devices'"),
    (r"there is none of it", "name what is missing"),
    (r"of ours|ours|our|our own", "name the subject: 'Gradus', 'the library'"),
    (r"of (one|his)'?s own|of yours|of your own", "'your', 'custom'"),
    (r"has no say|have no say", "'does not affect'"),
    (r"what is more( than)?|is more than that", "'higher orders', 'anything larger'"),
    (r"(is|are) looked (for|at|up)|looked for (is|are)|look(s|ed)? at", "'Gradus searches for', 'reads', 'checks'"),
    (r"behind the runs?|compiled behind|runs? behind", "'compiled in the background'"),
    (r"the bits do not depend|the same bits|the (CPU|device|engine)'s bits", "'bit-identical'"),
    (r"behind (any|some)body's back|without a word", "'silently'"),
    (r"(is|are|was|were) refused|refuses?", "'rejected', 'Gradus rejects', 'fails with an error'"),
    (r"(is|are|was|were)? ?held against|holds .{1,40} against", "'compared with', 'checked against'"),
    (r"whoever|who(se)? (wants|asks|links|watches|runs)", "name the actor: 'the caller', 'a program that'"),
    (r"somebody|anybody|nobody|nobody's", "name the actor"),
    (r"wants?|wanted", "'needs', 'requires', 'requested'"),
    (r"is fine|are fine", "'is valid', 'is allowed'"),
    (r"says? so|said so", "say what is reported: 'fails with an error that names …'"),
    (r"knows? nothing (of|about)", "'does not know', 'opaque'"),
    (r"lies?|lay", "'is stored', 'resides', 'layout'"),
    (r"let go|gives? back|given back|goes back", "'frees', 'returns'"),
    (r"would do", "'suffices'"),
    (r"meanwhile", "say when"),
    (r"anew|oftener", "'again', 'more often'"),
    (r"and (its|their|the) like", "name them, or 'and similar'"),
    (r"all but|but for|nothing but", "'except'"),
    (r"goes wrong|is wrong", "'fails', 'is invalid'"),
    (r"is told( of)?|are told( of)?", "'is notified of', 'receives'"),
    (r"it is (so|the) that|that is why it is so", "say the fact"),
    (r"tells? the same|the same of", "name it again"),
]
PATTERNS = [(re.compile(rf"\b(?:{pattern})\b", re.I), remedy) for pattern, remedy in PHRASES]

CODE = re.compile(r"(`+)(?:(?!\1).)+\1", re.S)
LINK = re.compile(r"\]\([^)]*\)")
COMMENT = re.compile(r"<!--.*?-->", re.S)
FENCE = re.compile(r"^ *```")
NEW_BLOCK = re.compile(r"\s*([-*] |\d+\. |#+ |\||$)")
SENTENCE_END = re.compile(r"(?<!e\.g)(?<!i\.e)[.!?][)*\"']*(?=\s+[\W\d]*[A-Z`\x00]|\s*$)")
LABEL = re.compile(r"^\s*(?:[-*] |\d+\. |#+ )?")


def blanked(match):
    """Code is no prose: a word in its place, and as many lines."""
    return "\x00" + "\n" * match[0].count("\n")


def prose_blocks(text):
    """Paragraphs, list items, headings and cells of tables, each with the line it begins at."""
    lines, fenced = [], False
    text = COMMENT.sub(lambda m: "\n" * m[0].count("\n"), text)
    for line in text.split("\n"):
        if FENCE.match(line):
            fenced = not fenced
            line = ""
        lines.append("" if fenced else line)
    # Indented text after a blank line is code, too, unless it belongs to a list item.
    listed = False
    for n, line in enumerate(lines):
        listed = bool(re.match(r"\s*([-*]|\d+\.) ", line)) or (listed and not re.match(r"\S", line))
        if line.startswith("    ") and not listed:
            lines[n] = ""
    text = LINK.sub(lambda m: "]" + "\n" * m[0].count("\n"), "\n".join(lines))
    block, start = [], 1
    for n, line in enumerate([*text.split("\n"), ""], 1):
        if NEW_BLOCK.match(line):
            if block:
                yield start, CODE.sub(blanked, "\n".join(block))
            block = []
            if line.lstrip().startswith("|"):
                for cell in CODE.sub(blanked, line).split("|"):
                    yield n, cell
                continue
        if line.strip():
            start = start if block else n
            block.append(line)


def faults_of(text):
    for start, block in prose_blocks(text):
        flat = re.sub(r"\s", " ", block)

        def line_at(place):
            return start + block.count("\n", 0, place)

        for pattern, remedy in PATTERNS:
            for match in pattern.finditer(flat):
                yield line_at(match.start()), match[0], remedy
        at = LABEL.match(flat).end()
        for end in [m.end() for m in SENTENCE_END.finditer(flat)] + [len(flat)]:
            sentence = flat[at:end]
            words = len(re.findall(r"[\w\x00][\w\x00'’.-]*", sentence))
            if words > MOST_WORDS:
                begin = " ".join(sentence.replace("\x00", "…").split()[:6])
                yield (line_at(at + len(sentence) - len(sentence.lstrip())),
                       f"a sentence of {words} words: '{begin} …'", "split it: one idea a sentence")
            at = end


def pages():
    if len(sys.argv) > 1:
        for name in sys.argv[1:]:
            if not pathlib.Path(name).is_file():
                sys.exit(f"error: {name}: there is no such page")
        return [pathlib.Path(name).resolve() for name in sys.argv[1:]]
    every = [ROOT / "README.md", ROOT / "HACKING.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [page for page in every if str(page.relative_to(ROOT)) not in SKIPPED]


def main():
    failed = False
    for page in pages():
        name = page.relative_to(ROOT) if page.is_relative_to(ROOT) else page
        for line, phrase, remedy in sorted(faults_of(page.read_text(encoding="utf-8"))):
            print(f"{name}:{line}: {phrase} -> {remedy}")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
