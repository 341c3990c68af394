"""How answers name and show things."""


def here(path):
    """How an answer names a directory."""
    return "this directory" if path in (".", "./") else path


def subject(path):
    """The same at the start of a sentence; a name stays as it is."""
    return "This directory" if path in (".", "./") else path


def fenced(lines):
    """Lines as they came: a name at a line's start is the same tokens in a result and in an answer."""
    return "```\n" + "\n".join(lines) + "\n```"


def numbered(items):
    return "\n".join(f"{x} ({i})" for i, x in enumerate(items, 1))


def plural(count, one, many=None):
    return f"{count} {one if count == 1 else (many or one + 's')}"


def tail(more):
    return [f"... {more} more"] if more else []


def uniq(items):
    return list(dict.fromkeys(items))
