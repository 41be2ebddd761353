#!/usr/bin/env python3
"""What people would pick instead, beside zklock: servers, rounds in turn, a table.

    benches/peers/instead.py [--rounds N] [--json FILE] [SCENARIO ..]

Starts ZooKeeper, etcd, Redis, PostgreSQL and MariaDB, each in a folder and on a port of its own: once with syncs of
its disk and, if it can be told so, once without. Leaves out what is not installed. Needs the bench `floor` and the
peers in Rust, built with the feature `instead`. A lock in Redis, PostgreSQL and `GET_LOCK` is in memory alone: a sync
does not help it, and a server that dies loses it. The scenarios: `alone`, `threads-16`, `handoff-2`, `handoff-8`.
"""
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

from compare import RUST, cells, ours, peer

SCENARIOS = ["alone", "threads-16", "handoff-2", "handoff-8"]
POSTGRES = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def await_port(port):
    for _ in range(300):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise RuntimeError(f"nothing listens on port {port}")


class Servers(contextlib.ExitStack):
    """Processes that end and folders that are deleted together with this object."""

    def folder(self):
        return self.enter_context(tempfile.TemporaryDirectory(prefix="zklock-instead-"))

    def start(self, port, *command, **options):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, **quiet, **options)
        self.callback(process.wait)
        self.callback(process.terminate)
        await_port(port)

    def zookeeper(self, sync):
        folder, port = self.folder(), free_port()
        config = pathlib.Path(folder) / "zoo.cfg"
        config.write_text(f"tickTime=2000\ndataDir={folder}\nclientPort={port}\n"
                          "maxClientCnxns=0\nadmin.enableServer=false\n")
        jar = "/usr/share/java/zookeeper.jar"
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        force = f"-Dzookeeper.forceSync={'yes' if sync else 'no'}"
        self.start(port, "java", force, "-cp", jar, main, config)
        return f"127.0.0.1:{port}"

    def etcd(self, sync):
        folder, port, peers = self.folder(), free_port(), free_port()
        urls = [f"http://127.0.0.1:{at}" for at in (port, peers)]
        unsafe = [] if sync else ["--unsafe-no-fsync"]
        self.start(port, "etcd", "--data-dir", folder, "--listen-client-urls", urls[0],
                   "--advertise-client-urls", urls[0], "--listen-peer-urls", urls[1],
                   "--initial-advertise-peer-urls", urls[1],
                   "--initial-cluster", f"default={urls[1]}", *unsafe)
        return urls[0]

    def redis(self, sync):
        port = free_port()
        durable = ["--appendonly", "yes", "--appendfsync", "always"] if sync else []
        self.start(port, "redis-server", "--port", str(port), "--dir", self.folder(),
                   "--save", "", *durable)
        return f"127.0.0.1:{port}"

    def postgresql(self, _):
        folder, port = self.folder(), free_port()
        # PostgreSQL refuses to run as root.
        user = {"user": "postgres"} if os.getuid() == 0 else {}
        if user:
            shutil.chown(folder, "postgres")
        data = f"{folder}/data"
        subprocess.run([POSTGRES[-1] / "initdb", "-D", data, "-A", "trust", "-U", "zklock"],
                       check=True, capture_output=True, cwd=folder, **user)
        self.start(port, POSTGRES[-1] / "postgres", "-D", data, "-p", str(port),
                   "-k", folder, cwd=folder, **user)
        time.sleep(1)
        return f"host=127.0.0.1 port={port} user=zklock dbname=postgres"

    def mariadb(self, _):
        folder, port = self.folder(), free_port()
        user = ["--user=root"] if os.getuid() == 0 else []
        subprocess.run(["mariadb-install-db", f"--datadir={folder}", "--skip-test-db",
                        "--auth-root-authentication-method=normal", *user],
                       check=True, capture_output=True)
        self.start(port, "mariadbd", "--no-defaults", f"--datadir={folder}", f"--port={port}",
                   f"--socket={folder}/socket", "--bind-address=127.0.0.1", *user)
        subprocess.run(["mariadb", f"--socket={folder}/socket", "-uroot",
                        "-e", "CREATE DATABASE zklock"], check=True)
        return f"mysql://root@127.0.0.1:{port}"


def contenders(servers):
    """Yields each name with the function that measures it."""
    for sync in (True, False):
        kind = "" if sync else ", no sync"
        if pathlib.Path("/usr/share/java/zookeeper.jar").exists():
            hosts = servers.zookeeper(sync)
            yield f"zklock{kind}", lambda scenario, hosts=hosts: ours("ours")(hosts, scenario)
        for name, there in (("etcd", shutil.which("etcd")),
                            ("redis", shutil.which("redis-server"))):
            if there:
                hosts = getattr(servers, name)(sync)
                yield name + kind, lambda scenario, hosts=hosts, name=name: \
                    peer(RUST / name)(hosts, scenario)
    for name, there in (("postgresql", POSTGRES), ("mariadb", shutil.which("mariadbd"))):
        if there:
            hosts = getattr(servers, name)(True)
            yield name, lambda scenario, hosts=hosts, name=name: peer(RUST / name)(hosts, scenario)
            if name == "mariadb":
                yield "zklock, MariaDB", lambda scenario, hosts=hosts: \
                    peer(RUST / "zklock_mysql")(hosts, scenario)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_intermixed_args()
    table = {}
    with Servers() as servers:
        measures = dict(contenders(servers))
        print("| grants/s | " + " | ".join(measures) + " |")
        print("|---|" + "---|" * len(measures))
        for scenario in options.scenarios or SCENARIOS:
            rates = {name: [] for name in measures}
            # The first round warms the servers.
            for at in range(options.rounds + 1):
                for name, measure in measures.items():
                    rate = measure(scenario)
                    if at and rate:
                        rates[name].append(rate)
            table[scenario] = rates
            print(f"| {scenario} | " + " | ".join(cells(rates)) + " |", flush=True)
            if options.json:
                options.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
