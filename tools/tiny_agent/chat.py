"""Renders conversations with the model's own chat template, under the settings transformers uses."""
import json
import pathlib

from jinja2.sandbox import ImmutableSandboxedEnvironment

MODEL_DIR = pathlib.Path(__file__).resolve().parents[2] / "models" / "tiny-agent"


def _tojson(x, **_):
    return json.dumps(x, ensure_ascii=False)


def _raise(message):
    raise ValueError(message)


def load_template(path=MODEL_DIR / "chat_template.jinja"):
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = _tojson
    env.globals["raise_exception"] = _raise
    return env.from_string(pathlib.Path(path).read_text(encoding="utf-8"))


_template = None


def render(messages, tools, enable_thinking, generation_prompt=False):
    global _template
    _template = _template or load_template()
    return _template.render(messages=messages, tools=tools or None, add_generation_prompt=generation_prompt, enable_thinking=enable_thinking)


ASSISTANT = "<|im_start|>assistant\n"
END = "<|im_end|>"


def spans(text, enable_thinking):
    """[start, end) of what the model itself writes in a rendered session: after each generation prompt, up to and with <|im_end|>."""
    out, at = [], 0
    prompt = ASSISTANT + ("<think>\n" if enable_thinking else "<think>\n\n</think>\n\n")
    while (i := text.find(prompt, at)) >= 0:
        start = i + len(prompt)
        at = text.index(END, start) + len(END)
        out.append((start, at))
    return out
