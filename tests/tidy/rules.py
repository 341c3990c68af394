"""The rules of the tree. Each is a function of a Tree that yields "file: what is wrong"."""
import fnmatch
import os
import pathlib
import re
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor

LEVELS = {"base": 0, "model": 1, "tokenizer": 1, "ops": 1, "chat": 2, "grammar": 2, "state": 2, "forward": 3, "decode": 4, "engine": 5,
          "server": 6, "verify": 6, "apps": 7}
KERNEL_FAMILIES = ["linear", "gdn", "attention"]
LINES_MAX = 600
BYTES_MAX = 2 << 20
SOURCE = (".cc", ".h", ".cu", ".cuh", ".inc")
SCRIPTS = (".py", ".sh", ".cmake", ".txt")

# Spelled in pieces so that this file keeps its own rules.
MACHINE_PATH = re.compile("/wo" r"rk/(main|shared)\b|(?<![\w.])/ro" r"ot/|/ho" r"me/[a-z]+/|/Us" r"ers/")
REGISTRY = re.compile(r"https?://[^\s\"')]*(" "py" r"pi|arti" r"factory|nex" r"us|regis" r"try|mir" r"ror|pro" r"xy)")
MARK = re.compile(r"(//|#|/\*|\"\"\")\s*(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b|\b(TO" r"DO|FIX" r"ME)\s*[:(]|[Nn]ot impl" r"emented")
FORBIDDEN = re.compile(r"\b(getenv|setenv|printf|fprintf|vprintf|puts|putchar|fputs|exit|_exit|quick_exit|abort)\s*\(|\bstd::(cout|cerr|clog)\b|\bthrow\b")
LOOSE_FLOATS = re.compile(r"-ffast-math|-Ofast|-funsafe-math|-fassociative-math|-ffp-contract=fast|\bfast_math\b")


class Tree:
    """The files under version control, or all of them where there is none."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.files = sorted(self._list())

    def _list(self):
        if (self.root / ".git").exists():
            out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=self.root, stdout=subprocess.PIPE, check=True, text=True).stdout
            return [f for f in out.splitlines() if (self.root / f).is_file()]
        found = []
        for folder, dirs, names in os.walk(self.root):
            dirs[:] = [d for d in dirs if d not in ("build", ".venv", ".git", "__pycache__")]
            found += [str((pathlib.Path(folder) / n).relative_to(self.root)) for n in names]
        return found

    def text(self, name):
        """Empty for a file that is gone since it was listed: people edit while this runs."""
        try:
            return (self.root / name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def under(self, folder, suffixes):
        return [f for f in self.files if f.startswith(folder) and f.endswith(suffixes)]


def code_of(text):
    """The text without comments and the insides of literals, lines kept."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.S)
    return pattern.sub(lambda m: "\n" * m.group(0).count("\n") if m.group(0).startswith("/") else '""' + "\n" * m.group(0).count("\n"), text)


def matches(tree, files, pattern, prepare=lambda text: text):
    for name in files:
        for number, line in enumerate(prepare(tree.text(name)).split("\n"), 1):
            if found := pattern.search(line):
                yield f"{name}:{number}: {found.group(0).strip()}"


def written_files(tree):
    """What people write: no model, no recorded values, no data tables."""
    return [f for f in tree.files if f.endswith(SOURCE + SCRIPTS + (".md", ".json", ".yml")) and not f.startswith(("models/", "tests/golden/")) or "." not in f.rpartition("/")[2]]


def include_direction(tree):
    """Includes point to lower levels; folders of one level do not know each other."""
    for name in tree.under("src/", SOURCE):
        folder = name.split("/")[1]
        if folder not in LEVELS:
            yield f"{name}: folder {folder} has no level"
            continue
        for included in re.findall(r'^\s*#\s*include\s+"([^"]+)"', tree.text(name), re.M):
            other = included.split("/")[0]
            if other not in LEVELS:
                yield f"{name}: \"{included}\" does not name its folder"
            elif other != folder and LEVELS[other] >= LEVELS[folder]:
                yield f"{name}: {folder} (level {LEVELS[folder]}) includes \"{included}\" (level {LEVELS[other]})"


def headers_compile_alone(tree):
    """A header that some source includes first is compiled so by the build; the others are compiled here."""
    first = set()
    for name in tree.under("src/", (".cc",)) + tree.under("tests/", (".cc",)) + tree.under("bench/", (".cc",)):
        if found := re.search(r'^\s*#\s*include\s+["<]([^">]+)', tree.text(name), re.M):
            first.add(found.group(1))
    alone = [h for h in tree.under("src/", (".h",)) if h.removeprefix("src/") not in first]

    def compile_one(name):
        with tempfile.NamedTemporaryFile("w", suffix=".cc") as unit:
            unit.write(f'#include "{name.removeprefix("src/")}"\n')
            unit.flush()
            run = subprocess.run(["g++", "-std=c++20", "-fsyntax-only", f"-I{tree.root}/src", f"-I{tree.root}", unit.name], stderr=subprocess.PIPE, text=True)
        return None if run.returncode == 0 else f"{name}: {next((x for x in run.stderr.splitlines() if 'error' in x), run.stderr.strip())}"

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from filter(None, pool.map(compile_one, alone))


def sources_are_formatted(tree):
    """As clang-format writes them with the tree's .clang-format."""
    files = [f for f in tree.files if f.endswith((".cc", ".h", ".cu", ".cuh"))]

    def unformatted(batch):
        out = subprocess.run(["clang-format", "--dry-run", *batch], cwd=tree.root, stderr=subprocess.PIPE, text=True).stderr
        return sorted({line.split(":")[0] for line in out.splitlines() if "[-Wclang-format-violations]" in line})

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for names in pool.map(unformatted, [files[i:i + 20] for i in range(0, len(files), 20)]):
            yield from names


def headers_are_guarded(tree):
    for name in tree.under("src/", (".h", ".cuh")) + tree.under("tests/", (".h",)):
        if not re.search(r"^#pragma once$", tree.text(name), re.M):
            yield f"{name}: no #pragma once"


def headers_are_documented(tree):
    """A header says more than its names do."""
    for name in tree.under("src/", (".h", ".cuh")):
        if not re.search(r"^\s*//[/ ]", tree.text(name), re.M):
            yield f"{name}: no doc block"


def library_is_silent(tree):
    """The library does not print, end the process, read the environment or throw; the check that stops on a bug does."""
    files = [f for f in tree.under("src/", SOURCE) if not f.startswith("src/apps/") and f != "src/base/check.cc"]
    yield from matches(tree, files, FORBIDDEN, code_of)


def files_are_short(tree):
    for name in tree.files:
        if name.endswith((".cc", ".h", ".cu", ".cuh", ".py", ".sh")) or name in ("run", "check"):
            if (count := tree.text(name).count("\n")) > LINES_MAX:
                yield f"{name}: {count} lines, the limit is {LINES_MAX}"


def kernels_have_logs(tree):
    """Each family of CPU kernels keeps what was tried."""
    for family in KERNEL_FAMILIES:
        kernels = [f for f in tree.under("src/ops/cpu/", (".cc",)) if f.rpartition("/")[2].startswith(family)]
        if kernels and f"src/ops/cpu/{family}.log.md" not in tree.files:
            yield f"src/ops/cpu/{family}.log.md is missing; {kernels[0]} is there"


def no_machine_paths(tree):
    yield from matches(tree, written_files(tree), MACHINE_PATH)
    yield from matches(tree, written_files(tree), REGISTRY)


def no_marks_of_unfinished_work(tree):
    yield from matches(tree, [f for f in written_files(tree) if f.endswith(SOURCE + SCRIPTS) or "." not in f], MARK)


def floats_are_strict(tree):
    yield from matches(tree, [f for f in tree.files if f.endswith(("CMakeLists.txt", ".cmake", "CMakePresets.json"))], LOOSE_FLOATS, lambda t: re.sub(r"#[^\n]*", "", t))


def is_globbed(base, text):
    return any(fnmatch.fnmatch(base, pattern) for pattern in re.findall(r"(?<=\s)[\w*]*\*[\w*]*\.cc\b", text))


def no_dead_files(tree):
    """Every source is named in a build file, every header and table is included, every Python module is used."""
    lists = {f: tree.text(f) for f in tree.files if f.endswith(("CMakeLists.txt", ".cmake"))}
    sources = [f for f in tree.files if f.endswith((".cc", ".cu", ".h", ".cuh", ".inc"))]
    included = set()
    for name in sources:
        included |= set(re.findall(r'#\s*include\s+"([^"]+)"', tree.text(name)))
    for name in sources:
        folder, _, base = name.rpartition("/")
        if name.endswith((".cc", ".cu")):
            stem = base.rpartition(".")[0]
            near = [text for path, text in lists.items() if (folder + "/").startswith(path.rpartition("/")[0] + "/") and "/" in path]
            if not any(re.search(rf"(?<![\w-])({re.escape(base)}|{re.escape(stem)})(?![\w-])", text) or is_globbed(base, text) for text in near):
                yield f"{name}: in no CMakeLists.txt"
        elif name.removeprefix("src/") not in included and name not in included and base not in included:
            yield f"{name}: included nowhere"


def no_large_files(tree):
    for name in tree.files:
        if not name.startswith(("models/", "tests/golden/")) and (size := (tree.root / name).stat().st_size) > BYTES_MAX:
            yield f"{name}: {size} bytes, the limit is {BYTES_MAX}"


ALL = [include_direction, headers_compile_alone, sources_are_formatted, headers_are_guarded, headers_are_documented, library_is_silent, files_are_short, kernels_have_logs,
       no_machine_paths, no_marks_of_unfinished_work, floats_are_strict, no_dead_files, no_large_files]
