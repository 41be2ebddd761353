"""kazoo's locks, driven by the lines described in peer.rs. Each contender is a thread."""

import queue
import sys
import threading

import kazoo.version
from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock, ReadLock, WriteLock
from kazoo.retry import KazooRetry


class Container:
    """A Lock with this and Curator's names is as docs/interop.md shows it."""

    assured_path = property(lambda self: False, lambda self, known: None)


class CuratorLock(Container, Lock):
    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["-lock-"]


class CuratorReadLock(Container, ReadLock):
    _NODE_NAME = "__READ__"
    _EXCLUDE_NAMES = ["__WRIT__"]


class CuratorWriteLock(Container, WriteLock):
    _NODE_NAME = "__WRIT__"
    _EXCLUDE_NAMES = ["__READ__", "__WRIT__"]


speaking = threading.Lock()


def say(*words):
    with speaking:
        print(*words, flush=True)


class Contender(threading.Thread):
    """One contender."""

    KINDS = {
        "lock": Lock,
        "read": ReadLock,
        "write": WriteLock,
        "curator-lock": CuratorLock,
        "curator-read": CuratorReadLock,
        "curator-write": CuratorWriteLock,
    }

    def __init__(self, client, name):
        super().__init__(daemon=True)
        self.client = client
        self.id = name
        self.heard = queue.Queue()
        self.locks = {}
        self.start()

    def run(self):
        while True:
            words = self.heard.get()
            try:
                self.obey(words)
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
                say(self.id, "error", text.replace("\n", " "))

    def obey(self, words):
        command, arguments = words[1], words[2:]
        if command == "lock":
            say(self.id, "held", self.lock(*arguments))
        elif command == "release":
            self.release()
            say(self.id, "released")
        elif command == "contenders":
            path = arguments[0]
            texts = self.client.Lock(path, "", ["lock-"]).contenders()
            texts = texts or self.client.Semaphore(path).lease_holders()
            say(self.id, "contenders", "\t".join(texts))
        else:
            raise ValueError(command)

    def lock(self, kind, path):
        kind, _, permits = kind.partition(":")
        if kind == "semaphore":
            lock = self.client.Semaphore(path, "kazoo", int(permits))
        elif kind == "election":
            return self.elect(path)
        elif kind == "patterned":
            lock = Lock(self.client, path, "kazoo", extra_lock_patterns=["lock-"])
        else:
            # A program makes its lock once, too.
            make = self.KINDS[kind]
            lock = self.locks.setdefault((kind, path), make(self.client, path, "kazoo"))
        lock.acquire()
        self.release = lock.release
        return f"{path}/{lock.node}" if hasattr(lock, "node") else "-"

    def elect(self, path):
        election = self.client.Election(path, "kazoo")
        elected, over = threading.Event(), threading.Event()

        def lead():
            elected.set()
            over.wait()

        leader = threading.Thread(target=election.run, args=(lead,), daemon=True)
        leader.start()
        elected.wait()

        def release():
            over.set()
            leader.join()

        self.release = release
        return f"{path}/{election.lock.node}"


def main():
    hosts, timeout = sys.argv[1:]
    forever = KazooRetry(max_tries=-1, delay=0.05, max_delay=0.2)
    client = KazooClient(
        hosts,
        timeout=int(timeout) / 1000,
        connection_retry=forever,
        command_retry=forever,
    )
    client.start(timeout=30)
    say("ready", f"kazoo={kazoo.version.__version__}")
    contenders = {}
    for line in sys.stdin:
        words = line.split()
        if words[0] not in contenders:
            contenders[words[0]] = Contender(client, words[0])
        contenders[words[0]].heard.put(words)
    client.stop()


main()
