"""Tools drawn at random: the call has to follow from the schema and the request, and nothing about them can be known beforehand.

A thought that has to choose reads the tools in their order, name, description, verdict, and stops at the one that fits: so a name is copied
where the reading stands and judged after its description is written, never looked up backwards from a description.
"""
import json

from . import names as n
from . import phrases as ph
from .tasks.wording import fenced
from .tools import schema

VERBS = "get fetch compute convert send create delete update check start stop list find book schedule translate count rename restart measure show load open close scan verify order cancel register resolve export import archive plan render merge rank rate query".split()
NOUNS = "weather forecast,shipping rate,exchange rate,calendar event,user profile,order status,flight,train connection,song,recipe,invoice,sensor reading,stock price,translation,reminder,ticket,job,container,backup,report,device,room,parcel,contact,playlist,message,task,route,image,chart,address,token,account balance,holiday list,build,pipeline,deployment,certificate,domain record,printer,light,thermostat,temperature,unit,distance,time zone,word,page,article,database table,branch".split(",")
PARAMS = "city country date id name count limit user unit mode level size color language format amount from_date to_date target source title priority status key region code tag width height depth speed max_items min_score start end page room address subject note owner channel volume".split()
SAME = [set(x.split()) for x in ("get fetch show load open read query find", "compute convert count measure rate rank", "create register plan schedule book order", "delete stop close cancel", "update rename merge restart", "check verify scan", "export archive render send")]  # verbs that could mean one another
FLAGS = "verbose force dry_run recursive urgent quiet archived include_hidden notify public cached strict detailed".split()


def jval(v):
    return v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)


class Param:
    def __init__(self, r, taken):
        k = r.random()
        self.kind = "string" if k < 0.42 else "integer" if k < 0.62 else "number" if k < 0.72 else "boolean" if k < 0.82 else "enum" if k < 0.92 else "array"
        while True:
            self.name = r.choice(FLAGS) if self.kind == "boolean" and r.random() < 0.8 else r.choice(PARAMS) if r.random() < 0.65 else n.code_ident(r).lower()
            if self.name not in taken:
                break
        self.required = r.random() < 0.65
        self.schema = {"type": "string" if self.kind == "enum" else self.kind}
        if r.random() < 0.75:
            self.schema["description"] = r.choice([self.name.replace("_", " ").capitalize(), n.sentence(r, 2, 5), f"The {self.name.replace('_', ' ')}"])
        if self.kind == "enum":
            self.choices = list(dict.fromkeys(r.choice([n.word(r), n.word(r), n.noise(r, 2, 5)]) for _ in range(r.randint(2, 4))))
            self.schema["enum"] = self.choices
        if self.kind == "array":
            self.item = r.choice(["string", "string", "integer"])
            self.schema["items"] = {"type": self.item}

    def value(self, r):
        if self.kind == "integer":
            return n.number(r) if r.random() < 0.92 else -n.number(r)
        if self.kind == "number":
            return r.choice([n.number(r), round(r.random() * 100, 2), round(r.random() * 10, 1)])
        if self.kind == "boolean":
            return r.random() < 0.5
        if self.kind == "enum":
            return r.choice(self.choices)
        if self.kind == "array":
            return [n.number(r) if self.item == "integer" else n.word(r) for _ in range(r.randint(1, 4))]
        return r.choice([n.word(r), n.word(r), n.invented(r).capitalize(), n.noise(r, 3, 12), n.stem(r), str(r.randint(0, 99999)).zfill(r.choice([1, 5])), n.word(r) + " " + n.word(r), n.file_name(r), f"{n.word(r)}@{n.word(r)}.org"])

    def said(self, r, v, glue):
        """'city Oslo', 'city=Oslo', 'verbose on'."""
        name = self.name.replace("_", " ") if r.random() < 0.4 and glue == " " else self.name
        if self.kind == "boolean":
            return name + glue + (r.choice(["true", "on", "yes"]) if v else r.choice(["false", "off", "no"]))
        if self.kind == "array":
            items = [str(x) for x in v]
            text = "[" + ", ".join(items) + "]" if glue != " " or len(items) > 2 or r.random() < 0.4 else " and ".join(items)
            return name + glue + text
        text = str(v)
        if self.kind == "string" and (" " in text or text.endswith(".") or r.random() < 0.15):
            text = f'"{text}"'
        return name + glue + text


OPAQUE, OPAQUE_BLIND = 0.12, 0.04  # of the names say nothing about the thing the tool deals with; fewer without a thought, which alone gives room to read descriptions


def tool_name(r, verb, noun, opaque):
    """A name with the noun in it, or one whose description alone tells what it is for."""
    base, k = [verb] + noun.split(), r.random()
    if r.random() < opaque:
        return f"{n.word(r)}_{verb}" if k < 0.4 else n.code_ident(r)
    if k < 0.56:
        return "_".join(base)
    if k < 0.74:
        return base[0] + "".join(x.capitalize() for x in base[1:])
    if k < 0.84:
        return "_".join(base[1:] + base[:1])
    return f"{n.word(r)}_{'_'.join(base)}" if k < 0.92 else "_".join(base[1:])


def gist(description):
    """What a thought quotes of a description: its first sentence without the full stop."""
    return description.split(". ")[0].rstrip(".")


def alike(a, b):
    return a == b or any(a in x and b in x for x in SAME)


class Tool:
    """A tool unlike those taken: its description says what it does, in words that no other's could mean. Part of them share a verb or a noun with one taken."""

    def __init__(self, r, taken=(), opaque=OPAQUE):
        while True:
            self.verb, self.noun = r.choice(VERBS), r.choice(NOUNS) if r.random() < 0.75 else f"{n.word(r)} {n.word(r)}"
            if taken and r.random() < 0.35:
                t = r.choice(taken)
                self.verb, self.noun = (t.verb, self.noun) if r.random() < 0.5 else (self.verb, t.noun)
            if not any(t.noun == self.noun and alike(t.verb, self.verb) for t in taken):
                break
        taken = [t.name for t in taken]
        while True:
            self.name = tool_name(r, self.verb, self.noun, opaque)
            if self.name not in taken:
                break
        self.what = f"{self.verb} the {self.noun}"
        self.params = []
        for _ in range(r.choice([0, 1, 1, 1, 2, 2, 3, 4])):
            self.params.append(Param(r, {p.name for p in self.params}))
        self.description = (self.what[0].upper() + self.what[1:] + ".") if r.random() < 0.8 else f"{self.what[0].upper() + self.what[1:]}. {n.sentence(r, 3, 7)}"
        self.schema = schema(self.name, self.description, {p.name: p.schema for p in self.params}, [p.name for p in self.params if p.required])

    def draw(self, r):
        """Arguments in schema order; optional ones are left out half of the time."""
        return {p.name: p.value(r) for p in self.params if p.required or r.random() < 0.5}

    def request(self, r, args, by_name=False):
        """The request in words."""
        head = r.choice(["Use {n}", "Call {n}", "Run {n}", "Please call {n}", "use the {n} tool"]).format(n=self.name) if by_name else self.what[0].upper() + self.what[1:]
        given = [p for p in self.params if p.name in args]
        if not given:
            return head + r.choice([".", "", " please."])
        if len(given) == 1 and len(self.params) == 1 and given[0].kind in ("string", "integer", "number", "enum") and r.random() < 0.6:
            v = str(args[given[0].name])
            v = f'"{v}"' if " " in v or v.endswith(".") else v
            return head + (r.choice([" with ", ": ", " on "]) if by_name else r.choice([" for ", " for ", ": ", " of "])) + v + r.choice([".", ""])
        r.shuffle(given)
        glue = r.choice([" ", " ", "=", ": ", " is "])
        parts = [p.said(r, args[p.name], glue) for p in given]
        if glue in (" ", " is ") and r.random() < 0.6:
            tail = ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]
            return head + (" where " if glue == " is " else r.choice([" with ", " for ", " with "])) + tail + r.choice([".", ""])
        return head + r.choice([": {}", " ({})", " with {}", ", {}"]).format(r.choice([", ", "; "]).join(parts)) + r.choice([".", ""])

    def filled(self, args):
        """Goes through the schema: what is required, and each parameter as the request has it."""
        if not self.params:
            return "It takes no parameters."
        required = [p.name for p in self.params if p.required]
        return f"It needs {', '.join(required) or 'nothing'}. " + ", ".join(f"{p.name} is {jval(args[p.name]) if p.name in args else 'not given'}" for p in self.params) + "."


def by_name(r):
    """Whether the user names the tool instead of what it does."""
    return r.random() < 0.25


def chosen(s, tool, named=False, also=""):
    """How a thought comes to a tool: named by the user, or read from the offered tools up to the one that fits (all of them when none does)."""
    if named:
        return f"The request {also}names {tool.name}."
    lines = []
    for offered in (x["function"] for x in s.tools):
        fits = offered["name"] == tool.name
        lines.append(f"{offered['name']}: {gist(offered['description'])}. {'Yes' if fits else 'No'}.")
        if fits:
            break
    return f"The request is {also}to {tool.what}.\n" + "\n".join(lines)


def choice(s, tool, args, named=False, also=""):
    return f"{chosen(s, tool, named, also)} {tool.filled(args)}"


def failure(r):
    """An error in whatever words its tool has: it begins with "error: "."""
    return "error: " + r.choice([n.sentence(r, 2, 6).rstrip(".!?:").lower(), n.sentence(r, 2, 9), f"{n.word(r)}: {n.sentence(r, 1, 5)}", f"no such {n.word(r)}: {n.stem(r)}", f"exit code {r.randint(1, 255)}", f"HTTP {r.randint(400, 504)} {n.word(r)}",
                                 f"timeout after {r.randint(1, 120)} s", f"cannot {n.word(r)} {n.file_name(r)}", f"parameter {r.choice(PARAMS)} must be {n.word(r)}", f"{n.word(r)} not found", "not allowed", f"{n.ident(r)} ({n.number(r)})"])


def result(r):
    """(text, {field: value} when it is an object)."""
    k = r.random()
    if k < 0.3:
        return n.sentence(r, 2, 9), None
    if k < 0.5:
        return r.choice([n.value(r), str(n.number(r)), f"{n.number(r)} {n.word(r)}", "ok", "done", n.noise(r, 6, 16), f"{n.word(r)}: {n.value(r)}"]), None
    if k < 0.58:
        return "\n".join(r.choice([n.word(r), n.stem(r), f"{n.word(r)} {n.number(r)}"]) for _ in range(r.randint(2, 7))), None
    if k < 0.65:
        return failure(r), None
    if k < 0.68:
        return "", None
    d = {}
    for _ in range(r.randint(1, 6)):
        d[n.word(r) if r.random() < 0.6 else r.choice(PARAMS)] = r.choice([n.number(r), n.word(r), n.value(r), n.sentence(r, 2, 5), r.random() < 0.5, round(r.random() * 50, 2)])
    return json.dumps(d, ensure_ascii=False), d


def report(s, text):
    if not text:
        s.say("The result is empty.", "The tool returned nothing.")
    elif text.startswith("error: "):
        s.say("The tool returned an error.", f"The tool returned an error: {text[len('error: '):]}")
    elif "\n" in text:
        s.say("I have the result. I will report it.", f"The result is:\n{fenced(text.split(chr(10)))}")
    else:
        s.say("I have the result. I will report it.", f"The result is: {text}")


def t_one(s, tools):
    """One call, the whole result or one field of it."""
    r = s.r
    tool = r.choice(tools)
    args = tool.draw(r)
    text, fields = result(r)
    named = by_name(r)
    ask = tool.request(r, args, named)
    if fields and r.random() < 0.6:
        key = r.choice(list(fields))
        s.user(ask.rstrip(".") + r.choice([" and tell me the {k}.", ", then tell me the {k}.", " and give me {k}.", ". What is the {k}?", ". I need the {k}."]).format(k=key))
        s.call_raw(choice(s, tool, args, named), [(tool.name, args)], [text])
        s.say(f"{key} is {jval(fields[key])}", f"The {key} is {jval(fields[key])}.")
        return True
    s.user(ph.say(r, ["{a}"], a=ask) if r.random() < 0.7 else r.choice(["please ", "can you ", "I need you to ", "hey, "]) + ask[0].lower() + ask[1:] if not ask.startswith(("Use", "Call")) else ask)
    s.call_raw(choice(s, tool, args, named), [(tool.name, args)], [text])
    report(s, text)
    return True


def t_missing(s, tools):
    """A required parameter is missing: ask for it, then call."""
    r = s.r
    fit = [t for t in tools if any(p.required and p.kind in ("string", "integer") for p in t.params)]
    if not fit:
        return False
    tool = r.choice(fit)
    args = tool.draw(r)
    gone = r.choice([p for p in tool.params if p.required and p.kind in ("string", "integer")])
    given, named = {k: v for k, v in args.items() if k != gone.name}, by_name(r)
    s.user(tool.request(r, given, named))
    s.say(f"{choice(s, tool, given, named)} {gone.name} is missing.", f"Which {gone.name} shall I use?")
    v = str(args[gone.name])
    s.user(r.choice(["{v}", "Use {v}.", "{v} please", "{k} is {v}", "Take {v}."]).format(v=f'"{v}"' if " " in v or v.endswith(".") else v, k=gone.name))
    text, _ = result(r)
    s.call_raw(f"The user gives {gone.name} for {tool.name}. {tool.filled(args)}", [(tool.name, args)], [text])
    report(s, text)
    return True


def t_pair(s, tools):
    """The same tool for two values: parallel calls."""
    r = s.r
    fit = [t for t in tools if len(t.params) == 1 and t.params[0].kind in ("string", "integer")]
    if not fit:
        return False
    tool, p = fit[0], fit[0].params[0]
    a, b = p.value(r), p.value(r)
    if " " in f"{a}{b}" or a == b or str(b).endswith("."):
        return False
    s.user(ph.say(r, ["{w} for {a} and for {b}.", "{w} for {a} and {b}.", "{w} for both {a} and {b}."], w=tool.what[0].upper() + tool.what[1:], a=a, b=b))
    outs = [n.sentence(r, 2, 6) if r.random() < 0.5 else n.value(r) for _ in range(2)]
    s.call_raw(f"{chosen(s, tool)} I need two calls: {p.name} is {a}, and {p.name} is {b}.", [(tool.name, {p.name: a}), (tool.name, {p.name: b})], outs)
    s.say("I have both results.", f"The results are:\n{fenced(f'{x}: {y}' for x, y in zip((a, b), outs))}")
    return True


def t_two_tools(s, tools):
    """Two different tools in one turn."""
    r = s.r
    if len(tools) < 2:
        return False
    a, b = r.sample(tools, 2)
    aa, ab = a.draw(r), b.draw(r)
    named = by_name(r)
    s.user(a.request(r, aa, named).rstrip(".") + r.choice(["; and also ", ". Also ", " and then "]) + (lambda x: x[0].lower() + x[1:])(b.request(r, ab)))
    outs = [n.sentence(r, 2, 6) if r.random() < 0.5 else n.value(r) for _ in range(2)]
    s.call_raw(choice(s, a, aa, named) + "\n" + choice(s, b, ab, also="also "), [(a.name, aa), (b.name, ab)], outs)
    s.say("I have both results.", f"The results are:\n{fenced(f'{t.name}: {y}' for t, y in zip((a, b), outs))}")
    return True


def t_chain(s, tools):
    """The result of one tool is a parameter of the next."""
    r = s.r
    fit = [t for t in tools if len(t.params) == 1 and t.params[0].kind == "string"]
    first = [t for t in tools if t not in fit[:1]]
    if not fit or not first:
        return False
    a, b = r.choice(first), fit[0]
    args, p = a.draw(r), b.params[0]
    named, then_named = by_name(r), r.random() < 0.35
    tail = [", then call {n} with the result as {p}."] if then_named else [", then {w} with the result as {p}.", " and use the result as {p} to {w}."]
    s.user(a.request(r, args, named).rstrip(".") + r.choice(tail).format(w=b.what, p=p.name, n=b.name))
    mid = r.choice([n.noise(r, 5, 12), n.stem(r), n.word(r), str(n.number(r))]) if r.random() < 0.9 else failure(r)
    s.call_raw(choice(s, a, args, named), [(a.name, args)], [mid])
    if mid.startswith("error: "):
        report(s, mid)
        return True
    text, _ = result(r)
    s.call_raw(f"The result is {mid}. {choice(s, b, {p.name: mid}, then_named, 'then ')}", [(b.name, {p.name: mid})], [text])
    report(s, text)
    return True


def t_none(s, tools):
    """A request that no offered tool can do."""
    other = Tool(s.r, tools)
    if any(x["function"]["name"] == other.name or gist(x["function"]["description"]).lower() == other.what.lower() for x in s.tools):
        return False
    s.user(other.request(s.r, other.draw(s.r)))
    s.say(f"{chosen(s, other)}\nNo tool can do this.", "I cannot do that with my tools.")
    return True


WHICH_ASK = ["Which tool can {w}?", "Which tool do I need to {w}?", "What tool would you use to {w}?", "How would you {w}?", "Which of your tools can {w}?", "Name the tool to {w}.", "Do you have a tool to {w}?", "Is there a tool to {w}?"]
DOES_ASK = ["What does {n} do?", "What is {n} for?", "Describe {n}.", "What can {n} do?", "Explain the tool {n}."]
TAKES_ASK = ["Which parameters does {n} take?", "What does {n} need?", "List the parameters of {n}.", "What are the arguments of {n}?", "How do I call {n}?"]


def t_which(s, tools):
    """Which tool does something, without calling it."""
    r = s.r
    missing = r.random() < 0.2
    tool = Tool(r, tools) if missing else r.choice(tools)
    if missing and any(x["function"]["name"] == tool.name or gist(x["function"]["description"]).lower() == tool.what.lower() for x in s.tools):
        return False
    s.user(ph.say(r, WHICH_ASK, w=tool.what))
    if missing:
        s.say(f"{chosen(s, tool)}\nNo tool can do this.", f"I have no tool to {tool.what}.")
    else:
        s.say(chosen(s, tool), f"To {tool.what}, I would use {tool.name}.")
    return True


def t_does(s, tools):
    """What a tool is for, or what it takes, from its schema."""
    r, tool = s.r, s.r.choice(tools)
    if r.random() < 0.55:
        s.user(ph.say(r, DOES_ASK, n=tool.name))
        s.say(f"I will quote the description of {tool.name}.", f"{tool.name}: {tool.description}")
        return True
    s.user(ph.say(r, TAKES_ASK, n=tool.name))
    names = [f"{p.name} ({'required' if p.required else 'optional'})" for p in tool.params]
    required = [p.name for p in tool.params if p.required]
    s.say(f"{tool.name} needs {', '.join(required) or 'nothing'}.", f"{tool.name} takes:\n{fenced(names)}" if names else f"{tool.name} takes no parameters.")
    return True


TASKS = {t_one: 10, t_missing: 4, t_pair: 1.5, t_two_tools: 2.5, t_chain: 2, t_none: 3, t_which: 1, t_does: 1}
WHICH = {t_which: 6, t_does: 1.5, t_none: 1, t_one: 2}  # of short sessions about choosing
