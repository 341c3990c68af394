"""File contents by kind. The sessions read their facts back out of the text, so a generator only has to look real."""
import json
import re

from . import names as n


def prose(r):
    return "\n".join(" ".join(n.sentence(r) for _ in range(r.randint(1, 2))) if r.random() < 0.85 else "" for _ in range(r.choice([1, 2, 3, 5, 12, 50])))


def lines_of_words(r):
    return "\n".join(" ".join(n.word(r) for _ in range(r.randint(1, 5))) for _ in range(r.choice([1, 2, 3, 5, 8, 20, 60])))


def markdown(r, title=None):
    out = []
    if r.random() < 0.12:
        out += [f"[![{n.word(r)}](https://{n.word(r)}.example/{n.stem(r)}.svg)](https://{n.word(r)}.example)", ""]
    title = title or r.choice([n.word(r), n.word(r).capitalize(), " ".join(n.word(r) for _ in range(r.randint(2, 4))), n.code_ident(r)])
    out += ["# " + title, ""] if r.random() < 0.93 else [title, "=" * len(title), ""]
    for _ in range(r.choice([1, 1, 2, 3, 5, 9])):
        out += [" ".join(n.sentence(r) for _ in range(r.randint(1, 2))) for _ in range(r.randint(1, 3))] + [""]
        k = r.random()
        if k < 0.5:
            out += [r.choice(["## ", "## ", "### "]) + " ".join(n.word(r) for _ in range(r.randint(1, 4))).capitalize(), ""]
        elif k < 0.7:
            out += [r.choice("-*") + " " + n.sentence(r, 2, 7) for _ in range(r.randint(2, 6))] + [""]
        elif k < 0.82:
            out += ["```" + r.choice(["", "sh", "cpp", "python"]), *[f"{n.word(r)} {r.choice(['--', '-', ''])}{n.word(r)} {n.stem(r)}" for _ in range(r.randint(1, 3))], "```", ""]
        elif k < 0.9:
            out += ["| " + " | ".join(n.word(r) for _ in range(3)) + " |", "|---|---|---|"] + ["| " + " | ".join(n.value(r) for _ in range(3)) + " |" for _ in range(r.randint(1, 5))] + [""]
    return "\n".join(out).strip() + "\n"


def cpp(r, header=False):
    out = []
    if r.random() < 0.5:
        out += ["// " + n.sentence(r), ""]
    if header:
        out += ["#pragma once", ""]
    out += ["#include " + r.choice(["<{}>", '"{}.h"', '"{}/x.h"']).format(r.choice(["vector", "string", "cstdint", "map", n.word(r)])) for _ in range(r.randint(0, 4))] + [""]
    if r.random() < 0.5:
        out += [f"namespace {n.word(r)} {{", ""]
    name = ""
    for _ in range(r.choice([1, 2, 3, 6])):
        k, name = r.random(), n.code_ident(r) if not name or r.random() < 0.85 else f"{name}{r.choice(['_', '2', 's', 'Impl', '_' + n.word(r)])}"
        if k < 0.25:
            out += [f"{r.choice(['class', 'struct'])} {name} {{", " public:"] + [f"  {r.choice(['int', 'bool', 'std::string', 'float'])} {n.code_ident(r)} = {n.number(r)};" for _ in range(r.randint(1, 4))] + ["};", ""]
        elif k < 0.4:
            out += [f"constexpr int {name} = {n.number(r)};", ""]
        elif k < 0.5:
            out += [f"#define {name.upper()} {n.number(r)}", ""]
        else:
            count = r.choice([0, 1, 1, 2]) if r.random() < 0.85 else r.randint(4, 9)  # the longest are cut in search results
            args = ", ".join(f"{r.choice(['int', 'const char*', 'bool', 'double', 'std::string_view'])} {n.code_ident(r)}" for _ in range(count))
            out += [f"{r.choice(['int', 'void', 'bool', 'float', 'static int'])} {name}({args}) {{"]
            out += ["  " + r.choice(["return {};", "{}();", "if (!{}) return;", "auto x = {};", "// {}"]).format(n.code_ident(r)) for _ in range(r.randint(1, 5))] + ["}", ""]
    return "\n".join(out)


def python(r):
    out = [f'"""{n.sentence(r)}"""'] if r.random() < 0.6 else []
    if r.random() < 0.2:
        out = ["#!/usr/bin/env python3"] + out
    out += [r.choice(["import {}", "from {} import " + n.code_ident(r)]).format(n.word(r)) for _ in range(r.randint(0, 4))] + [""]
    for _ in range(r.choice([1, 2, 4, 7])):
        k, name = r.random(), n.code_ident(r)
        if k < 0.25:
            out += [f"{name.upper()} = {r.choice([n.value(r), repr(n.value(r))])}", ""]
        elif k < 0.4:
            out += ["", f"class {name}:", f'    """{n.sentence(r)}"""', f"    {n.code_ident(r)} = {n.number(r)}", ""]
        else:
            out += ["", f"def {name}({', '.join(n.code_ident(r) for _ in range(r.randint(0, 3) if r.random() < 0.9 else r.randint(6, 12)))}):"]
            out += ["    " + r.choice(["return {}", "{}()", "if {}: pass", "x = {}", "# {}"]).format(n.code_ident(r)) for _ in range(r.randint(1, 4))] + [""]
    return "\n".join(out)


def shell(r):
    out = [r.choice(["#!/bin/sh", "#!/bin/bash", "#!/usr/bin/env bash"]), r.choice(["", "set -e", "# " + n.sentence(r)])]
    for _ in range(r.randint(1, 12)):
        out.append(r.choice([f"{n.code_ident(r).upper()}={n.value(r)}", f"export {n.code_ident(r).upper()}={n.value(r)}", f"echo \"{n.sentence(r, 2, 6)}\"", f"{n.word(r)} --{n.word(r)} {n.stem(r)}", f"# {n.sentence(r)}", ""]))
    return "\n".join(out)


def json_value(r, depth=0):
    k = r.random()
    if depth < 2 and k < 0.15:
        return {n.ident(r): json_value(r, depth + 1) for _ in range(r.randint(1, 4))}
    if depth < 2 and k < 0.25:
        return [json_value(r, 2) for _ in range(r.randint(0, 4))]
    return r.choice([n.number(r), n.value(r), n.word(r), r.random() < 0.5, None, n.sentence(r, 2, 5), round(r.random() * 100, 2)])


def json_text(r):
    return json.dumps({n.ident(r): json_value(r) for _ in range(r.choice([1, 3, 5, 8, 20]))}, indent=r.choice([2, 2, 4]), ensure_ascii=False)


def keyed(r, style=None):
    """key=value configuration in one of the usual spellings, with comments and sections."""
    style = style or r.choice(["{k} = {v}", "{k}={v}", "{k}: {v}", "{k} {v}", "{k}\t{v}", "{k}\t\t{v}", "{k} = \"{v}\"", "set {k} {v}"])
    told = r.random() < 0.25  # comments speak of the keys, and show values that do not count
    families = [n.ident(r) for _ in range(2)] if r.random() < 0.25 else []
    out = []
    for _ in range(r.choice([2, 3, 5, 8, 14, 45])):
        if r.random() < 0.14:
            out.append(r.choice(["# " + n.sentence(r), "", f"[{n.word(r)}]", "#" + n.ident(r) + " = " + n.value(r)]))
        m = re.match(r"(?:set )?([A-Za-z][\w-]*)", out[-1]) if out and r.random() < 0.12 else None  # a key easily taken for the one before
        key = f"{m.group(1)}{r.choice(['_max', '_min', '2', '_' + n.word(r)])}" if m else f"{r.choice(families)}_{n.word(r)}" if families and r.random() < 0.6 else n.ident(r)
        if told and r.random() < 0.5:
            out += [r.choice(["# {k} {s}", "# {s} {k} {s}", "#{l}", "# {l}", "#\n# {s}\n# {s} {k}\n#", "# {k}: {s}"]).format(k=key, s=n.sentence(r, 2, 8), l=style.format(k=key, v=n.value(r)))]
        out.append(style.format(k=key, v=n.value(r) if r.random() < 0.97 else " ".join(n.stem(r) for _ in range(r.randint(8, 24)))))
    return "\n".join(out)


def ini(r):
    return keyed(r, r.choice(["{k} = {v}", "{k}={v}"]))


def yaml(r):
    return keyed(r, "{k}: {v}")


def toml(r):
    return f"[package]\nname = \"{n.word(r)}\"\nversion = \"{n.version(r)}\"\n" + keyed(r, '{k} = "{v}"')


def csv(r):
    cols = [n.word(r) for _ in range(r.randint(2, 4))]
    rows = [[n.word(r)] + [str(n.number(r)) for _ in cols[1:]] for _ in range(r.choice([2, 3, 4, 6, 8, 15]))]
    return "\n".join(",".join(x) for x in [cols] + rows)


def numbers(r):
    return "\n".join(str(n.number(r) if r.random() < 0.85 else round(r.random() * 100, 2)) for _ in range(r.randint(2, 8)))


def ledger(r):
    return "\n".join(f"{n.word(r)}{r.choice([': ', ' '])}{n.number(r)}" for _ in range(r.randint(2, 8)))


def log(r):
    t = [2026, r.randint(1, 12), r.randint(1, 28)]
    return "\n".join(f"{t[0]}-{t[1]:02d}-{t[2]:02d} {r.randint(0, 23):02d}:{r.randint(0, 59):02d}:{r.randint(0, 59):02d} {r.choice(['INFO', 'WARN', 'ERROR', 'DEBUG'])} {n.code_ident(r)}: {n.sentence(r, 3, 8)}" for _ in range(r.choice([1, 3, 6, 12, 30, 80])))


def copyright_text(r):
    return (f"Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: {n.word(r)}\nSource: https://{n.word(r)}.example/{n.stem(r)}\n\n"
            f"Files: *\nCopyright: {r.randint(1990, 2026)} {n.invented(r).capitalize()} {n.invented(r).capitalize()} <{n.word(r)}@{n.word(r)}.org>\nLicense: {r.choice(['GPL-2+', 'MIT', 'BSD-3-clause', 'Apache-2.0', 'LGPL-2.1+'])}\n\n") + prose(r)


def licence(r):
    return r.choice(["MIT License", "Apache License", "BSD 3-Clause License", "GNU GENERAL PUBLIC LICENSE"]) + f"\n\nCopyright (c) {r.randint(2000, 2027)} {n.invented(r).capitalize()}\n\n" + prose(r)


def changelog(r):
    name = n.word(r)
    return "\n\n".join(f"{name} ({n.version(r)}-{r.randint(1, 5)}) {r.choice(['unstable', 'stable'])}; urgency={r.choice(['medium', 'low'])}\n\n  * {n.sentence(r)}\n  * {n.sentence(r)}\n\n -- {n.invented(r).capitalize()} <{n.word(r)}@{n.word(r)}.org>" for _ in range(r.choice([1, 2, 4])))


def hosts(r):
    return "\n".join(["127.0.0.1 localhost"] + [f"{r.randint(1, 254)}.{r.randint(0, 255)}.{r.randint(0, 255)}.{r.randint(1, 254)}{r.choice([' ', chr(9)])}{n.stem(r)}" for _ in range(r.randint(1, 8))])


def cmake(r):
    out = [f"cmake_minimum_required(VERSION 3.{r.randint(10, 30)})", f"project({n.word(r)}{r.choice(['', ' VERSION ' + n.version(r)])} LANGUAGES {r.choice(['CXX', 'C CXX', 'CXX CUDA'])})", ""]
    if r.random() < 0.6:
        out += [f"set(CMAKE_CXX_STANDARD {r.choice([14, 17, 20, 23])})"]
    out += [r.choice([f"set({n.code_ident(r).upper()} {n.value(r)})", f"add_subdirectory({n.dir_name(r)})", f"option({n.code_ident(r).upper()} \"{n.sentence(r, 2, 5)}\" {r.choice(['ON', 'OFF'])})",
                      f"add_library({n.word(r)} {n.stem(r)}.cc)", f"add_executable({n.word(r)} {n.stem(r)}.cc)", f"# {n.sentence(r)}"]) for _ in range(r.randint(1, 14))]
    return "\n".join(out)


def makefile(r):
    out = [f"{n.code_ident(r).upper()} {r.choice(['=', ':=', '?='])} {n.value(r)}" for _ in range(r.randint(1, 3))] + [""]
    for _ in range(r.randint(1, 4)):
        out += [f"{n.word(r)}: {n.word(r)}", f"\t{n.word(r)} -o {n.stem(r)} {n.file_name(r)}", ""]
    return "\n".join(out)


def package_json(r):
    return json.dumps({"name": n.word(r), "version": n.version(r), "description": n.sentence(r), "license": r.choice(["MIT", "Apache-2.0", "ISC"]), "scripts": {n.word(r): n.word(r) + " " + n.file_name(r) for _ in range(r.randint(1, 3))}}, indent=2)


def html(r):
    return f"<!DOCTYPE html>\n<html>\n<head><title>{n.sentence(r, 2, 5)}</title></head>\n<body>\n<h1>{n.word(r)}</h1>\n<p>{n.sentence(r)}</p>\n</body>\n</html>"


def todo(r):
    return "\n".join(f"- [{r.choice([' ', 'x'])}] {n.sentence(r, 3, 8)}" for _ in range(r.randint(1, 9)))


def alike(r):
    """Lines that differ in one word: long runs of these are where a copy loses its place."""
    head, tail, stem = r.choice([n.sentence(r, 1, 5), n.ident(r), f"{n.ident(r)} {n.ident(r)}", "#define " + n.code_ident(r)]), r.choice(["", n.sentence(r, 1, 5), f"= {n.value(r)}", n.ident(r)]), n.word(r)
    mid = lambda i: r.choice([f"({stem}{n.word(r)[:r.randint(0, 4)]})", f"{stem}_{n.word(r)}", f"{stem}{i}", f"{n.number(r)}", n.word(r)])
    return "\n".join(f"{head} {mid(i)} {tail}".strip() + ("\n" if r.random() < 0.06 else "") for i in range(r.randint(3, 14)))


BY_EXT = {"md": [markdown, markdown, markdown, todo], "txt": [prose, lines_of_words, numbers, ledger, todo], "rst": [markdown], "log": [log], "csv": [csv], "json": [json_text], "yaml": [yaml], "yml": [yaml],
          "toml": [toml], "ini": [ini], "cfg": [ini], "conf": [keyed], "xml": [html], "html": [html], "list": [lines_of_words], "dat": [numbers, lines_of_words], "py": [python], "sh": [shell],
          "h": [lambda r: cpp(r, True)], "hpp": [lambda r: cpp(r, True)]}
BY_NAME = {"CMakeLists.txt": cmake, "Makefile": makefile, "package.json": package_json, "copyright": copyright_text, "LICENSE": licence, "COPYING": licence, "hosts": hosts, "TODO": todo}
BINARY = {"gz", "png", "jpg", "bin", "so", "o", "a", "pdf", "zip", "xz", "woff2"}


def text_for(r, name):
    """Text for a file of this name; None when such a file is binary."""
    base, _, ext = name.rpartition(".")
    if ext in BINARY:
        return None
    if r.random() < 0.03:
        return ""
    if r.random() < 0.06 and ext not in ("csv", "json"):
        return alike(r)
    for key in (name, base):
        if key in BY_NAME:
            return BY_NAME[key](r)
    if name.startswith("README"):
        return markdown(r)
    if "changelog" in name.lower():
        return changelog(r)
    if ext in BY_EXT and base:
        return r.choice(BY_EXT[ext])(r)
    return cpp(r) if ext in n.CODE_EXT else r.choice([prose, keyed, lines_of_words, ledger])(r)
