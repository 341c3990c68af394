"""Simulated directory trees: invented ones, and cuts from real trees when a corpus file is given."""
import gzip
import json
import zlib

from . import names as n
from . import texts

_corpus = []
REAL_WEIGHT = {"/usr/share/doc": 6, "/etc": 3, "/usr/lib/python3.11": 2, "/usr/include": 2}
HELD_OUT = 12  # one top directory in so many is kept for the held-out sessions


def load_corpus(path, held_out=False):
    """Loads the real trees: the training part, or the top directories kept from it."""
    with gzip.open(path) as z:
        _corpus[:] = json.load(z)
    for tree in _corpus:
        tree["files"] = {p: t for p, t in tree["files"].items() if (zlib.crc32(p.split("/")[0].encode()) % HELD_OUT == 0) == held_out}


class World:
    """A root directory: files (text, or None when binary) and directories by relative path."""

    def __init__(self, kind, root, files=(), dirs=()):
        self.kind, self.root, self.files, self.dirs = kind, root, {}, {"."}
        for p, t in dict(files).items():
            self.add(p, t)
        for d in dirs:
            self.add_dir(d)

    def add_dir(self, d):
        while d not in ("", ".") and d not in self.files:
            self.dirs.add(d)
            d = d.rpartition("/")[0]

    def add(self, path, text):
        if path in self.dirs:
            return
        self.files[path] = text
        self.add_dir(path.rpartition("/")[0])

    def children(self, d):
        """Entries of directory d as list_dir shows them, bytewise order."""
        pre = "" if d == "." else d + "/"
        out = {p[len(pre):].split("/")[0] for p in [*self.files, *self.dirs] if p.startswith(pre) and p != "."} - {"", ".git"}
        return [x + "/" if pre + x in self.dirs else x for x in sorted(out, key=str.encode)]

    def text_files(self):
        return [p for p, t in self.files.items() if t]


def _fill(r, w, d, count, exts=None):
    for _ in range(count):
        name = n.file_name(r, exts)
        for x in [name, n.near(r, name)] if r.random() < 0.12 else [name]:
            w.add(x if d == "." else f"{d}/{x}", texts.text_for(r, x))


def _series(r, w, d):
    """A run of near-equal names in a directory, now and then."""
    if r.random() < 0.25:
        for name in n.series(r):
            w.add(name if d == "." else f"{d}/{name}", texts.text_for(r, name))


def repo(r):
    w = World("repo", f"/{r.choice(['home', 'work', 'src'])}/{n.word(r)}")
    title = n.word(r)
    if r.random() < 0.95:
        w.add(r.choice(["README.md"] * 6 + ["README", "README.rst", "readme.md"]), texts.markdown(r, title))
    for name, p in (("LICENSE", 0.7), ("CMakeLists.txt", 0.6), ("Makefile", 0.3), ("package.json", 0.25), ("pyproject.toml", 0.25), (".gitignore", 0.6), ("CHANGELOG.md", 0.3), ("CONTRIBUTING.md", 0.2), ("setup.py", 0.15), (".clang-format", 0.3), ("TODO", 0.1)):
        if r.random() < p:
            w.add(name, texts.text_for(r, name))
    if r.random() < 0.3:
        w.add(".git/config", texts.ini(r))
    main_ext = r.choice([["cc", "h"], ["cpp", "hpp"], ["c", "h"], ["py"], ["js", "ts"], ["go"], ["rs"]])
    for d in r.sample(["src", "docs", "tests", "tools", "scripts", "include", "lib", "examples", "bench", "cmake", "data", "config", ".github", "models", n.dir_name(r), n.dir_name(r)], r.randint(2, 7)):
        exts = {"docs": ["md", "md", "txt", "rst"], "data": ["csv", "json", "txt", "dat", "bin"], "config": ["ini", "json", "yaml", "toml", "conf"], "scripts": ["sh", "py"], "cmake": ["cmake"], ".github": ["yml"]}.get(d, main_ext)
        _fill(r, w, d, r.choice([0, 1, 2, 3, 4, 6, 9, 14, 36]) if r.random() < 0.8 else r.randint(1, 4), exts)
        if r.random() < 0.5:
            _fill(r, w, f"{d}/{n.dir_name(r)}", r.randint(1, 5), exts)
        if not w.children(d):
            w.add_dir(d)
    _series(r, w, r.choice(sorted(w.dirs)))
    return w


def etc(r):
    w = World("etc", "/etc")
    for name in r.sample("hosts fstab passwd group profile bash.bashrc environment hostname issue locale.gen nsswitch.conf resolv.conf services shells sysctl.conf sudo.conf timezone deluser.conf adduser.conf ld.so.conf login.defs mke2fs.conf os-release protocols rpc crontab motd".split(), r.randint(3, 14)):
        w.add(name, texts.hosts(r) if name == "hosts" else texts.keyed(r))
    _fill(r, w, ".", r.randint(0, 10), ["conf", "cfg", "ini"])
    for d in r.sample("apt cron.d default init.d profile.d systemd ssh nginx logrotate.d security ld.so.conf.d xdg kernel python3 vim network udev".split(), r.randint(2, 7)):
        _fill(r, w, d, r.choice([0, 1, 2, 4, 8]), r.choice([None, ["conf"], ["list", "conf"], ["sh"]]))
        w.add_dir(d)
    return w


def doc(r):
    w = World("doc", "/usr/share/doc")
    for _ in range(r.choice([3, 6, 12, 28, 40])):
        pkg = r.choice([n.word(r), "lib" + n.word(r) + str(r.randint(0, 9)), n.word(r) + "-" + r.choice(["doc", "common", "dev", "utils", "bin"]), "python3-" + n.word(r), f"{n.word(r)}-{r.randint(1, 19)}"])
        for name, p in (("copyright", 0.95), ("changelog.Debian.gz", 0.8), ("changelog.gz", 0.4), ("README", 0.15), ("README.Debian", 0.2), ("README.md", 0.15), ("NEWS.gz", 0.1), ("TODO", 0.05), ("examples/" + n.file_name(r), 0.15), ("AUTHORS", 0.1)):
            if r.random() < p:
                w.add(f"{pkg}/{name}", texts.text_for(r, name.rpartition("/")[2]))
    return w


def data(r):
    w = World("data", r.choice(["/data", "/srv/" + n.word(r), "/mnt/" + n.noise(r)]))
    _fill(r, w, ".", r.randint(1, 6), ["csv", "txt", "json", "log", "dat", "md", "conf"])
    for _ in range(r.randint(1, 3)):
        _fill(r, w, n.dir_name(r), r.choice([1, 2, 5, 12, 40]), ["txt", "csv", "log", "json", "ini", "bin", "md"])
    _series(r, w, r.choice(sorted(w.dirs)))
    _series(r, w, n.dir_name(r))
    return w


def chaos(r):
    """Names nobody has seen, odd characters, deep paths."""
    w = World("chaos", "/" + n.noise(r))
    odd = lambda: r.choice([n.noise(r, 2, 16), n.noise(r, 2, 9) + r.choice("-_.+@~,=") + n.noise(r, 1, 9), n.word(r) + " " + n.word(r), n.stem(r), n.word(r) + r.choice(n.UNICODE), str(r.randint(0, 10**r.randint(1, 9)))])
    dirs = ["."] + [odd() for _ in range(r.randint(1, 4))]
    dirs += [f"{r.choice(dirs[1:])}/{odd()}" for _ in range(r.randint(0, 3))]
    for d in dirs:
        for _ in range(r.randint(1, 7)):
            name = odd() + r.choice(["", ".", "."]) .replace(".", "." + r.choice(n.TEXT_EXT + n.CODE_EXT))
            w.add(name if d == "." else f"{d}/{name}", texts.text_for(r, name))
    _series(r, w, r.choice(sorted(w.dirs)))
    return w


def real(r):
    """A cut from a real tree: some of its top directories, or one of its directories as the root."""
    if not _corpus:
        return r.choice([repo, etc, doc])(r)
    tree = r.choices(_corpus, [REAL_WEIGHT.get(t["root"], 1) if len(t["files"]) > 3 else 0 for t in _corpus])[0]
    files, root = tree["files"], tree["root"]
    tops = sorted({p.split("/")[0] for p in files})
    if r.random() < 0.35:
        top = r.choice(tops)
        inside = {p[len(top) + 1:]: t for p, t in files.items() if p.startswith(top + "/")}
        if len(inside) >= 3:
            return World("real", f"{root}/{top}", inside)
    keep = set(r.sample(tops, min(len(tops), r.choice([4, 8, 15, 28, 60]))))
    w = World("real", root)
    for p in sorted(files):
        if p.split("/")[0] in keep and (len(w.files) < 300 or "/" not in p):
            w.add(p, files[p])
    return w


def tree(r):
    k = r.random()
    return (real if k < 0.42 else repo if k < 0.7 else etc if k < 0.77 else doc if k < 0.84 else data if k < 0.92 else chaos)(r)
