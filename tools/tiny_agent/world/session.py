"""One conversation being written: messages so far, the offered tools, and what has been seen."""
from . import tools as t

RENAMES = {
    "list_dir": (["ls", "list_files", "list_directory", "browse", "dir", "show_folder", "listEntries", "fs_list"], {"path": ["dir", "directory", "folder", "target", "path"]}),
    "read_file": (["cat", "open_file", "view", "get_text", "read", "readText", "fs_read", "show_file"], {"path": ["file", "filename", "file_path", "name", "path"], "start_line": ["from_line", "offset", "first", "start_line"]}),
    "search": (["grep", "find_text", "search_text", "lookup", "findLines", "fs_search"], {"pattern": ["query", "text", "needle", "q", "pattern"], "path": ["where", "scope", "dir", "path"]}),
    "calc": (["calculator", "evaluate", "compute", "math", "eval_expr"], {"expression": ["expr", "input", "formula", "expression"]}),
    "write_file": (["save_file", "put_text", "create_file", "write", "fs_write"], {"path": ["file", "filename", "dest", "path"], "content": ["text", "body", "data", "content"]}),
}


def renamed(r, name):
    """(schema, parameter names) of a built-in tool under another name, the same parameters in the same order."""
    f = t.BUILTIN[name]["function"]
    names, params = RENAMES[name]
    to = {p: r.choice(params[p]) for p in f["parameters"]["properties"]}
    props = {to[p]: dict(d) for p, d in f["parameters"]["properties"].items()}
    return t.schema(r.choice(names), f["description"], props, [to[p] for p in f["parameters"]["required"]]), to


class Session:
    def __init__(self, r, world, think):
        self.r, self.world, self.think = r, world, think
        self.messages, self.tools, self.builtin = [], [], {}
        self.listings, self.reads, self.result, self.facts = [], [], None, {}

    # Set-up ---------------------------------------------------------------------------------------------------------------------

    def offer(self, names, rename):
        for name in names:
            schema, to = renamed(self.r, name) if rename else (t.BUILTIN[name], None)
            if schema["function"]["name"] not in [x["function"]["name"] for x in self.tools]:
                self.tools.append(schema)
                self.builtin[name] = (schema["function"]["name"], to)

    def has(self, *names):
        return all(n in self.builtin for n in names)

    def tool(self, name):
        """The offered name of a built-in tool."""
        return self.builtin[name][0]

    # Turns ----------------------------------------------------------------------------------------------------------------------

    def user(self, text):
        self.messages.append({"role": "user", "content": text.strip()})

    def _assistant(self, thought, content, calls=None):
        m = {"role": "assistant", "reasoning_content": thought.strip() if self.think else "", "content": content.strip()}
        if calls:
            m["tool_calls"] = [{"function": {"name": name, "arguments": args}} for name, args in calls]
        self.messages.append(m)

    def say(self, thought, content):
        self._assistant(thought, content)

    def call_raw(self, thought, calls, results):
        """Calls of tools that are not built in, with their results."""
        self._assistant(thought, "", calls)
        self.messages += [{"role": "tool", "content": x.strip()} for x in results]

    def call(self, thought, *calls):
        """Built-in calls (name, {parameter: value}); returns the results as the model sees them (trimmed)."""
        offered, results = [], []
        for name, args in calls:
            shown, to = self.builtin[name]
            offered.append((shown, {(to[k] if to else k): v for k, v in args.items()}))
            results.append(t.RUN[name](self.world, **args).strip())
        self.call_raw(thought, offered, results)
        return results

    def one(self, thought, name, **args):
        return self.call(thought, (name, args))[0]

    def last_call_was(self, name, args):
        """Whether the last call of the conversation, not long ago and followed by an answer, is this one alone: what "it" and "them" mean then."""
        if not self.has(name) or self.messages[-1]["role"] != "assistant":
            return False
        shown, to = self.builtin[name]
        want = [{"function": {"name": shown, "arguments": {(to[k] if to else k): v for k, v in args.items()}}}]
        return next((m["tool_calls"] for m in reversed(self.messages[-8:]) if m.get("tool_calls")), None) == want

    def chars(self):
        return sum(len(m["content"]) + len(m.get("reasoning_content", "")) + 30 + len(str(m.get("tool_calls", ""))) for m in self.messages) + len(str(self.tools))
