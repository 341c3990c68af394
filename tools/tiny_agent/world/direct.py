"""Turns without a tool: talk, questions about the agent, facts from the system text or from the user, and what it cannot do."""
from . import names as n
from . import phrases as ph
from .tasks.wording import fenced

GREET = ["Hello", "Hi", "hey", "hello there", "Good morning", "Hi!", "Hello!", "hey there!", "good evening", "Hi there", "yo", "Greetings", "hello :)", "moin", "hi agent"]
THANKS = ["Thanks", "thank you", "Thanks!", "Thank you very much.", "great, thanks", "thx", "Perfect, thank you!", "ok thanks", "many thanks", "cheers", "That helped, thanks.", "ty"]
BYE = ["bye", "Goodbye", "See you", "bye bye", "that's all", "Good night", "exit", "quit", "see you later", "I am done."]
ACK = ["ok", "Okay.", "great", "nice", "cool", "good", "I see.", "Well done.", "perfect", "alright", "got it", "wow", "yes", "fine"]
HOW = ["How are you?", "how are you doing?", "How is it going?", "what's up?", "are you there?", "you ok?"]
WHO = ["Who are you?", "What are you?", "what is your name?", "Introduce yourself.", "Tell me about yourself.", "Which model are you?", "Are you an AI?", "who am I talking to?", "What's your name?"]
CAN = ["What can you do?", "What tools do you have?", "How can you help me?", "help", "Which tools can you use?", "What are your tools?", "List your tools.", "what can I ask you?", "Which functions do you have?", "Tell me what you can do.", "What are you able to do?", "?", "What can you do here?", "What can I do here?", "what can you do for me?", "How do I use you?", "What are you good for?", "What do you know how to do?", "/help"]
ASK_OFF = ["What is the capital of {x}?", "Who wrote {x}?", "How old is {x}?", "Why is the sky blue?", "What is the weather in {x}?", "Who won the {x} cup?", "When was {x} founded?", "What is the meaning of life?", "How do I cook {x}?", "What time is it?", "Do you like {x}?", "Where is {x} on the map?",
           "How far is it to {x}?", "What does {x} mean in English?", "Who is the president of {x}?", "What day is it today?", "How many people live in {x}?", "Is {x} better than {y}?", "What is the population of {x}?", "Which is the tallest mountain?", "Why do cats sleep so much?", "How does a {x} work?", "Who invented the {x}?", "Can fish feel pain?"]
DO_OFF = ["Write a poem about {x}.", "Tell me a joke.", "Delete {f}.", "Remove the file {f}.", "Rename {f} to {g}.", "Run {f}.", "Execute the tests.", "Compile the project.", "Download {x}.", "Send an email to {x}.", "Translate {x} into German.", "Open the browser.", "Install {x}.", "Commit the changes.", "Create a folder called {x}.",
          "Fix the bug in {f}.", "Sort the lines of {f}.", "Draw a picture of {x}.", "Play some music.", "Sing a song.", "Refactor {f}.", "Start the server.", "Push to the remote.", "Book a flight to {x}.", "Order a pizza.", "Call {x}.", "Make {f} executable.", "Tell me a story about {x}.", "Build the project.", "rm {f}", "Update {x} to the latest version.", "Shut down the computer."]
THINGS = "deployment port,project name,code word,release date,support address,database host,owner,default branch,office city,ticket number,api key,favourite color,meeting room,budget,deadline,team lead,build number,licence plate,wifi password,backup server,customer id,shift start".split(",")


def system_text(s):
    """A system text, or None. Facts and the agent's name in it can be asked for."""
    r = s.r
    if r.random() < 0.5:
        return None
    parts = []
    k = r.random()
    if k < 0.35:
        s.facts["@name"] = r.choice([n.invented(r).capitalize(), n.word(r).capitalize(), n.noise(r, 3, 7)])
        parts.append(r.choice(["You are {x}, a helpful assistant.", "You are {x}.", "Your name is {x}.", "You are {x}, an agent that answers questions about files."]).format(x=s.facts["@name"]))
    elif k < 0.8:
        parts.append(r.choice(["You are a helpful assistant.", "You are a careful agent. Use the tools.", "Answer briefly.", "You help a developer with a repository.", "Be concise.", "You are a coding agent. Use the tools to answer questions about the files.", "Use tools when you need facts.", "You can look at files.",
                               "You are an agent in a terminal. The user asks about the files in the current directory.", n.sentence(r)]))
    if r.random() < 0.4:
        for _ in range(r.randint(1, 4)):
            thing = r.choice(THINGS) if r.random() < 0.8 else f"{n.word(r)} {n.word(r)}"
            if thing not in s.facts:
                s.facts[thing] = r.choice([n.value(r), n.word(r), n.noise(r, 4, 10), str(n.number(r))])
                parts.append(r.choice(["The {k} is {v}.", "{K}: {v}."]).format(k=thing, K=thing.capitalize(), v=s.facts[thing]))
    if r.random() < 0.15:
        parts.append(f"The root directory is {s.world.root}.")
    return r.choice([" ", "\n"]).join(parts) or None


def t_talk(s):
    r = s.r
    kind, asks = r.choice([("greet", GREET), ("greet", GREET), ("thanks", THANKS), ("thanks", THANKS), ("bye", BYE), ("ack", ACK), ("how", HOW)])
    s.user(r.choice(asks) + (r.choice(["", "", ".", "!"]) if kind not in ("how",) else ""))
    thought, text = {"greet": ("This is a greeting.", "Hello! What shall I look at?"), "thanks": ("The user thanks me.", "You are welcome."), "bye": ("The user is leaving.", "Goodbye."), "ack": ("There is nothing to do.", "Good. What is next?"), "how": ("This is small talk.", "I am ready. What shall I look at?")}[kind]
    s.say(thought, text)
    return True


def t_who(s):
    s.user(ph.say(s.r, WHO))
    name = s.facts.get("@name")
    s.say("The user asks who I am.", f"I am {name}." if name else "I am tiny-agent, a small language model that runs in sluice.")
    return True


def t_can(s):
    s.user(ph.say(s.r, CAN) if s.r.random() < 0.8 else s.r.choice(CAN))
    lines = [f"{t['function']['name']}: {t['function']['description']}" for t in s.tools]
    s.say("The user asks what I can do.", f"I can use these tools:\n{fenced(lines)}" if lines else "I have no tools in this session, so I can only talk.")
    return True


def t_off_ask(s):
    r = s.r
    x, y = (r.choice([n.word(r), n.invented(r).capitalize(), r.choice(["France", "Germany", "Paris", "Japan", "London", "Peru", "Oslo", "a car", "bread", "Einstein"])]) for _ in range(2))
    s.user(ph.say(r, ASK_OFF, x=x, y=y))
    s.say("My tools cannot answer this.", "I do not know that: I only know what my tools show me.")
    return True


def t_off_do(s):
    r = s.r
    s.user(ph.say(r, DO_OFF, x=n.word(r), f=n.file_name(r), g=n.file_name(r)))
    s.say("No tool can do this.", "I cannot do that with my tools.")
    return True


def t_fact(s):
    """A fact of the system text, or one the user told before."""
    known = [k for k in s.facts if k != "@name"]
    if not known:
        return False
    k = s.r.choice(known)
    s.user(ph.say(s.r, ["What is the {k}?", "Tell me the {k}.", "what's the {k}?", "Do you know the {k}?", "Which {k} do we have?", "Remind me of the {k}."], k=k))
    s.say(f"I was told: the {k} is {s.facts[k]}.", f"The {k} is {s.facts[k]}.")
    return True


def t_told(s):
    r = s.r
    thing = r.choice(THINGS) if r.random() < 0.7 else f"{n.word(r)} {n.word(r)}"
    if thing in s.facts:
        return False
    v = r.choice([n.value(r), n.word(r), n.noise(r, 4, 10), str(n.number(r))])
    if v.endswith("."):
        return False
    s.facts[thing] = v
    s.user(ph.say(r, ["The {k} is {v}.", "Remember: the {k} is {v}.", "Remember that the {k} is {v}.", "Note that the {k} is {v}."], k=thing, v=v))
    s.say("I will remember it.", f"Noted: the {thing} is {v}.")
    return True


MARKUP = {"<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"}  # single tokens of the protocol: in a user's text the engine spells them out, which a rendered text cannot show


def t_repeat(s):
    r = s.r
    odd = [n.noise(r, 5, 24), n.stem(r), n.file_name(r), n.code_ident(r), "/".join(n.stem(r) for _ in range(3))]
    odd = r.choice([odd[:r.randint(1, 5)], n.series(r)[:r.randint(2, 6)], [odd[2]] + [n.near(r, odd[2]) for _ in range(r.randint(1, 3))]])
    tag = f"{r.choice(['<', '</', '<|', '&lt;', '[', '{'])}{r.choice([n.word(r), n.ident(r), 'im_end', 'think', 'user', 'system', 'assistant', 'tool_call', 'b', 'div'])}{r.choice(['>', '/>', '|>', ']', '}'])}"
    if tag in MARKUP:
        return False
    x = tag + r.choice(["", " ", " " + n.word(r) + " "]) + r.choice(["", n.word(r), tag]) if r.random() < 0.12 else r.choice([", ".join(odd), " ".join(odd), n.sentence(r, 1, 8), n.noise(r, 5, 40), " ".join(n.word(r) for _ in range(r.randint(1, 6))), f"{n.ident(r)} = {n.value(r)}"]).replace('"', "").rstrip()
    s.user(r.choice(['Repeat after me: "{x}"', 'Say "{x}".', 'repeat: "{x}"', 'Say exactly "{x}"', 'Please repeat "{x}"', 'echo "{x}"']).format(x=x))
    s.say("I will repeat the text.", x)
    return True


TASKS = {t_talk: 5, t_who: 2, t_can: 3, t_off_ask: 2.5, t_off_do: 2.5, t_fact: 5, t_told: 1.5, t_repeat: 2}
