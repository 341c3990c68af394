#!/usr/bin/env python3
"""The chat prompt on a real terminal: agent_terminal.py --sluice build/check/sluice

Colour and NO_COLOR, a line typed and answered, Ctrl-D ends with 0, Ctrl-C at the prompt ends with 130, Ctrl-C during an answer only
ends that answer.
"""
import argparse
import os
import pty
import select
import sys
import time

TIMEOUT_S = 120


class Terminal:
    def __init__(self, command, **environment):
        self.text = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.pop("NO_COLOR", None)
            os.environ.update(environment)
            os.execv(command[0], command)

    def read(self):
        """False at the end."""
        try:
            data = os.read(self.fd, 4096)
        except OSError:
            return False
        self.text += data.decode(errors="replace")
        return bool(data)

    def wait_for(self, what, start=0):
        end = time.monotonic() + TIMEOUT_S
        while what not in self.text[start:]:
            ready = select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]
            if not ready or not self.read():
                raise AssertionError(f"waited for {what!r}, got {self.text[start:]!r}")

    def type(self, text):
        start = len(self.text)
        os.write(self.fd, text.encode())
        return start

    def exit_code(self):
        while self.read():
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def expect(name, got, wanted):
    if got != wanted:
        raise AssertionError(f"{name}: got {got!r}, wanted {wanted!r}")


def a_question_and_the_end(command):
    terminal = Terminal(command)
    terminal.wait_for("> ")
    start = terminal.type("What is 2 + 3?\n")
    terminal.wait_for("tokens/s]", start)
    if "\x1b[" not in terminal.text:
        raise AssertionError("no colour on a terminal")
    terminal.wait_for("\n> ", start)
    terminal.type("\x04")
    expect("exit code after Ctrl-D", terminal.exit_code(), 0)


def no_colour(command):
    terminal = Terminal(command + ["--task", "What is 2 + 3?"], NO_COLOR="1")
    terminal.wait_for("tokens/s]")
    terminal.exit_code()
    if "\x1b" in terminal.text:
        raise AssertionError("colour in spite of NO_COLOR")


def interrupt_at_the_prompt(command):
    terminal = Terminal(command)
    terminal.wait_for("> ")
    terminal.type("\x03")
    expect("exit code after Ctrl-C", terminal.exit_code(), 130)


def interrupt_an_answer(command):
    # Without stops an answer goes on until it is interrupted: a high temperature does not end by itself soon.
    terminal = Terminal(command + ["--temperature", "50", "--max-tokens", "20000", "--context", "32768"])
    terminal.wait_for("> ")
    start = terminal.type("Talk.\n")
    terminal.wait_for("thought: ", start)
    terminal.type("\x03")
    terminal.wait_for("interrupted", start)
    terminal.wait_for("\n> ", start)
    terminal.type("\x04")
    expect("exit code after an interrupted answer", terminal.exit_code(), 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sluice", required=True)
    command = [os.path.abspath(parser.parse_args().sluice), "agent"]
    failed = 0
    for case in (a_question_and_the_end, no_colour, interrupt_at_the_prompt, interrupt_an_answer):
        try:
            case(command)
            print("ok", case.__name__)
        except AssertionError as error:
            failed += 1
            print("FAILED", case.__name__, error)
    sys.exit(1 if failed else 0)


main()
