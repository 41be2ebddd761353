"""Runs a command on a terminal of its own, and types when it is ready.

Usage: terminal.py LOG STEPS COMMAND..

Each step, separated by a comma, is `WORD=KEY`: when WORD is in the file LOG, or with `@`
before it on the terminal, KEY is typed: a character, or ^ and a letter; with `!` before it,
it is written to LOG instead. The key `~` hangs the terminal up. Writes what the terminal showed to stdout, and ends with the
command's status as a shell tells it, after 30 s with 99.
"""

import os
import pty
import select
import signal
import sys
import time

log, steps, command = sys.argv[1], sys.argv[2].split(","), sys.argv[3:]
pid, terminal = pty.fork()
if pid == 0:
    for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    os.execvp(command[0], command)

until, shown, open_ = time.monotonic() + 30, b"", True
status = None
while status is None:
    ready, _, _ = select.select([terminal] if open_ else [], [], [], 0.02)
    if ready:
        try:
            shown += os.read(terminal, 4096)
        except OSError:
            open_ = False
    if steps:
        word, key = steps[0].split("=", 1)
        if word.startswith("@"):
            there = word[1:].encode() in shown
        else:
            with open(log, "rb") as lines:
                there = word.encode() in lines.read().split()
        if there:
            steps.pop(0)
            if key.startswith("!"):
                with open(log, "a") as lines:
                    lines.write(key[1:] + "\n")
                continue
            if key == "~":
                os.close(terminal)
                open_ = False
                continue
            key = chr(ord(key[1]) - 64) if key.startswith("^") else key
            os.write(terminal, key.encode())
    ended, code = os.waitpid(pid, os.WNOHANG)
    if ended:
        status = 128 + os.WTERMSIG(code) if os.WIFSIGNALED(code) else os.WEXITSTATUS(code)
        # A shell does not tell whether it died of a signal.
        shown += b"\n[signal]" if os.WIFSIGNALED(code) else b"\n[status]"
    elif until < time.monotonic():
        os.kill(pid, signal.SIGKILL)
        sys.stdout.buffer.write(shown)
        sys.exit(99)
sys.stdout.buffer.write(shown)
sys.stdout.flush()
sys.exit(status)
