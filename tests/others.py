#!/usr/bin/env python3
"""Runs the tests of other clients against a real ZooKeeper and against `zklock serve`.

    tests/others.py [SUITE..]     all of them: kazoo, go-zookeeper, zookeeper

It prints the table of docs/testing.md, and below it the tests that pass on one server only. Every
server, also of a test that starts its own, listens on the loopback interface and keeps its data below
target/others. It needs Debian's packages that tests/all.sh installs; kazoo's source comes with pip,
the crate's is the one that Cargo has. Each test of go-zookeeper and of the crate runs by itself, for three
minutes at most; what it said is in target/others/real and target/others/ours.

Not here: the tests of the crate `zookeeper-client`, which start containers of Docker, and those of Curator
and ZooKeeper, which Debian's packages do not have.

The tests of go-zookeeper and of the crate start their servers with `java`, which is this program
for them (`others.py java ..`). Of ours a cluster is so many single servers: the crate's
client gets the address of the first, which is killed and started again where one of a
cluster would be killed.
"""

import json
import os
import re
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
WORK = TARGET / "others"
PROGRAM = TARGET / "debug/zklock"
DEBIAN = "/usr/share/java/"
JARS = ("zookeeper.jar", "slf4j-simple.jar", "netty-codec.jar", "netty-resolver.jar")
CLASSPATH = os.environ.get("ZKLOCK_TEST_CLASSPATH", ":".join(DEBIAN + jar for jar in JARS))
GOPATH = "/usr/share/gocode"
GO_PACKAGE = "github.com/samuel/go-zookeeper/zk"

# The limits in seconds: for one test, and for a suite that cannot be run test by test.
TEST, SUITE = 180, 2400

SERVERS = ("real", "ours")


def real(config):
    """Returns the command of a real server."""
    java = shutil.which("java", path=os.environ["PATH"].removeprefix(f"{WORK}/bin:"))
    return [java, "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-Dzookeeper.admin.enableServer=false", "-Dzookeeper.4lw.commands.whitelist=*",
            "-Dzookeeper.forceSync=no", "-Dzookeeper.extendedTypesEnabled=true",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", CLASSPATH,
            "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]


def ours(port, data):
    return [str(PROGRAM), "serve", "--listen", f"127.0.0.1:{port}", "--data", str(data),
            "--extended-types"]


def free_ports(count):
    """Returns ports below those that systems give to outgoing connections."""
    sockets = []
    while len(sockets) < count:
        try:
            sockets.append(socket.create_server(("127.0.0.1", 20000 + int.from_bytes(os.urandom(2)) % 12000)))
        except OSError:
            pass
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Server:
    """One server, which can be killed and started again with its data."""

    def __init__(self, which, folder, port, lines=()):
        self.port = port
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        config = folder / "zoo.cfg"
        config.write_text("\n".join([
            "tickTime=2000", f"dataDir={folder}", f"clientPort={port}", "clientPortAddress=127.0.0.1",
            "maxClientCnxns=0", "initLimit=10", "syncLimit=5", "reconfigEnabled=true", *lines, ""]))
        self.command = real(config) if which == "real" else ours(port, folder / "data")
        self.log = open(folder / "log", "ab")
        self.process = None

    def run(self):
        self.stop()
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log)
        end = time.monotonic() + 60
        while not self.answers():
            assert time.monotonic() < end and self.process.poll() is None, self.command

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def answers(self):
        time.sleep(0.05)
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as word:
                word.sendall(b"srvr")
                return b"Mode:" in word.makefile("rb").read()
        except OSError:
            return False


def outcomes_by_test(which, tests, command, folder, environment):
    """Runs each test by itself, and returns those that ran and those that passed."""
    environment = {**os.environ, **environment, "ZKLOCK_OTHERS": which,
                   "PATH": f"{WORK}/bin:{os.environ['PATH']}"}
    outcomes = {}
    for test in tests:
        # The test has a session of its own, so that the servers of a test that hangs end with it.
        run = subprocess.Popen(command(test), cwd=folder, env=environment, text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, start_new_session=True)
        try:
            said, _ = run.communicate(timeout=TEST)
        except subprocess.TimeoutExpired:
            said = "it hangs"
        try:
            os.killpg(run.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        run.wait()
        (WORK / which / f"{test.replace(':', '.')}.log").write_text(said)
        if "--- SKIP" not in said:
            outcomes[test] = run.returncode == 0
    return outcomes


def kazoo(which):
    """kazoo's source package, all modules, on one server that the tests stop and start again."""
    pinned = re.search(r'"(kazoo==[^"]+)"', (ROOT / "crates/testkit/src/kazoo.rs").read_text())[1]
    python = WORK / "venv/bin/python"
    server = Server(which, WORK / which / "kazoo", *free_ports(1))
    server.run()

    class Control(socketserver.StreamRequestHandler):
        def handle(self):
            {"stop": server.stop, "run": server.run}[self.rfile.readline().decode().strip()]()
            self.wfile.write(b"done\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Control) as control:
        threading.Thread(target=control.serve_forever, daemon=True).start()
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests/embedded"),
                       "PYTHONDONTWRITEBYTECODE": "1", "ZOOKEEPER_VERSION": "3.8.0",
                       "ZKLOCK_SUITE_SERVER": f"127.0.0.1:{server.port}",
                       "ZKLOCK_SUITE_CONTROL": "127.0.0.1:%d" % control.server_address[1]}
        said = subprocess.run(
            ["timeout", "--kill-after=10", str(SUITE), python, "-m", "pytest", "-p", "kazoo_suite",
             "-p", "no:cacheprovider", "-q", "--timeout", "60", "--pyargs", "kazoo.tests"],
            cwd=WORK / which, env=environment, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, check=False).stdout
        control.shutdown()
    server.stop()
    (WORK / which / "kazoo.log").write_text(said)
    outcomes = {}
    for outcome, name in re.findall(r"^@ (\w+) (.+)$", said, re.MULTILINE):
        if outcome != "skipped":
            outcomes[name] = outcomes.get(name, True) and outcome == "passed"
    return f"kazoo {pinned.split('==')[1]}", outcomes


def go_zookeeper(which):
    """Debian's go-zookeeper, whose tests start one server or a cluster of three."""
    tests = subprocess.run([WORK / "go.test", "-test.list", "."], cwd=WORK, text=True, check=True,
                           stdout=subprocess.PIPE).stdout.split()
    tests = [test for test in tests if test.startswith("Test")]
    jar = WORK / "jar/contrib/fatjar/zookeeper-0-fatjar.jar"
    jar.parent.mkdir(parents=True, exist_ok=True)
    jar.touch()
    command = lambda test: [WORK / "go.test", "-test.v", "-test.run", f"^{test}$"]
    environment = {"ZOOKEEPER_PATH": str(WORK / "jar")}
    version = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", "golang-github-samuel-go-zookeeper-dev"],
        text=True, stdout=subprocess.PIPE, check=False).stdout
    return f"go-zookeeper {version}", outcomes_by_test(
        which, tests, command, WORK / "go/src" / GO_PACKAGE, environment)


def zookeeper(which):
    """The crate `zookeeper`, whose tests start a cluster and kill one of its servers."""
    folder, version = crate()
    binary = WORK / "zookeeper.test"
    tests = subprocess.run([binary, "--list"], cwd=folder, text=True, check=True,
                           stdout=subprocess.PIPE).stdout
    tests = re.findall(r"^(.+): test$", tests, re.MULTILINE)
    command = lambda test: [binary, "--exact", test, "--nocapture"]
    return f"crate `zookeeper` {version}", outcomes_by_test(which, tests, command, folder, {})


def crate():
    """Returns the folder and the version of the crate that zklock depends on."""
    metadata = json.loads(subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--locked", "--all-features"], cwd=ROOT,
        check=True, stdout=subprocess.PIPE).stdout)
    package = next(each for each in metadata["packages"] if each["name"] == "zookeeper")
    return Path(package["manifest_path"]).parent, package["version"]


def prepare(suites):
    """Builds what the suites take, and the program."""
    say = lambda command, **more: subprocess.run(command, check=True, **more)
    say(["cargo", "build", "--quiet", "-p", "zklock-cli"], cwd=ROOT)
    for which in SERVERS:
        (WORK / which).mkdir(parents=True, exist_ok=True)
    java = WORK / "bin/java"
    java.parent.mkdir(exist_ok=True)
    java.write_text(f'#!/bin/sh\nexec python3 {Path(__file__).resolve()} java "$@"\n')
    java.chmod(0o755)
    if kazoo in suites and not (WORK / "venv").exists():
        pinned = re.search(r'"(kazoo==[^"]+)"', (ROOT / "crates/testkit/src/kazoo.rs").read_text())[1]
        say([sys.executable, "-m", "venv", WORK / "venv"])
        say([WORK / "venv/bin/python", "-m", "pip", "install", "--quiet", "--no-binary", "kazoo",
             pinned, "objgraph", "pytest", "pytest-timeout"])
    if go_zookeeper in suites:
        source = WORK / "go/src" / GO_PACKAGE
        shutil.copytree(f"{GOPATH}/src/{GO_PACKAGE}", source, dirs_exist_ok=True)
        # The suite waits until `srvr` has the format of before 3.6: another date, whole latencies.
        words = (source / "flw.go").read_text()
        for old, new in ((r"(\d\d/\d\d/\d\d\d\d \d\d:\d\d [A-Za-z0-9:\+\-]+)", r"([^\n]+)"),
                         (r"(\d+)/(\d+)/(\d+)`", r"(\d+)/([\d.]+)/(\d+)`"),
                         (r"([A-Za-z0-9\.\-]+), built", r"([^\n]+), built"),
                         ('time.Parse("01/02/2006 15:04 MST", match[1])', "time.Time{}, error(nil)")):
            assert old in words, old
            words = words.replace(old, new)
        (source / "flw.go").write_text(words)
        say(["go", "test", "-c", "-o", WORK / "go.test", GO_PACKAGE],
            env={**os.environ, "GO111MODULE": "off", "GOPATH": str(WORK / "go")})
    if zookeeper in suites:
        source = WORK / "zookeeper"
        shutil.copytree(crate()[0], source, dirs_exist_ok=True)
        built = say(["cargo", "test", "--quiet", "--no-run", "--test", "test", "--message-format", "json",
                     "--target-dir", WORK / "zookeeper-target"], cwd=source, text=True,
                    # The crate is older than the lints of today's compilers.
                    env={**os.environ, "RUSTFLAGS": "--cap-lints warn"},
                    stdout=subprocess.PIPE).stdout
        artifacts = [json.loads(line) for line in built.splitlines()]
        binary = next(each["executable"] for each in artifacts
                      if each.get("target", {}).get("kind") == ["test"] and each.get("executable"))
        shutil.copy(binary, WORK / "zookeeper.test")


def stand_in(arguments):
    """What the tests get for `java`: one server, or a cluster that is told what to do."""
    which = os.environ["ZKLOCK_OTHERS"]
    if arguments[-2] == "server":
        # go-zookeeper kills this process, which is the server.
        config = arguments[-1]
        port = re.search(r"^clientPort=(\d+)", Path(config).read_text(), re.MULTILINE)[1]
        command = real(config) if which == "real" else ours(port, Path(config).parent / "data")
        os.execv(command[0], command)
    count = int(arguments[-1]) if which == "real" else 1
    ports = free_ports(3 * count)
    folder = WORK / which / f"cluster-{os.getpid()}"
    lines = [f"server.{each + 1}=127.0.0.1:{ports[3 * each + 1]}:{ports[3 * each + 2]}"
             for each in range(count)] if count > 1 else []
    servers = [Server(which, folder / str(each), ports[3 * each], lines) for each in range(count)]
    for each, server in enumerate(servers):
        (folder / str(each) / "myid").write_text(str(each + 1))
    # A server answers once it has a leader, so they start together.
    with ThreadPoolExecutor() as starting:
        list(starting.map(Server.run, servers))
    print(",".join(f"127.0.0.1:{server.port}" for server in servers), flush=True)
    killed = 0
    while (word := os.read(0, 1)) in (b"k", b"\n"):
        if word == b"k":
            servers[killed].stop()
            if count == 1:
                servers[killed].run()
            else:
                killed += 1
    for server in servers:
        server.stop()


def main(names):
    suites = [kazoo, go_zookeeper, zookeeper]
    suites = [suite for suite in suites if not names or suite.__name__.replace("_", "-") in names]
    assert suites, __doc__
    prepare(suites)
    print("| Suite | real ZooKeeper | `zklock serve` | of |\n|---|---:|---:|---:|", flush=True)
    differences = []
    for suite in suites:
        with ThreadPoolExecutor() as both:
            (name, there), (_, here) = both.map(suite, SERVERS)
        ran = sorted(there.keys() | here.keys())
        print(f"| {name} | {sum(there.values())} | {sum(here.values())} | {len(ran)} |", flush=True)
        differences += [f"{suite.__name__}: {test}: only on {'the real one' if there.get(test) else 'ours'}"
                        for test in ran if there.get(test, False) != here.get(test, False)]
    print("\n".join(["", *differences]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["java"]:
        stand_in(sys.argv[2:])
    else:
        os.chdir(ROOT)
        main(sys.argv[1:])
