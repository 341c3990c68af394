"""Names: words, invented words, identifiers and random strings, so that copying never depends on knowing the name."""
import pathlib
import random

WORDS = (
    "amber anchor apple arrow autumn badge basin beacon birch blade bloom border bottle branch bridge bright bronze brook bucket cabin candle "
    "canyon carbon castle cedar chain chalk cherry circle cliff clock cloud coast cobalt comet copper coral cotton crane crater crown crystal "
    "dawn delta desert diamond dome drift dune eagle echo ember falcon feather fern field flame flint forest fossil fountain frost garden "
    "garnet gate glacier globe granite grove harbor harvest hazel heron hill hollow honey horizon iris iron island ivory jade jasper juniper "
    "kettle lagoon lake lamp lantern laurel leaf ledge lemon lily linen lion lotus maple marble marsh meadow mesa mint mirror mist moon moss "
    "mountain needle nest north oak oasis ocean olive onyx opal orbit orchard otter owl palm paper pearl pebble pepper pine planet plum pond "
    "poppy port prairie quartz quill rain raven reef ridge river robin rose ruby saddle saffron sail salt sand sapphire shadow shell shore "
    "silk silver sky slate snow spruce star stone storm stream summit sun swan thistle thorn thunder tide tiger timber topaz torch tower trail "
    "tulip tundra valley velvet violet walnut water wave wheat willow wind winter wolf wood zephyr time people way day thing world life hand "
    "part child eye place work week case point company number group problem fact money month book room side kind head house service friend "
    "power hour game line end member law car city name team minute idea body back parent face level office door health person art history"
).split()
TECH = (
    "parser lexer token buffer cache config server client socket handler router model engine kernel tensor matrix vector index query schema "
    "table column record batch queue worker thread mutex signal event timer clock logger metric report build test bench script tool util common "
    "core base main init setup install deploy release version update patch merge commit branch remote origin fetch push pull clone status "
    "error warning debug trace info result option flag param argument value key map set list tree graph node edge path file folder stream "
    "reader writer encoder decoder format layout style theme widget window dialog button input output render shader texture mesh camera scene "
    "network packet header payload session cookie auth login user account profile role policy token secret hash digest cipher random seed "
    "sample train eval loss layer block page state slot pool arena heap stack frame symbol module package import export plugin driver device"
).split()
GLUE, SPACED, COMMON = (part.split() for part in (pathlib.Path(__file__).parent / "words.txt").read_text().split("\n\n"))
# Of documentation and file names: words that build sentences; others whose token differs after a space, so that a copy has to be learned one by one; the rest by frequency.
NICE_FILES = ("README INSTALL TODO NEWS AUTHORS CONTRIBUTING COPYING LICENSE CHANGES HISTORY FAQ BUGS NOTES GUIDE OVERVIEW ROADMAP DESIGN").split()
CODE_EXT = "cc cpp h hpp c py sh js ts go rs java rb pl lua".split()
TEXT_EXT = "txt md rst log csv json yaml yml toml ini cfg conf xml html list dat".split()
BINARY_EXT = "gz png jpg bin so o a pdf zip xz woff2".split()
SYLLABLES = "ba be bi bo bu da de di do du fa fe fi ga ge go gu ha he ka ke ki ko la le li lo lu ma me mi mo mu na ne ni no nu pa pe po ra re ri ro ru sa se si so su ta te ti to tu va ve vi vo wa xe yo za ze zo zu qui bra cle dra fro gri kna plo ske stra tri vex zyn".split()
ALNUM = "abcdefghijklmnopqrstuvwxyz0123456789"
ALNUM_MIXED = ALNUM + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
UNICODE = "é ü ñ ö å ç ø ł š ž α β λ π д ж я 日 本 語 文 中 한 글 –".split()


class Rng(random.Random):
    """Python's generator with plain, three times faster draws: half of a session's time goes into them."""

    def choice(self, seq):
        return seq[int(self.random() * len(seq))]

    def randint(self, a, b):
        return a + int(self.random() * (b - a + 1))


def invented(r):
    return "".join(r.choice(SYLLABLES) for _ in range(r.randint(2, 4)))


def noise(r, lo=3, hi=10, alphabet=ALNUM_MIXED):
    return "".join(r.choice(alphabet) for _ in range(r.randint(lo, hi)))


def word(r):
    k = r.random()
    if k < 0.22:
        return r.choice(WORDS)
    if k < 0.42:
        return r.choice(TECH)
    if k < 0.52:
        return r.choice(SPACED)
    if k < 0.72:
        return r.choice(COMMON)
    if k < 0.92:
        return invented(r)
    return noise(r, 3, 8)


def stem(r):
    """The name of a file without its extension."""
    k = r.random()
    if k < 0.33:
        s = word(r)
    elif k < 0.345:
        s = r.choice(GLUE)
    elif k < 0.36:
        s = r.choice(ALNUM_MIXED) + r.choice(["", "", str(r.randint(0, 12)), r.choice(ALNUM)])
    elif k < 0.6:
        s = r.choice("_-_-.").join(word(r) for _ in range(r.randint(2, 3)))
    elif k < 0.62:
        s = r.choice("_-_-.").join(word(r) for _ in range(r.randint(5, 11)))
    elif k < 0.7:
        s = f"{word(r)}{r.choice(['', '-', '_', '.'])}{r.randint(0, 2030)}"
    elif k < 0.76:
        s = f"{word(r)}-{r.randint(0, 20)}.{r.randint(0, 20)}{r.choice(['', '.' + str(r.randint(0, 9))])}"
    elif k < 0.8:
        s = f"{r.randint(2015, 2027)}-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}" + r.choice(["", "-" + word(r)])
    elif k < 0.86:
        s = noise(r, 4, 14)
    elif k < 0.9:
        s = word(r).upper()
    elif k < 0.93:
        s = word(r).capitalize() + word(r).capitalize()
    elif k < 0.96:
        s = word(r) + r.choice(UNICODE) + word(r)
    else:
        s = "".join(r.choice(ALNUM) for _ in range(r.choice([8, 16, 32])))
    return s


def file_name(r, exts=None):
    k = r.random()
    if exts is None and k < 0.08:
        return r.choice(NICE_FILES) + r.choice(["", ".md", ".txt"])
    if exts is None and k < 0.11:
        return "." + word(r)
    if exts is None and k < 0.16:
        return stem(r)
    return f"{stem(r)}.{r.choice(exts or (CODE_EXT + TEXT_EXT + TEXT_EXT))}"


def series(r):
    """Names that differ little: numbered files, dated logs, releases, a family of modules."""
    ext, a, b = r.choice(CODE_EXT + TEXT_EXT + TEXT_EXT), word(r), word(r)
    k, count = r.random(), r.choice([4, 6, 10, 16, 26, 38])
    if k < 0.3:
        first, wide, sep = r.choice([0, 1, r.randint(2, 900)]), r.choice([1, 2, 3, 4]), r.choice(["", "-", "_", "."])
        return [f"{a}{sep}{i:0{wide}d}.{ext}" for i in range(first, first + count)]
    if k < 0.5:
        return list({f"{a}{r.choice(['-', ''])}{r.randint(0, 3)}.{r.randint(0, 9)}.{r.randint(0, 12)}{r.choice(['', '', '.' + str(r.randint(0, 9))])}.{ext}": 0 for _ in range(count)})
    if k < 0.65:
        return list({f"{a}-{r.randint(2024, 2026)}-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}.{ext}": 0 for _ in range(count)})
    return list({f"{a}{r.choice(['_', '_', '-', ''])}{word(r)[:r.randint(1, 9)]}{r.choice(['', '', '_' + b])}.{ext}": 0 for _ in range(count)})


def near(r, name):
    """A name that is easily taken for this one: a letter, a number or an ending apart."""
    base, dot, ext = name.rpartition(".") if "." in name[1:] else (name, "", "")
    k = r.random()
    if k < 0.25:
        return base + r.choice(["s", "2", "_2", "-old", "_test", ".1", "_v2", "-new", "x"]) + dot + ext
    if k < 0.45:
        return base + "." + r.choice(CODE_EXT + TEXT_EXT)
    if k < 0.6:
        return r.choice(["new_", "test_", "my", "x", "old-", "_"]) + name
    if k < 0.75 and len(base) > 2:
        i = r.randrange(len(base))
        return base[:i] + base[i + 1:] + dot + ext
    i = r.randrange(len(base))
    return base[:i] + r.choice(ALNUM) + base[i + 1:] + dot + ext


def dir_name(r):
    k = r.random()
    if k < 0.45:
        return r.choice("docs src tests test lib include scripts tools data config bench examples assets build_tools notes logs reports third_party cmake "
                        "app server client core utils common api web static templates fixtures images scripts.d conf.d archive drafts".split())
    return stem(r) if k < 0.8 else word(r)


def ident(r):
    """An identifier as code and configuration files have it."""
    a = [word(r) for _ in range(r.choice([1, 2, 2, 2, 3]))]
    k = r.random()
    if k < 0.5:
        s = "_".join(a)
    elif k < 0.65:
        s = "_".join(a).upper()
    elif k < 0.8:
        s = "".join(x[:1].upper() + x[1:] for x in a)
    elif k < 0.92:
        s = a[0] + "".join(x[:1].upper() + x[1:] for x in a[1:])
    else:
        s = "-".join(a)
    return "v" + s if s[:1].isdigit() else s


def code_ident(r):
    return ident(r).replace("-", "_").replace(".", "_")


def sentence(r, lo=4, hi=14):
    glue = "the a of to and in is for with on that from by as at it this or be are not can will has was when if each".split()
    ws = [r.choice(glue) if r.random() < 0.38 else word(r) for _ in range(r.randint(lo, hi))]
    s = " ".join(ws)
    s = s[:1].upper() + s[1:]
    if r.random() < 0.2:
        s = s.replace(" ", ", ", 1)
    return s + r.choice([".", ".", ".", ".", "!", "?", ":"])


def version(r):
    return ".".join(str(r.randint(0, r.choice([3, 9, 30]))) for _ in range(r.choice([2, 3, 3])))


def number(r):
    return r.choice([r.randint(0, 9), r.randint(10, 99), r.randint(100, 999), r.randint(1000, 99999)])


def value(r):
    """A configuration value as text."""
    k = r.random()
    if k < 0.35:
        return str(number(r))
    if k < 0.5:
        return r.choice(["true", "false", "on", "off", "yes", "no", "auto", "none"])
    if k < 0.62:
        return version(r)
    if k < 0.72:
        return f"/{r.choice(['var', 'usr', 'opt', 'home', 'etc', 'srv'])}/{word(r)}/{stem(r)}"
    if k < 0.8:
        return f"{r.randint(0, 99)}.{r.randint(1, 99)}"
    if k < 0.88:
        return noise(r, 6, 20)
    if k < 0.92:
        return f"{r.randint(1, 254)}.{r.randint(0, 255)}.{r.randint(0, 255)}.{r.randint(1, 254)}"
    return word(r)
