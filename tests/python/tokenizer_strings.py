"""Strings for the differential test of the tokenizer, by kind, from a seed."""

import json
import random
import string

NAMES = ["value", "getUserById", "MAX_RETRIES", "__init__", "i", "snake_case_name", "XMLHttpRequest", "fooBar2", "größe", "变量", "x1", "tmp_"]
WORDS = ("the of and to in is that for it with as was on be by this not are from at have an or which one were all their has more "
         "when there can no other time new some could these two may first then do any now such like over our even most made after "
         "also did many before must through years where much your way well down should because each just those people how too little "
         "state good very make world still own see men work long get here between both life being under never day same another know "
         "while last might us great old year off come since against go came right used take three").split()

CODE = {
    "python": ["def {n}({n}: int, *args, **kwargs) -> None:", "    return [{n} for {n} in {n} if {n} != {d}]",
               "    \"\"\"{w} {w}.\n\n    {w}\n    \"\"\"",
               "class {n}({n}):", "    @property", "assert {n} == {s}, f\"{{{n}!r}}\"", "    if not {n}.{n}(): raise ValueError({s})",
               "# {w} {w} {w}"],
    "c": ["static int {n}(const char *{n}, size_t {n})", "{{", "\tfor (int i = 0; i < {d}; i++) {{", "\t\t{n}[i] = ({n} >> {d}) & 0x{d}u;",
          "\t}}", "#define {n} {d}",
          "/* {w} {w} */", "\treturn {n} ? -1 : {n}->{n};", "}}"],
    "cpp": ["template <typename T, std::size_t N = {d}>", "constexpr auto {n} = [](const auto& {n}) noexcept {{ return {n}; }};",
            "std::vector<std::pair<int, {n}>> {n}{{{d}, {d}}};",
            "#include <{n}>", "  if (auto it = {n}.find({s}); it != {n}.end()) co_return *it;", "}}  // namespace {n}",
            "  {n}::{n}<{n}&&>(std::move({n}));"],
    "rust": ["pub fn {n}<'a>(&'a self, {n}: &mut Vec<u8>) -> Result<(), Box<dyn Error>> {{",
             "    let {n} = match {n} {{ Some(x) => x, None => return Err({s}.into()) }};",
             "    println!(\"{{:?}} {{}}\", {n}, {d});", "#[derive(Debug, Clone)]",
             "    {n}.iter().map(|&x| x as f64 / {d}.0).sum::<f64>()", "}}", "/// {w} {w}"],
    "go": ["func ({n} *{n}) {n}(ctx context.Context) ({n}, error) {{", "\tif err != nil {{", "\t\treturn nil, fmt.Errorf(\"{w}: %w\", err)",
           "\t}}", "\tch := make(chan struct{{}}, {d})",
           "\tfor _, {n} := range {n} {{", "}}", "// {n} {w} {w}."],
    "java": ["public static <T extends Comparable<T>> List<{n}> {n}(final Map<String, {n}> {n}) throws IOException {{", "    @Override",
             "    return {n}.stream().filter(x -> x != null).collect(Collectors.toList());",
             "}}", "    private static final long {n} = {d}L;", "/** {w} {w} */"],
    "javascript": ["const {n} = async ({{ {n}, ...rest }}) => {{", "  await fetch(`https://{n}.example/${{{n}}}?q={d}`);",
                   "  return {n}?.{n} ?? {s};", "}};", "export default {n};", "  // {w} {w}",
                   "  if ({n} === {d} && /^[a-z]+\\d{{2,}}$/i.test({n})) {{ {n}++; }}"],
    "ruby": ["def {n}({n} = nil, *{n})", "  {n}.each_with_index {{ |{n}, i| puts \"#{{{n}}} #{{i}}\" }}",
             "  @{n} ||= {{ {n}: :{n}, '{n}' => {d} }}", "end", "  return unless {n}?", "# {w}"],
    "shell": ["#!/usr/bin/env bash", "for f in \"${{{n}[@]}}\"; do", "  [[ -z \"$1\" ]] && exit {d}",
              "  grep -rn '{n}' ./{n}/*.txt | awk '{{print $2}}' >>/dev/null 2>&1", "done",
              "{n}=$(( {d} + $# ))", "# {w} {w}"],
    "sql": ["SELECT {n}.*, COUNT(*) AS {n} FROM {n} LEFT JOIN {n} ON {n}.id = {n}.{n}_id", "WHERE {n} LIKE '%{w}%' AND {n} >= {d}",
            "GROUP BY 1, 2 HAVING SUM({n}) > {d};", "INSERT INTO {n} VALUES ({d}, {s}, NULL);",
            "-- {w} {w}", "CREATE INDEX IF NOT EXISTS {n} ON {n} ({n} DESC);"],
}

SCRIPTS = {
    "chinese": ("你好世界我们今天去学校明天也是的了在有人这中大为上个国和地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里", "，。！？；：“”（）、《》 \n"),
    "japanese": ("こんにちは世界私は学生です東京都カタカナひらがなガギグゲゴパピプペポっゃゅょー々", "、。「」・！？ \n"),
    "korean": ("안녕하세요세계한국어를공부합니다오늘날씨가좋네요그리고서울특별시", " ., \n"),
    "thai": ("สวัสดีครับผมชื่ออเล็กซ์ประเทศไทยภาษาที่นี่เป็นน้ำใจ", " ฯๆ\n"),
    "hindi": ("नमस्तेदुनियाहिन्दीभाषाक्षत्रियकार्यक्रमज़िंदगीड़ढ़", " ।,\n"),
    "arabic": ("مرحبابالعالمالسلامعليكمكِتَابٌمُحَمَّدٌاللغةالعربيةلاإلهإلاالله", " ،؟.\n"),
    "hebrew": ("שלוםעולםבְּרֵאשִׁיתבָּרָאאֱלֹהִיםאֵתהַשָּׁמַיִםוְאֵתהָאָרֶץ", " ,.־׀\n"),
}

EMOJI = ["😀", "❤", "❤\ufe0f", "❤\ufe0e", "👩\u200d👩\u200d👧\u200d👦", "👩🏽\u200d🚀", "🏳\ufe0f\u200d🌈", "🇩🇪", "🇺", "1\ufe0f\u20e3",
         "#\ufe0f\u20e3", "👍🏿", "🧑\u200d", "\u200d", "\ufe0f",
         "🏴\U000e0067\U000e0062\U000e007f", "©\ufe0f", "™", "🫠", "🪿"]
MARKS = [0x300, 0x301, 0x302, 0x303, 0x308, 0x30A, 0x323, 0x327, 0x328, 0x331, 0x334, 0x338, 0x345, 0x35C, 0x360, 0x483, 0x5B0, 0x5BC,
         0x64B, 0x651, 0x670, 0x93C, 0x94D, 0xE31, 0xE48, 0x1DC0,
         0x20D0, 0x20E3, 0x302A, 0x3099, 0x309A, 0xFE0F, 0xFE20, 0x1D165, 0x1E8D0]
SPACES = [" ", "  ", "   ", "\t", "\n", "\r", "\r\n", "\n\n", "\r\n\r\n", "\u00a0", "\u2003", "\u3000", "\u2028", "\u2029", "\u0085",
          "\x0b", "\x0c", "\u200b", "\ufeff", " " * 31, "\t" * 9, "\n" * 5]
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'Re", "'rE", "'VE", "'vE", "'M", "'LL", "'lL", "'D",
                "'\u017f", "'\u017fs", "'l", "'r", "'v", "''s", "\u2019s", "'sx", "'res", "'k"]


class Strings:
    """One method a kind; each call makes one string (bytes where it is not UTF-8)."""

    def __init__(self, seed, added, tokens):
        self.rng = random.Random(seed)
        self.added = added  # contents of the added tokens
        self.tokens = tokens  # bytes of the vocabulary's tokens

    def many(self, make, low, high, joiner=""):
        return joiner.join(make() for _ in range(self.rng.randint(low, high)))

    def pick(self, items):
        return self.rng.choice(items)

    def word(self):
        return self.pick(WORDS)

    def name(self):
        return self.pick(NAMES) if self.rng.random() < 0.6 else self.pick(WORDS) + self.pick(["", "_", "s", "2"]) + self.pick(WORDS).title()

    def number(self):
        return self.pick(["0", "1", "42", "1_000", "3.14", "1e-9", "0xFF", str(self.rng.randrange(10**9)), "²", "Ⅷ", "½", "٣", "१२"])

    def quoted(self):
        return self.pick(['"', "'", "`"]).join(["", self.many(self.word, 0, 4, " ") + self.pick(["", "\\n", "%s", "é", "{}"]), ""])

    def line(self, language):
        template = self.pick(CODE[language])
        for field, make in (("{n}", self.name), ("{d}", self.number), ("{s}", self.quoted), ("{w}", self.word)):
            while field in template:
                template = template.replace(field, make().replace("{", "").replace("}", ""), 1)
        return template.replace("{{", "{").replace("}}", "}")

    def code(self, language):
        indent = self.pick(["", "  ", "    ", "\t", "        "])
        return self.many(lambda: indent + self.line(language), 1, 8, self.pick(["\n", "\n", "\n\n", "\r\n"]))

    def value(self, depth=0):
        kind = self.rng.randrange(8 if depth < 3 else 5)
        if kind >= 6:
            return {self.name(): self.value(depth + 1) for _ in range(self.rng.randint(0, 4))}
        if kind == 5:
            return [self.value(depth + 1) for _ in range(self.rng.randint(0, 4))]
        return [self.many(self.word, 0, 5, " "), self.rng.randrange(-10**6, 10**12), self.rng.random() * 1e6, self.pick([True, False,
            None]), self.pick(["你好", "é\n", "a\"b", "\u2028", ""])][kind]

    def json(self):
        return json.dumps(self.value(), ensure_ascii=self.rng.random() < 0.3, indent=self.pick([None, None, 1, 2, 4]),
                          separators=self.pick([None, (",", ":")]))

    def log_line(self):
        r = self.rng
        date = f"{r.randint(2000, 2030)}-{r.randint(1, 12):02}-{r.randint(1, 28):02}"
        time = f"{r.randint(0, 23):02}:{r.randint(0, 59):02}:{r.random() * 60:09.6f}"
        level = self.pick(["INFO", "WARN ", "ERROR", "debug"])
        address = f"10.{r.randrange(256)}.0.{r.randrange(256)}:{r.randrange(65536)}"
        return (f"{date}T{time}Z [{level}] {self.name()}[{r.randrange(99999)}]: {self.many(self.word, 1, 8, ' ')} {address}"
                f" 0x{r.randrange(2**48):012x} ({r.randrange(100)}%) \x1b[3{r.randrange(8)}m{self.name()}\x1b[0m")

    def log(self):
        return self.many(self.log_line, 1, 4, "\n")

    def markdown(self):
        return self.many(lambda: self.pick(["# {w}", "## {n}\n", "- [ ] {w} {w}", "1. **{w}** _{w}_ `{n}`", "| {w} | {d} |\n|---|:-:|",
                                            "> {w}\n> {w}", "```{n}\n{n}({d})\n```", "[{w}](https://{w}.org/{n}#{d})", "![{w}](a.png)", "---",
                                            "{w} {w} {w} {w}.  \n{w}", "<!-- {w} -->", "$$\\frac{1}{2}\\int_{0}^{\\infty}$$",
                                            "~~{w}~~ H~2~O"]).replace("{w}", self.word()).replace("{n}", self.name()).replace("{d}",
                                                self.number()), 1, 7, "\n\n")

    def english(self):
        def sentence():
            text = self.many(self.word, 3, 14, " ").capitalize() + self.pick([".", ".", "!", "?", "...", ";", ":", " —", ",", ".)"])
            return text.replace(" not ", " don't ").replace(" is ", "'s ").replace(" have ", "'ve ")
        return self.many(sentence, 1, 6, self.pick([" ", "  ", "\n", "\n\n"]))

    def script(self, name):
        letters, marks = SCRIPTS[name]
        return self.many(lambda: self.many(lambda: self.pick(letters), 1,
                                           12) + (self.pick(marks) if self.rng.random() < 0.8 else self.pick(["1", "A", " x", "\u200d",
                                               "é"])), 1, 8)

    def emoji(self):
        return self.many(lambda: self.pick(EMOJI) if self.rng.random() < 0.7 else self.pick(["a", " ", "!", "\n", "é", "1", "你",
            chr(self.rng.randrange(0x1F300, 0x1FAFF))]), 1, 14)

    def marks(self):
        def piece():
            kind = self.rng.random()
            run = "".join(chr(self.pick(MARKS)) for _ in range(self.rng.choice([0, 1, 1, 2, 3, 12])))
            base = self.pick(["", "a", "e", "X", "ö", "Å", "ﬁ", "q", " ", "!", "1", "\n", "가", "ᄀ", "ᅡ", "ᆨ", "か", "क", "ا", "א", "𝅘",
                              "\u0344", "\u0f73", "Ω", "K", "豈", "\U0002f800"])
            return run + base if kind < 0.3 else base + run
        return self.many(piece, 1, 10)

    def white_space(self):
        return self.many(lambda: self.pick(SPACES) * self.rng.choice([1, 1, 1, 2, 7, 40]) if self.rng.random() < 0.85 else self.pick(["a",
            "!", "1", "é", "'s", "你"]), 1, 16)

    def contractions(self):
        return self.many(lambda: self.pick(["", "I", "you", "WE", "it", "'", " ", "x1", "你", "é",
                                            "!"]) + self.pick(CONTRACTIONS) + self.pick(["", "", " ", "a", "1", "!", "\n"]), 1, 8)

    def invalid_utf8(self):
        pieces = [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xed\xb0\x80", b"\xe2\x82", b"\xf0\x9f\x98", b"\xf4\x90\x80\x80", b"\x80",
                  b"\xbf\xbf", b"\xe4\xbd", b"\xf8\x88\x80\x80\x80", b"\xc3", b"\xe0\x80\xaf"]
        return b"".join(self.pick(pieces) if self.rng.random() < 0.5 else self.pick([self.word(), " ", "é", "你好", "😀", "\n",
            "\u0301"]).encode()
                        if self.rng.random() < 0.8 else bytes([self.rng.randrange(256)]) for _ in range(self.rng.randint(1, 16)))

    def special(self):
        def piece():
            token, kind = self.pick(self.added), self.rng.randrange(7)
            cut = self.rng.randrange(len(token))
            return [token, token[:cut], token[cut:], token[:cut] + self.pick(self.added) + token[cut:], token.upper(),
                    token[:cut] + " " + token[cut:], token + token[:cut]][kind]
        return self.many(lambda: piece() if self.rng.random() < 0.7 else self.pick([self.word(), " ", "\n", "<", "|>", "\u0301", "'s",
            "e"]), 1, 10)

    def any_scalars(self):
        def scalar():
            c = self.rng.randrange(0x110000 if self.rng.random() < 0.5 else 0x3000)
            return chr(c) if not 0xD800 <= c < 0xE000 else "\ufffd"
        return self.many(lambda: scalar() * self.rng.choice([1, 1, 1, 2, 50]), 1, 12)

    def vocabulary(self):
        """Tokens side by side, some of them no whole UTF-8: what merges in one need not merge in the other."""
        return b"".join(self.pick(self.tokens) for _ in range(self.rng.randint(1, 12)))

    def long_lines(self, few):
        """Lines of 1 MB; the `few` are digits, random letters and JSON."""
        size = 1 << 20
        yield "7" * size
        yield "".join(self.rng.choices(string.ascii_letters + string.digits + "+/", k=size))
        yield json.dumps([self.value() for _ in range(12000)], separators=(",", ":"))[:size]
        if few:
            return
        for unit in ("a", " ", "\u0301", "e\u0301\u0323", "你好世界", "=", "👩\u200d", "Ab1 "):
            yield unit * (size // len(unit.encode()))
        yield self.many(lambda: self.script("chinese"), 9000, 9000).replace("\n", "")[:size // 3]
        yield "".join(self.line("javascript") for _ in range(20000))[:size]

    def kinds(self):
        """Name -> function that makes one string."""
        kinds = {f"code: {language}": lambda language=language: self.code(language) for language in CODE}
        kinds |= {name: lambda name=name: self.script(name) for name in SCRIPTS}
        for kind in (self.json, self.log, self.markdown, self.english, self.emoji, self.marks, self.white_space, self.contractions,
                     self.invalid_utf8, self.special, self.any_scalars,
                     self.vocabulary):
            kinds[kind.__name__] = kind
        return kinds


def generate(seed, added, tokens, count, few_long_lines):
    """{kind: [bytes]}: about `count` strings, spread evenly over the kinds, and the long lines."""
    strings = Strings(seed, added, tokens)
    kinds = strings.kinds()
    made = {name: [make() for _ in range(-(-count // len(kinds)))] for name, make in kinds.items()}
    made["lines of 1 MB"] = list(strings.long_lines(few_long_lines))
    return {name: [s if isinstance(s, bytes) else s.encode() for s in texts] for name, texts in made.items()}
