"""The reference of the Python module, from signatures and docstrings, without importing it. What is
compiled has them in _gradus.pyi, which the module's build writes."""

import ast
import re
import textwrap

from comments import as_markdown, escaped
from folders import ROOT

MODULES = ("gradus", "gradus.torch", "gradus.ase", "gradus.openmm")
INDENT = " " * 4


class Module:
    def __init__(self, file):
        self.file, self.tree = file, ast.parse(file.read_text())

    def imports(self):
        """{name: (the file beside this one that it is from, its name there)}."""
        return {alias.asname or alias.name: (node.module, alias.name) for node in self.tree.body
                if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module
                for alias in node.names}

    def public(self):
        listed = next(ast.literal_eval(node.value) for node in self.tree.body
                      if ast.unparse(node).startswith("__all__"))
        brought = self.imports() if self.file.name == "__init__.py" else {}
        return sorted({*listed, *(name for name in brought if not name.startswith("_"))})

    def definitions(self, name):
        """The nodes that define a name: several of an overloaded function, none of a constant."""
        return [node for node in self.tree.body if getattr(node, "name", None) == name]


def decorators(node):
    return [ast.unparse(d) for d in node.decorator_list]


def signature(node):
    if isinstance(node, ast.ClassDef):
        bases = [ast.unparse(b) for b in node.bases if not ast.unparse(b).startswith("_")]
        return f"class {node.name}" + (f"({', '.join(bases)})" if bases else "")
    result = ast.unparse(node.returns) if node.returns else "Any"
    if "property" in decorators(node):
        return f"{node.name}: {result}"
    given = re.sub(r"(?<! )=", " = ", ast.unparse(node.args))
    if len(node.name + given + result) > 80:
        given = "\n" + textwrap.fill(given, 90, initial_indent=INDENT, subsequent_indent=INDENT) + "\n"
    marks = [f"@{d}\n" for d in decorators(node) if d in ("staticmethod", "classmethod")]
    return f"{''.join(marks)}def {node.name}({given}) -> {result}"


def described(nodes):
    """The signatures of what the nodes define, and its docstring."""
    overloads = [n for n in nodes if not isinstance(n, ast.ClassDef)
                 and {"overload", "typing.overload"} & {*decorators(n)}]
    docs = [d for d in map(ast.get_docstring, nodes) if d]
    return [signature(n) for n in overloads or nodes[:1]], docs[0] if docs else ""


def members(node):
    """(signatures, docstring) of a class's public members, fields first."""
    fields, by_name = [], {}
    for member in node.body:
        if isinstance(member, (ast.Assign, ast.AnnAssign)):
            if re.match(r"[a-z]", row := ast.unparse(member)):
                fields.append(row)
        elif isinstance(member, ast.FunctionDef) and re.match(r"[a-z]|__(init|call)__", member.name):
            if not any(d.endswith(".setter") for d in decorators(member)):
                by_name.setdefault(member.name, []).append(member)
    return ([(fields, "")] if fields else []) + [described(nodes) for nodes in by_name.values()]


def entry(title, nodes):
    """Markdown of a name. Members without a docstring share a block."""
    parts, rows = [f"## {escaped(title)}"], []
    several = [described(nodes), *(members(nodes[0]) if isinstance(nodes[0], ast.ClassDef) else [])]
    for signatures, doc in several:
        if doc and rows and signatures is not several[0][0]:
            parts.append("\n".join(["```python", *rows, "```"]))
            rows = []
        rows += signatures
        if doc:
            parts += ["\n".join(["```python", *rows, "```"]), as_markdown(doc.split("\n"))]
            rows = []
    return parts + (["\n".join(["```python", *rows, "```"])] if rows else [])


def write(out, stubs):
    """Writes the page beside the others. `stubs`: the folder of _gradus.pyi, or None."""
    parts = ["# Python reference",
             "The public names of the module, from their signatures and docstrings. "
             "[Operators](operators.md) lists the functions of `gradus.ops`."]
    for name in MODULES:
        path = ROOT / "python" / name.replace(".", "/")
        module = Module(path / "__init__.py" if path.is_dir() else path.with_suffix(".py"))
        parts += [f"## Module {name}", as_markdown(ast.get_docstring(module.tree).split("\n"))]
        files, others = {None: module, "_gradus": stubs and Module(stubs / "_gradus.pyi")}, []
        for public in module.public():
            file, there = module.imports().get(public, (None, public))
            if file not in files:
                files[file] = Module(module.file.parent / f"{file}.py")
            nodes = files[file].definitions(there) if files[file] else []
            if nodes:
                parts += entry(f"{name}.{public}", nodes)
            else:
                others.append(f"`{public}`")
        if others:
            parts += [f"## Other names of {name}", ", ".join(others) + "."]
            if not stubs:
                parts.append("The signatures of the compiled module were not there when this page "
                             "was made. `help(gradus.NAME)` prints them.")
    (out / "python-reference.md").write_text("\n\n".join(parts) + "\n")
