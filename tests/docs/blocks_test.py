"""Runs every code block of README.md, HACKING.md and docs/: what they show is true.

    blocks_test.py [PAGE.md]...    (all of them, if none is given)

A fence says what its block is:

    ```ir swing.ir        a program: saved under that name in the page's folder, and verified
    ```sh                 commands, run there; `gradus` is the tool that was built; a comment
                          before the fence, <!-- setup ... -->, brings what they need
    ```text output        what the commands or the script above printed, to the letter
    ```ir swing.ir fails  a program that `gradus verify` rejects
    ```sh fails [STATUS]  commands, the last of which fails with exit status STATUS, or 1
    ```python fails       code that raises
                          An output block follows each of these three. It has the whole message:
                          both outputs of the commands, and the exception without its traceback
    ```cpp                statements, compiled into a function and run, after such a comment's
    ```cpp continues      more statements of the same function
    ```cpp declarations   what stands outside of functions, seen by the page's blocks after it
    ```python             run where the Python module is built ($GRADUS_PYTHON is its folder)
    ```python NAME.py     a script, run so under that name in the page's folder
    ```text               nothing to run
    ```LANGUAGE not run: WHY

Anything else is an error. Runs in a folder of its own. $GRADUS is the tool, $GRADUS_LIBRARY the
shared library, $GRADUS_SOURCE_DIR the tree, $CXX and $CXXFLAGS a compiler.
"""

import os
import pathlib
import re
import subprocess
import sys

SOURCE = pathlib.Path(os.environ["GRADUS_SOURCE_DIR"])
GRADUS = pathlib.Path(os.environ["GRADUS"])
HERE = pathlib.Path.cwd()
FENCE = re.compile(r"^( *)```(.*)$")
SETUP = re.compile(r"<!-- setup\n(.*?)-->", re.S)

faults = []
counts = {}


class Block:
    def __init__(self, page, line, info, text, setup):
        self.page, self.line, self.text, self.setup = page, line, text, setup
        self.language, _, self.says = info.strip().partition(" ")
        self.where = f"{page.relative_to(SOURCE)}:{line}"

    def fail(self, message):
        faults.append(f"{self.where}: {message}")

    def status(self):
        """The exit status that its commands have to give."""
        fails = re.fullmatch(r"(?:[\w-]+\.ir )?fails(?: (\d+))?", self.says)
        return int(fails[1] or 1) if fails else 0

    def count(self, kind=None):
        kind = kind or self.language
        counts[kind] = counts.get(kind, 0) + 1


def blocks_of(page):
    """The page's blocks in order, without the indentation of their fences."""
    lines = page.read_text().split("\n")
    blocks, at, before = [], 0, 0
    while at < len(lines):
        fence = FENCE.match(lines[at])
        if not fence:
            at += 1
            continue
        indent, info = fence.groups()
        end = at + 1
        while not lines[end].startswith(indent + "```"):
            end += 1
        text = "\n".join(line[len(indent):] for line in lines[at + 1:end]) + "\n"
        setups = SETUP.findall("\n".join(lines[before:at]))
        blocks.append(Block(page, at + 1, info, text, setups[-1] if setups else ""))
        at = before = end + 1
    return blocks


def environment():
    path = f"{GRADUS.parent}{os.pathsep}{os.environ['PATH']}"
    # Where the tool is sanitised, memory that cannot be had is the tool's error.
    asan = os.environ.get("ASAN_OPTIONS", "") + ":allocator_may_return_null=1"
    return {**os.environ, "PATH": path, "LC_ALL": "C.UTF-8", "EXAMPLES": str(SOURCE / "examples"),
            "ASAN_OPTIONS": asan}


def run_commands(block, folder):
    """What they printed: of commands that fail, on standard error, too."""
    for text in filter(None, (block.setup, block.text)):
        status = block.status() if text is block.text else 0
        run = subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=folder, text=True,
                             stdin=subprocess.DEVNULL, capture_output=True, env=environment())
        if run.returncode != status:
            block.fail(f"exit status {run.returncode}\n{run.stdout}{run.stderr}")
    return run.stdout + run.stderr if status else run.stdout


def save_program(block, folder):
    """What `gradus verify` printed of it."""
    name = block.says.removesuffix(" fails")
    if not re.fullmatch(r"[\w-]+\.ir", name):
        block.fail("a program needs a name: ```ir NAME.ir")
        return None
    (folder / name).write_text(block.text)
    run = subprocess.run([GRADUS, "verify", name], cwd=folder, text=True, capture_output=True)
    if run.returncode != block.status():
        block.fail(f"exit status {run.returncode}\n{run.stderr}")
    return run.stdout + run.stderr


def same(a, b):
    def tidy(text):
        return [line.rstrip() for line in text.strip("\n").split("\n")]
    return tidy(a) == tidy(b)


def exception_of(printed):
    """The exception that ended a run of Python, without its traceback, whose lines are indented."""
    _, _, last = printed.rpartition("Traceback (most recent call last):\n")
    return re.sub(r"\A(?: .*\n)*", "", last)


def run_python(block, folder):
    """What it printed, or the exception of code that raises; None where there is no module."""
    module = os.environ.get("GRADUS_PYTHON", "")
    if not module:
        block.count("python, left out: there is no module")
        return None
    what = ["-c", block.text]
    if block.says.endswith(".py"):
        (folder / block.says).write_text(block.text)
        what = [block.says]
    run = subprocess.run([sys.executable, *what], cwd=folder, text=True,
                         capture_output=True, env={**environment(), "PYTHONPATH": module})
    if run.returncode != block.status():
        block.fail(f"exit status {run.returncode}\n{run.stdout}{run.stderr}")
    block.count()
    return exception_of(run.stderr) if block.status() else run.stdout


class Program:
    """The C++ blocks of all pages: one program, a function for each."""

    def __init__(self):
        self.scopes = []  # (block, folder, declarations before, statements)
        self.declarations = ""

    def begin_page(self):
        self.declarations = ""

    def add(self, block, folder):
        code = f'#line {block.line + 1} "{block.where.rsplit(":", 1)[0]}"\n{block.text}'
        if block.says == "declarations":
            self.declarations += block.setup + code
        elif block.says == "continues":
            if not self.scopes or self.scopes[-1][0].page != block.page:
                block.fail("there is nothing to go on from")
                return
            self.scopes[-1][3].extend([block.setup, code])
        else:
            self.scopes.append((block, folder, self.declarations, [block.setup, code]))
            self.declarations = ""

    def source(self):
        out, functions = "", ""
        for n, (_, _, declarations, statements) in enumerate(self.scopes):
            body = "\n".join(statements)
            includes = re.findall(r"^#include .*$", declarations + body, re.M)
            out += "\n".join(includes) + "\n"
            strip = re.compile(r"^#include .*$", re.M)
            functions += (f"namespace block{n} {{\nusing namespace gradus;\n"
                          f"{strip.sub('', declarations)}\nvoid run() {{\n{strip.sub('', body)}\n}}\n"
                          "}\n")
        calls = "".join(
            f'    std::filesystem::current_path("{folder}");\n    where = "{block.where}";\n'
            f"    block{n}::run();\n" for n, (block, folder, _, _) in enumerate(self.scopes))
        return (f'#include <array>\n#include <filesystem>\n#include <cstdio>\n{out}'
                f'#include "gradus/gradus.h"\n{functions}#line 1 "main"\nint main() {{\n'
                f'  const char* where = "";\n  try {{\n{calls}  }} catch (const std::exception& e) '
                '{\n    std::fprintf(stderr, "%s: %s\\n", where, e.what());\n    return 1;\n  }\n}\n')

    def run(self):
        if not self.scopes:
            return
        library = pathlib.Path(os.environ["GRADUS_LIBRARY"])
        (HERE / "blocks.cpp").write_text(self.source())
        command = [os.environ.get("CXX", "c++"), "-std=c++20", "-ffp-contract=off", "-w",
                   *os.environ.get("CXXFLAGS", "").split(), f"-I{SOURCE}", f"-I{SOURCE}/include", "blocks.cpp", "-o",
                   "blocks", str(library), "-lfmt", "-pthread", f"-Wl,-rpath,{library.parent}"]
        compiled = subprocess.run(command, cwd=HERE, text=True, capture_output=True)
        if compiled.returncode:
            faults.append(f"C++ blocks do not compile:\n{compiled.stderr[:6000]}")
            return
        ran = subprocess.run(["./blocks"], cwd=HERE, text=True, capture_output=True)
        if ran.returncode:
            faults.append(f"C++ blocks: {ran.stderr or ran.returncode}")


def run_page(page, program):
    folder = HERE / page.relative_to(SOURCE).with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    program.begin_page()
    printed, left_out = None, False
    blocks = blocks_of(page)
    for block, following in zip(blocks, [*blocks[1:], None]):
        if block.status() and not (following and following.says == "output"):
            block.fail("an output block has to follow, with the message")
        if block.says.startswith("not run"):
            if not re.match(r"not run: \S+ \S+", block.says):
                block.fail("say why it is not run")
            block.count("not run")
        elif block.language == "ir":
            printed, left_out = save_program(block, folder), False
            block.count()
        elif block.language == "sh" and re.fullmatch(r"(fails( \d+)?)?", block.says):
            printed, left_out = run_commands(block, folder), False
            block.count()
        elif block.language == "text" and block.says == "output":
            if left_out:
                block.count("output, left out: there is no module")
                continue
            if printed is None or not same(printed, block.text):
                block.fail(f"the commands above print\n{printed}")
            block.count("output")
        elif block.language == "cpp" and block.says in ("", "continues", "declarations"):
            program.add(block, folder)
            block.count()
        elif block.language == "python" and re.fullmatch(r"([\w-]+\.py|fails)?", block.says):
            printed = run_python(block, folder)
            left_out = printed is None
        elif block.language != "text" or block.says:
            block.fail(f"a fence says what its block is, not '{block.language} {block.says}'")


def main():
    pages = [SOURCE / p for p in sys.argv[1:]] or [
        SOURCE / "README.md", SOURCE / "HACKING.md", *sorted((SOURCE / "docs").glob("*.md"))]
    program = Program()
    for page in pages:
        run_page(page, program)
    program.run()
    print(", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())))
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
