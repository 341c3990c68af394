"""Tasks of arithmetic: numbers of files, and expressions in the request."""
import re
from fractions import Fraction

from .. import facts as f
from .. import names as n
from .. import phrases as ph
from .. import texts
from .access import get_text
from .picking import bare_is_listed, keyed

SUM_ASK = ["What is the sum of the numbers in {f}?", "Add up the numbers in {f}.", "Sum the numbers in {f}.", "Total of the numbers in {f}?", "Read {f} and add up all numbers.", "Read {f} and sum the values.", "What do the numbers in {f} add up to?", "Calculate the total of {f}."]
AVG_ASK = ["What is the average of the numbers in {f}?", "Average of the numbers in {f}?", "Compute the mean of {f}.", "Read {f} and give me the average."]
EXTREME_ASK = {
    "biggest": ["What is the biggest number in {f}?", "Which number in {f} is the biggest?", "Find the biggest number in {f}.", "biggest number in {f}?"], "largest": ["What is the largest number in {f}?", "Read {f} and tell me the largest number.", "Which is the largest value in {f}?"],
    "highest": ["What is the highest number in {f}?", "What is the highest value in {f}?"], "smallest": ["What is the smallest number in {f}?", "Read {f} and tell me the smallest number.", "Which number in {f} is the smallest?"], "lowest": ["What is the lowest number in {f}?", "What is the lowest value in {f}?"],
}
COL_ASK = ["What is the sum of the {k} column in {f}?", "Add up {k} in {f}.", "Total {k} in {f}?", "Sum the column {k} of {f}."]


def line_numbers(lines):
    """The last number of each line that ends in one, as text."""
    return [m.group(1) for m in (re.search(r"(?:^|[\s,:=;])(-?\d+(?:\.\d+)?)\s*;?$", x) for x in lines) if m]


def addends(text):
    lines = text.strip().split("\n") if text else []
    return 2 <= len(lines) <= 8 and len(line_numbers(lines)) == len(lines)


def numbers_file(s):
    """A file whose lines all end in a number, or None."""
    r = s.r
    pool = [p for p, t in s.world.files.items() if addends(t)]
    if not pool and not s.listings:  # nobody has looked yet, so the file can still have been there
        name = n.stem(r) + r.choice([".txt", ".dat", ".list"])
        s.world.add(name, r.choice([texts.numbers, texts.ledger])(r))
        pool = [name] if addends(s.world.files.get(name)) else []
    path = r.choice(pool) if pool else None
    return None if path is None or bare_is_listed(s, path) else path


def t_extreme(s):
    """The largest or smallest number of a file, carried along from number to number in the answer."""
    if not s.has("read_file"):
        return False
    path = numbers_file(s)
    if path is None:
        return False
    which = s.r.choice(list(EXTREME_ASK))
    said, call = ph.file(s.r, path, s.world.root)
    s.user(ph.say(s.r, EXTREME_ASK[which], f=said))
    got = get_text(s, call)
    if not got:
        return True
    nums, best, steps = line_numbers(got[1]), None, []
    beats = (lambda a, b: a > b) if which in ("biggest", "largest", "highest") else (lambda a, b: a < b)
    for x in nums:
        best = x if best is None or beats(Fraction(x), Fraction(best)) else best
        steps.append(f"{x} ({best})")
    s.say("I will go through the numbers and keep the best so far.", f"{', '.join(steps)}\nThe {which} number in {got[0]} is {best}.")
    s.result = None
    return True


def t_sum(s):
    if not s.has("read_file", "calc"):
        return False
    r = s.r
    avg = r.random() < 0.25
    path = numbers_file(s)
    if path is None:
        return False
    said, call = ph.file(r, path, s.world.root)
    s.user(ph.say(r, AVG_ASK if avg else SUM_ASK, f=said))
    got = get_text(s, call)
    if not got:
        return True
    path, lines, _ = got
    nums = line_numbers(lines)
    expr = " + ".join(nums)
    expr = f"({expr}) / {len(nums)}" if avg else expr
    listed = ", ".join(f"{i}: {x}" for i, x in enumerate(nums, 1)) if avg else ", ".join(nums)
    total = s.one(f"The numbers are {listed}.", "calc", expression=expr)
    s.say("I have the result.", f"The {'average' if avg else 'sum'} of the numbers in {path} is {total}.")
    s.result = total
    return True


def t_column(s):
    if not s.has("read_file", "calc"):
        return False
    r = s.r
    pool = [p for p, t in s.world.files.items() if t and p.endswith(".csv") and t.count("\n") <= 8 and "," in t and not bare_is_listed(s, p)]
    if not pool:
        return False
    path = r.choice(pool)
    head, *rows = [x.split(",") for x in s.world.files[path].strip().split("\n")]
    cols = [i for i in range(1, len(head)) if rows and all(len(x) == len(head) and f.number_of(x[i]) for x in rows)]
    if not cols or len(set(head)) < len(head):
        return False
    i = r.choice(cols)
    said, call = ph.file(r, path, s.world.root)
    s.user(ph.say(r, COL_ASK, f=said, k=ph.quoted(r, head[i])))
    got = get_text(s, call)
    if got:
        nums = [x[i] for x in rows]
        total = s.one(f"The numbers are {', '.join(nums)}.", "calc", expression=" + ".join(nums))
        s.say("I have the result.", f"The sum of {head[i]} in {got[0]} is {total}.")
        s.result = total
    return True


def t_two_values(s):
    """Arithmetic on the same or different keys of one or two files."""
    if not s.has("read_file", "calc"):
        return False
    r, w = s.r, s.world
    pool = [(p, k, f.key_value(x)) for p in w.text_files() if keyed(p) and len(w.files[p]) < 900 and not bare_is_listed(s, p) and " " not in p for k, x in f.keys(w.files[p].split("\n")).items() if f.number_of(f.key_value(x))]
    if len(pool) < 2:
        return False
    (pa, ka, _), (pb, kb, _) = r.sample(pool, 2)
    op, ask = r.choice([("+", ["What is {a} plus {b}?", "Add {a} and {b}.", "What is the sum of {a} and {b}?"]), ("-", ["What is {a} minus {b}?", "What is the difference between {a} and {b}?"]), ("*", ["What is {a} times {b}?", "Multiply {a} by {b}."])])
    qa, qb = ph.quoted(r, ka), ph.quoted(r, kb)
    if pa == pb:
        s.user(ph.say(r, [t.rstrip("?.") + " in {f}" + t[-1] for t in ask], a=qa, b=qb, f=ph.quoted(r, pa)))
        outs = s.call(f"I need the text of {pa}. I will call {s.tool('read_file')}.", ("read_file", {"path": pa})) * 2
    else:
        s.user(ph.say(r, ask, a=f"{qa} in {ph.quoted(r, pa)}", b=f"{qb} in {ph.quoted(r, pb)}"))
        outs = s.call("I need both files. I will read them together.", ("read_file", {"path": pa}), ("read_file", {"path": pb}))
    la, lb = f.keys(f.split_more(outs[0], f.MORE_LINES)[0]).get(ka), f.keys(f.split_more(outs[1], f.MORE_LINES)[0]).get(kb)
    if not la or not lb:
        miss, where = (ka, pa) if not la else (kb, pb)
        s.say(f"There is no line for {miss}.", f"There is no {miss} in {where}.")
        return True
    expr = f"{f.key_value(la)} {op} {f.key_value(lb)}"
    out = s.one(f"{ka} is {f.key_value(la)} and {kb} is {f.key_value(lb)}.", "calc", expression=expr)
    s.say("I have the result.", f"{expr} = {out}.")
    s.result = out
    return True


def number(r):
    """A number as somebody types it."""
    k = r.random()
    return str(n.number(r)) if k < 0.78 else f"{r.randint(0, 99)}.{r.randint(1, 99)}" if k < 0.92 else str(r.randint(100000, 9999999999)) if k < 0.97 else f"0.{r.randint(1, 999):03d}"


def expression(r, depth=0):
    """An expression of two to four parts, parts in parentheses among them; spaces are up to the caller."""
    parts = [f"({expression(r, depth + 1)})" if depth < 2 and r.random() < 0.22 else number(r) for _ in range(r.choice([2, 2, 2, 3, 3, 4]))]
    out = parts[0]
    for x in parts[1:]:
        out += r.choice(" + | - | * | / ".split("|")) + x
    return out


POWER_MAX = 10  # of a power that is written out


def t_power(s):
    """Powers: the tool has none, so a small one is written out."""
    r = s.r
    a, k = str(r.randint(2, 12)) if r.random() < 0.7 else str(n.number(r)), r.choice([2, 3, 2, 3, r.randint(4, POWER_MAX), r.choice([8, 10, 16, 32, 64, r.randint(11, 99)])])
    ask = [f"What is {{a}}{x}{{k}}?" for x in ("^", " ^ ", "**", " to the power of ", " to the power ", " to the ")] + ["{a}^{k}", "{a}**{k}", "Calculate {a}^{k}.", "Raise {a} to the power of {k}."]
    s.user(ph.say(r, ask + ["What is {a} squared?", "What is the square of {a}?"] * 2 if k == 2 else ask + ["What is {a} cubed?", "What is the cube of {a}?"] * 2 if k == 3 else ask, a=a, k=k))
    if not s.has("calc"):
        s.say("There is no tool for arithmetic.", "I have no tool for arithmetic in this session.")
    elif k > POWER_MAX:
        s.say("The tool has no powers, and this one is too large to write out.", f"My tool has no powers, and {a} to the power of {k} is too long to write out.")
    else:
        expr = " * ".join([a] * k)
        out = s.one(f"This is a power: {k} times the factor {a}.", "calc", expression=expr)
        s.say("I have the result.", f"{expr} = {out}.")
        s.result = out
    return True


def t_calc(s):
    """Arithmetic in the message, as an expression or in words."""
    r = s.r
    a, b, c = number(r), number(r), number(r)
    k = r.random()
    if k < 0.07:
        return t_power(s)
    if k < 0.5:
        expr = r.choice([f"{a} {r.choice('+-*/')} {b}", f"{a} {r.choice('+-*')} {b} {r.choice('+-*')} {c}", f"({a} {r.choice('+-')} {b}) {r.choice('*/')} {c}", f"{a} * ({b} - {c})", f"{a}{r.choice('+-*/')}{b}", f"{a} / {b}"]) if r.random() < 0.4 else expression(r)
        expr = expr.replace(" ", "") if r.random() < 0.4 else expr
        s.user(ph.say(r, ["What is {e}?", "{e}", "Calculate {e}.", "{e} = ?", "Compute {e}.", "How much is {e}?", "what's {e}", "Evaluate {e}.", "solve {e}", "{e}=", "calc {e}", "Work out {e}.", "What does {e} give?", "What is the result of {e}?"], e=expr))
    else:
        ask, expr = r.choice([("What is {a} plus {b}?", f"{a} + {b}"), ("What is {a} minus {b}?", f"{a} - {b}"), ("What is {a} times {b}?", f"{a} * {b}"), ("What is {a} divided by {b}?", f"{a} / {b}"), ("Multiply {a} by {b}.", f"{a} * {b}"),
                              ("Divide {a} by {b}.", f"{a} / {b}"), ("Add {a} and {b}.", f"{a} + {b}"), ("Subtract {b} from {a}.", f"{a} - {b}"), ("What is {a} percent of {b}?", f"{b} * {a} / 100"), ("What is {a}% of {b}?", f"{b} * {a} / 100"),
                              ("What is the sum of {a}, {b} and {c}?", f"{a} + {b} + {c}"), ("Add {a}, {b} and {c}.", f"{a} + {b} + {c}"), ("What is the average of {a}, {b} and {c}?", f"({a} + {b} + {c}) / 3"), ("What is the average of {a} and {b}?", f"({a} + {b}) / 2"),
                              ("What is the product of {a} and {b}?", f"{a} * {b}"), ("What is the difference between {a} and {b}?", f"{a} - {b}"), ("How much is {a} x {b}?", f"{a} * {b}"), ("What is half of {a}?", f"{a} / 2"), ("Double {a}.", f"{a} * 2")])
        s.user(ph.say(r, [ask], a=a, b=b, c=c))
    if not s.has("calc"):
        s.say("There is no tool for arithmetic.", "I have no tool for arithmetic in this session.")
        return True
    out = s.one(f"This is arithmetic. I will call {s.tool('calc')}.", "calc", expression=expr)
    if out.startswith("error: division"):
        s.say("A division by zero has no result.", "I cannot divide by zero.")
    else:
        s.say("I have the result.", f"{expr} = {out}.")
        s.result = out
    return True


def t_calc_followup(s):
    if s.result is None or not s.has("calc") or s.messages[-1]["role"] != "assistant" or s.result not in s.messages[-1]["content"] or not f.number_of(s.result) or s.result.startswith("-"):
        return False
    r, b = s.r, str(n.number(s.r))
    ask, op = r.choice([("And times {b}?", f"* {b}"), ("Multiply that by {b}.", f"* {b}"), ("Add {b} to it.", f"+ {b}"), ("Now subtract {b}.", f"- {b}"), ("Divide that by {b}.", f"/ {b}"), ("And plus {b}?", f"+ {b}"), ("Double it.", "* 2"), ("And half of that?", "/ 2")])
    s.user(ph.say(r, [ask], b=b))
    expr = f"{s.result} {op}"
    out = s.one(f"The last result is {s.result}.", "calc", expression=expr)
    if out.startswith("error: "):
        s.say("A division by zero has no result.", "I cannot divide by zero.")
    else:
        s.say("I have the result.", f"{expr} = {out}.")
        s.result = out
    return True
