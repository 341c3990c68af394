"""Trees that each break one rule, and one that breaks none: a rule that cannot fail is no rule."""
import pathlib
import tempfile

import rules

GOOD = {
    ".clang-format": "BasedOnStyle: Google\n",
    "src/base/CMakeLists.txt": "sluice_library(base SOURCES a.cc)\n",
    "src/base/a.h": "#pragma once\n/// Says why.\n#include <cstdint>\nint32_t a();\n",
    "src/base/a.cc": '#include "base/a.h"\nint32_t a() { return 1; }  // "exit(1)" is text\n',
    "src/base/check.cc": "#include <cstdlib>\nvoid stop() { std::abort(); }\n",
    "src/ops/b.h": '#pragma once\n/// Says why.\n#include "base/a.h"\nint32_t b();\n',
    "src/ops/cpu/linear_x.cc": '#include "ops/b.h"\nint32_t b() { return a(); }\n',
    "src/ops/CMakeLists.txt": "sluice_library(ops SOURCES cpu/linear_x.cc)\n",
    "src/ops/cpu/linear.log.md": "| date |\n",
    "src/apps/CMakeLists.txt": "add_executable(sluice main.cc)\n",
    "src/apps/main.cc": '#include <cstdio>\nint main() { std::printf("%d", 1); }\n',
}
GOOD["src/base/CMakeLists.txt"] = "sluice_library(base SOURCES a.cc check.cc)\n"

# rule -> files to add or replace; None removes one.
BROKEN = {
    "include_direction": [{"src/base/a.cc": '#include "base/a.h"\n#include "ops/b.h"\n'}, {"src/ops/b.h": '#pragma once\n/// Why.\n#include "model/m.h"\n'},
                          {"src/ops/b.h": '#pragma once\n/// Why.\n#include "b2.h"\n'}, {"src/odd/x.h": "#pragma once\n/// Why.\n"}],
    "headers_compile_alone": [{"src/base/lone.h": "#pragma once\n/// Why.\nstd::string lone();\n"}],
    "sources_are_formatted": [{"src/base/a.cc": '#include "base/a.h"\n  int  a( );\n'}],
    "headers_are_guarded": [{"src/base/a.h": "/// Why.\nint a();\n"}],
    "headers_are_documented": [{"src/base/a.h": "#pragma once\nint a();\n"}],
    "library_is_silent": [{"src/ops/cpu/linear_x.cc": body} for body in
                          ('void f() { getenv("X"); }\n', 'void f() { std::printf("x"); }\n', "void f() { std::cerr << 1; }\n", "void f() { exit(1); }\n",
                           "void f() { std::abort (); }\n", "void f() { throw 1; }\n", "char c = '\"'; void f() { exit(1); } char d = '\"';\n")],
    "files_are_short": [{"src/base/a.cc": '#include "base/a.h"\n' + "\n" * 600}],
    "kernels_have_logs": [{"src/ops/cpu/linear.log.md": None}, {"src/ops/cpu/gdn_step.cc": "\n"}],
    "no_machine_paths": [{"src/base/a.cc": "// see /wo" "rk/main/x\n"}, {"run": "cd /ho" "me/someone/x\n"}, {"tests/requirements.txt": "--index-url https://py" "pi.example/simple\n"}],
    "no_marks_of_unfinished_work": [{"src/base/a.cc": "// TO" "DO finish\n"}, {"src/base/a.cc": "int x;  // FIX" "ME: wrong\n"}, {"tools/a.py": "# TO" "DO\n"},
                                    {"src/base/a.cc": 'auto s = "not impl' 'emented";\n'}],
    "floats_are_strict": [{"src/base/CMakeLists.txt": "a.cc check.cc add_compile_options(-ffast" "-math)\n"}],
    "no_dead_files": [{"src/base/dead.cc": '#include "base/a.h"\n'}, {"src/base/dead.h": "#pragma once\n/// Why.\n"}, {"src/base/table.inc": "1,\n"}],
    "no_large_files": [{"docs/big.bin": "x" * (rules.BYTES_MAX + 1)}],
}


def violations(rule, files):
    with tempfile.TemporaryDirectory() as temp:
        for name, text in files.items():
            if text is not None:
                path = pathlib.Path(temp) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        return list(rule(rules.Tree(temp)))


def check(rule):
    """What is wrong with a rule itself."""
    if found := violations(rule, GOOD):
        yield f"refuses a good tree: {found[0]}"
    if not BROKEN.get(rule.__name__):
        yield "has no control"
    for change in BROKEN.get(rule.__name__, []):
        if not violations(rule, {**GOOD, **change}):
            yield f"accepts a tree with {change}"[:300]
