"""Compares the native chat renderer with jinja2, byte for byte, on generated conversations.

  chat_diff.py --helper build/check/chat_render_lines                       the embedded model's template with jinja2, the
                                                                            published ones with recorded digests
  chat_diff.py --helper ... --slow                                          10,000 conversations each, not 1,500
  chat_diff.py --helper ... --templates DIR                                 all with jinja2: qwen3.5-small.jinja,
                                                                            qwen3.5.jinja, qwen3.6.jinja, qwen3.8.jinja
  chat_diff.py --helper ... --templates DIR --record tests/golden/chat      writes renders.jsonl, the goldens of the unit
                                                                            test, and digests.json

Both sides get the same JSON text: jinja2 through json.loads. Where a template would fail on what our conversion repairs
(arguments as text, null or ""), jinja2 gets the repaired value. A refusal must be the same refusal.

digests.json stands for jinja2 where the published templates are not at hand: for each 25 conversations a digest of the
conversations themselves and, by template, one of what jinja2 made of them.
"""

import argparse
import hashlib
import json
import pathlib
import random
import subprocess
import sys

from needs import need

jinja2 = need("jinja2")
need("jinja2.ext")
need("jinja2.sandbox")

ROOT = pathlib.Path(__file__).resolve().parents[2]
EMBEDDED = {"tiny-agent": ROOT / "models/tiny-agent/chat_template.jinja"}
DIGESTS = ROOT / "tests/golden/chat/digests.json"
DIGEST_BLOCK = 25  # conversations
NUM_CASES = {"fast": 1_500, "slow": 10_000}
PUBLISHED = ["qwen3.5-small", "qwen3.5", "qwen3.6", "qwen3.8"]

# The template's words for a refusal, and a part of ours.
REFUSALS = {
    "No messages provided.": "no messages",
    "No user query found in messages.": "no user query",
    "System message must be at the beginning.": "system message; the template takes one at the beginning",
    "Unexpected message role.": "expected system, user, assistant or tool",
    "System message cannot contain images.": "cannot hold images or videos",
    "System message cannot contain videos.": "cannot hold images or videos",
    "Unexpected item type in content.": "no content part",
    "Unexpected content type.": "expected a string, null or a list of parts",
    "Unexpected reasoning effort": "knows xhigh, medium and low",
}

SPACES = ["", "", "", " ", "\n", "\n\n", "\t", "\r\n", "\x0b\x0c", "\x1c\x1f", "\u0085", "\u00a0", "\u2003\u3000", "\u2028", "\u200b"]
WORDS = ["alpha", "über", "你好", "🚀👩‍👩‍👧", "e\u0301", "x < y && z > 0", "'quoted' \"twice\"", "a\\b", "</div>", "{{ x }}", "{% if %}",
         "\u0000", "\u001b[0m", "tab\tnewline\nend", "line1\nline2", "   indented", "<|im_start|>", "<|im_end|>", "<think>", "</think>",
         "<tool_call>", "</tool_call>", "<function=f>", "</parameter>", "<tool_response>", "</tool_response>", "&amp;", "1e16", "None"]
# Written into the JSON text as they stand, so that spellings which json.dumps would never choose are covered.
NUMBERS = ["0", "-0", "1", "-17", "1.0", "1.50", "-0.0", "1e5", "1E5", "1e16", "1e-5", "0.0001", "123456789.125", "1e22", "1E400", "-1e400",
           "1e-400", "0.1", "1e15", "9007199254740993", "123456789012345678901234567890", "-99999999999999999999", "3.141592653589793238"]


class RawNumber(str):
    """A number's JSON text."""


def dump(value):
    """json.dumps that writes RawNumbers as they are spelled."""
    if isinstance(value, RawNumber):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k, ensure_ascii=False)}: {dump(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(dump(v) for v in value) + "]"
    return json.dumps(value, ensure_ascii=False)


class Generator:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def chance(self, p):
        return self.rng.random() < p

    def text(self):
        pick = self.rng.choice
        words = [pick(WORDS) for _ in range(self.rng.randint(0, 5))]
        return pick(SPACES) + pick([" ", "\n", "", "\n\n"]).join(words) + pick(SPACES)

    def value(self, depth=0):
        kind = self.rng.randint(0, 7 if depth < 3 else 5)
        if kind <= 2:
            return self.text()
        if kind == 3:
            return RawNumber(self.rng.choice(NUMBERS))
        if kind == 4:
            return self.rng.choice([True, False, None])
        if kind == 5:
            return self.rng.choice(["", [], {}])
        if kind == 6:
            return [self.value(depth + 1) for _ in range(self.rng.randint(0, 4))]
        return {self.key(): self.value(depth + 1) for _ in range(self.rng.randint(0, 4))}

    def key(self):
        return self.rng.choice(["path", "content", "größe", "a b", "x", "start_line", "\n", "</", "0", "name"])

    def arguments(self):
        arguments = {self.key(): self.value() for _ in range(self.rng.randint(0, 4))}
        form = self.rng.randint(0, 9)
        if form == 0:
            return self.rng.choice([None, "", " \n"])
        if form <= 3:
            return dump(arguments)  # OpenAI's: JSON text
        return arguments

    def call(self):
        call = {"name": self.rng.choice(["read_file", "f", "größe", "a.b-c"])}
        if self.chance(0.9):
            call["arguments"] = self.arguments()
        if self.chance(0.5):
            return call
        return {"id": "call_1", "type": "function", "function": call}

    def part(self):
        kind = self.rng.randint(0, 9)
        if kind == 0:
            return self.rng.choice([{"type": "image_url", "image_url": {"url": "u"}}, {"type": "image"}, {"image": "x", "text": "y"}])
        if kind == 1:
            return self.rng.choice([{"type": "video"}, {"video": "v"}])
        return {"type": "text", "text": self.text()}

    def content(self, may_hold_media=True):
        form = self.rng.randint(0, 9)
        if form == 0:
            return self.rng.choice([None, "", []])
        if form <= 2:
            parts = [self.part() for _ in range(self.rng.randint(0, 4))]
            return parts if may_hold_media else [part for part in parts if set(part) == {"type", "text"}]
        return self.text()

    def assistant(self):
        message = {"role": "assistant"}
        if self.chance(0.9):
            message["content"] = self.content()
        if self.chance(0.15):
            message["content"] = self.rng.choice(["<think>\n", "", "x<think>"]) + self.text() + "\n</think>\n\n" + self.text()
        if self.chance(0.6):
            message["reasoning_content"] = self.rng.choice([self.text(), self.text(), "", None])
        if self.chance(0.5):
            message["tool_calls"] = [self.call() for _ in range(self.rng.randint(0, 3))]
        return message

    def turns(self):
        messages = [{"role": "user", "content": self.content()}]
        for _ in range(self.rng.randint(0, 6)):
            messages.append(self.assistant())
            if self.chance(0.6):
                messages += [{"role": "tool", "tool_call_id": "call_1", "content": self.content()} for _ in range(self.rng.randint(1, 3))]
            if self.chance(0.4):
                messages.append({"role": "user", "content": self.content()})
            if self.chance(0.1):
                messages.append({"role": "user", "content": " <tool_response>" + self.text() + "</tool_response>\n"})
        return messages

    def tools(self):
        tools = []
        for name in self.rng.sample(["read_file", "f", "größe", "a.b-c"], self.rng.randint(1, 3)):
            function = {"name": name, "description": self.text(), "parameters": {"type": "object", "properties": {self.key(): self.value()}}}
            if self.chance(0.3):
                function = {"parameters": self.rng.choice([{}, {"properties": {}}, {self.key(): self.value(), "required": []}]), "name": name}
            tools.append(function if self.chance(0.2) else {"type": "function", "extra": self.value(), "function": function})
        return tools

    def options(self):
        options = {}
        for key in ("add_generation_prompt", "enable_thinking", "preserve_thinking", "add_vision_id"):
            if self.chance(0.5):
                options[key] = self.chance(0.5)
        if self.chance(0.3):
            options["reasoning_effort"] = self.rng.choice(["xhigh", "medium", "low"])
        return options

    def break_it(self, case):
        """One defect, so that there is one refusal to compare."""
        messages = case["messages"]
        for message in messages:
            if isinstance(message.get("content"), list) and message["role"] == "system":
                message["content"] = "s"
        user = {"role": "user", "content": "q"}
        kind = self.rng.randint(0, 8)
        if kind == 0:
            case["messages"] = []
        elif kind == 1:
            case["messages"] = [m for m in messages if m["role"] != "user"] or [{"role": "assistant", "content": "a"}]
        elif kind == 2:
            messages.insert(self.rng.randint(1, len(messages)), {"role": "system", "content": "late"})
        elif kind == 3:
            messages.append({"role": self.rng.choice(["developer", "function", "", "User"]), "content": "x"})
        elif kind == 4:
            case["messages"] = [{"role": "system", "content": [{"type": "image"}]}, user]
        elif kind == 5:
            case["messages"] = [{"role": "system", "content": [{"video": "v"}]}, user]
        elif kind == 6:
            messages.append({"role": "user", "content": [{"type": "input_audio"}]})
        elif kind == 7:
            messages.append({"role": "user", "content": self.rng.choice([7, True, {"a": 1}, 1.5])})
        else:
            case["options"]["reasoning_effort"] = self.rng.choice(["high", "none", ""])

    def case(self):
        messages = self.turns()
        if self.chance(0.4):
            messages.insert(0, {"role": "system", "content": self.content(may_hold_media=False)})
        elif self.chance(0.05):
            messages.insert(0, self.rng.choice([{"role": "tool", "content": "early"}, self.assistant()]))
        case = {"messages": messages, "options": self.options()}
        if self.chance(0.4):
            case["tools"] = self.tools()
        elif self.chance(0.2):
            case["tools"] = self.rng.choice([None, []])
        if self.chance(0.08):
            self.break_it(case)
        return case


class Refusal(Exception):
    pass


def refuse(message):
    raise Refusal(message)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    env.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    env.globals["raise_exception"] = refuse
    return env


def repaired(messages):
    """Arguments as our conversion reads them."""
    for message in messages:
        for call in message.get("tool_calls") or []:
            function = call.get("function", call)
            arguments = function.get("arguments")
            if isinstance(arguments, str):
                arguments = json.loads(arguments) if arguments.strip() else None
            if "arguments" in function:
                function["arguments"] = arguments or {}
    return messages


def render_jinja(template, line):
    case = json.loads(line)
    try:
        return {"text": template.render(messages=repaired(case["messages"]), tools=case.get("tools"), **case["options"])}
    except Refusal as refusal:
        return {"refusal": str(refusal)}


def agrees(expected, got):
    if "text" in expected:
        return got.get("text") == expected["text"]
    return "error" in got and our_words(expected["refusal"]) in got["error"]


def our_words(refusal):
    return next(ours for theirs, ours in REFUSALS.items() if refusal.startswith(theirs))


def run_helper(helper, lines):
    done = subprocess.run([helper], input="".join(line + "\n" for line in lines).encode(), capture_output=True, check=True)
    return [json.loads(line) for line in done.stdout.decode().split("\n") if line]


def compare(helper, name, template, cases):
    lines = [dump({"template": name, **case}) for case in cases]
    num_bad = 0
    num_refused = 0
    for line, got in zip(lines, run_helper(helper, lines), strict=True):
        expected = render_jinja(template, line)
        num_refused += "refusal" in expected
        if agrees(expected, got):
            continue
        num_bad += 1
        if num_bad <= 3:
            print(f"{name}: differs\n  case     {line}\n  expected {expected!r}\n  got      {got!r}")
    print(f"{name}: {len(cases)} conversations, {num_refused} refusals, {num_bad} differ")
    return num_bad


def digest(outcomes):
    """Of what became of some conversations: the text, or which refusal."""
    state = hashlib.blake2b(digest_size=8)
    for outcome in outcomes:
        state.update(json.dumps(outcome).encode())
    return state.hexdigest()


def blocks(items):
    return [items[i:i + DIGEST_BLOCK] for i in range(0, len(items), DIGEST_BLOCK)]


def expected_outcome(template, line):
    expected = render_jinja(template, line)
    return ["text", expected["text"]] if "text" in expected else ["refused", refusal_index(our_words(expected["refusal"]))]


def our_outcome(got):
    if "text" in got:
        return ["text", got["text"]]
    words = [ours for ours in REFUSALS.values() if ours in got["error"]]
    return ["refused", refusal_index(words[0]) if words else got["error"]]


def refusal_index(ours):
    """Wording may change without another recording."""
    return list(dict.fromkeys(REFUSALS.values())).index(ours)


def digests_of(helper, name, cases):
    return [digest(map(our_outcome, run)) for run in blocks(run_helper(helper, [dump({"template": name, **case}) for case in cases]))]


def compare_digests(helper, cases):
    """Number of blocks that differ, of all published templates; and whether each template's digests refuse the others' renders."""
    recorded = json.loads(DIGESTS.read_text())
    num_blocks = len(blocks(cases))
    if recorded["cases"][:num_blocks] != [digest(map(dump, block)) for block in blocks(cases)]:
        print("digests.json is of other conversations than the generator makes now: record it again")
        return num_blocks, False
    found = {name: digests_of(helper, name, cases) for name in PUBLISHED}
    num_bad = 0
    for name in PUBLISHED:
        bad = [i for i, (a, b) in enumerate(zip(recorded[name], found[name])) if a != b]
        print(f"{name}: {len(cases)} conversations by {num_blocks} digests, {len(bad)} differ")
        for i in bad[:3]:
            print(f"  conversations {i * DIGEST_BLOCK} to {(i + 1) * DIGEST_BLOCK - 1}; --templates shows them")
        num_bad += len(bad)
    apart = all(recorded[a][:num_blocks] != found[b] for a in PUBLISHED for b in PUBLISHED if a != b)
    return num_bad, apart


def negative_control(helper, name, template):
    """The comparison must notice a wrong template."""
    wrong = environment().from_string(template.source.replace("\\n</think>", "\\n\\n</think>"))
    lines = [dump({"template": name, "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "options": {}})]
    return not agrees(render_jinja(wrong, lines[0]), run_helper(helper, lines)[0])


def record(folder, templates, seed, num_cases):
    cases = [Generator(seed + i).case() for i in range(num_cases)]
    manifest = {"script": "tests/python/chat_diff.py --record", "jinja2": jinja2.__version__, "seed": seed, "templates": list(templates)}
    with open(folder / "renders.jsonl", "w", encoding="utf-8", newline="\n") as out:
        out.write(json.dumps({"manifest": manifest}) + "\n")
        for case in cases:
            line = dump(case)
            out.write(f'{{"case": {line}, "renders": {json.dumps(grouped_renders(templates, line), ensure_ascii=False)}}}\n')


def record_digests(templates, cases, seed):
    manifest = {"script": "tests/python/chat_diff.py --record", "jinja2": jinja2.__version__, "seed": seed, "conversations": len(cases),
                "templates": {name: hashlib.sha256(templates[name].source.encode()).hexdigest() for name in PUBLISHED}}
    digests = {"manifest": manifest, "cases": [digest(map(dump, block)) for block in blocks(cases)]}
    for name in PUBLISHED:
        lines = [dump({"template": name, **case}) for case in cases]
        digests[name] = [digest(expected_outcome(templates[name], line) for line in block) for block in blocks(lines)]
    DIGESTS.write_text(json.dumps(digests, indent=0) + "\n")


def grouped_renders(templates, line):
    """[{"templates": [names], "text" or "error"}]: equal renders are written once."""
    groups = {}
    for name, template in templates.items():
        render = render_jinja(template, line)
        key = ("text", render["text"]) if "text" in render else ("error", our_words(render["refusal"]))
        groups.setdefault(key, []).append(name)
    return [{"templates": names, kind: text} for (kind, text), names in groups.items()]


def load_templates(folder):
    paths = dict(EMBEDDED)
    if folder:
        paths.update({name: folder / f"{name}.jinja" for name in PUBLISHED})
    templates = {}
    for name, path in paths.items():
        source = path.read_text(encoding="utf-8")
        templates[name] = environment().from_string(source)
        templates[name].source = source
    return templates


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--helper", required=True, help="the chat_render_lines program")
    parser.add_argument("--templates", type=pathlib.Path, help="folder with the published template files")
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", type=pathlib.Path, help="write goldens to this folder")
    parser.add_argument("--record-cases", type=int, default=60)
    args = parser.parse_args()

    templates = load_templates(args.templates)
    cases = [Generator(args.seed * 1_000_003 + i).case() for i in range(NUM_CASES["slow" if args.slow or args.record else "fast"])]
    if args.record:
        if not args.templates:
            parser.error("--record needs --templates: a golden holds all five renders")
        record(args.record, templates, args.seed, args.record_cases)
        record_digests(templates, cases, args.seed)
    num_bad = sum(compare(args.helper, name, template, cases) for name, template in templates.items())
    controls_hold = all(negative_control(args.helper, name, template) for name, template in templates.items())
    if not args.templates:
        num_differing, apart = compare_digests(args.helper, cases)
        num_bad += num_differing
        controls_hold = controls_hold and apart
    if not controls_hold:
        print("a negative control was accepted: this check checks nothing")
        num_bad += 1
    return 1 if num_bad else 0


if __name__ == "__main__":
    sys.exit(main())
