#!/usr/bin/env python3
"""What it costs to wait: many threads of a few processes for one lock, ours and the peers'.

    benches/peers/waiting.py HOST:PORT [--processes 10] [--threads 1000] [--json FILE] [NAME ..]

Each process has one client, and its threads, tasks or goroutines share it. While this script holds the lock, it reads
which resources the system and the server use for them. Then it releases the lock, and each of them has the lock once.
The script reads how many packets the server received for that, and how long it took. Memory is the processes' own and
their share of what they have in common (Pss). The server has to allow `mntr` (`4lw.commands.whitelist=*`). Needs kazoo,
the bench `growth` (`cargo bench --no-run --bench growth`), and of the peers what `compare.py` needs.
"""
import argparse
import json
import os
import pathlib
import re
import socket
import subprocess
import time
import uuid

from kazoo.client import KazooClient

from compare import HERE, TARGET, commands

GROWTHS = [path for path in TARGET.glob("release/deps/growth-*") if not path.suffix]


def mntr(hosts):
    host, port = hosts.split(",")[0].rsplit(":", 1)
    with socket.create_connection((host, int(port)), 10) as it:
        it.sendall(b"mntr")
        text = b"".join(iter(lambda: it.recv(65536), b"")).decode()
    return {name: value for name, _, value in (line.partition("\t") for line in text.splitlines())}


def kept(processes):
    """The memory, threads and descriptors of these processes."""
    pss = threads = descriptors = 0
    for process in processes:
        proc = pathlib.Path(f"/proc/{process.pid}")
        pss += int(re.search(r"^Pss:\s+(\d+)", (proc / "smaps_rollup").read_text(), re.M)[1])
        threads += int(re.search(r"^Threads:\s+(\d+)", (proc / "status").read_text(), re.M)[1])
        descriptors += len(list((proc / "fd").iterdir()))
    return pss / 1024, threads, descriptors


def is_settled(hosts):
    before = mntr(hosts)["zk_watch_count"]
    time.sleep(5)
    return mntr(hosts)["zk_watch_count"] == before


def wait_for(done, what):
    for _ in range(6000):
        if done():
            return
        time.sleep(0.1)
    raise RuntimeError(f"{what} took more than ten minutes")


def measure(name, command, options):
    hosts, path = options.hosts, f"/zklock-peers/{uuid.uuid4()}"
    # All except kazoo know Curator's names, or do not look at them.
    prefix = f"{uuid.uuid4().hex}__lock__" if name == "kazoo" else f"_c_{uuid.uuid4()}-lock-"
    client = KazooClient(hosts=hosts, timeout=60)
    client.start()
    gate = client.create(f"{path}/{prefix}", ephemeral=True, sequence=True, makepath=True)
    before = mntr(hosts)
    nodes = lambda: len(client.get_children(path))  # noqa: E731
    # Ours has one node per client.
    each = 1 if name == "ours" else options.threads
    # Ten heaps of the usual size would take the machine's memory.
    heap = {**os.environ, "JAVA_TOOL_OPTIONS": "-Xmx384m"}
    processes = [subprocess.Popen([*map(str, command(hosts, options.threads, path))], env=heap,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                 for _ in range(options.processes)]
    try:
        wait_for(lambda: nodes() > each * options.processes, f"{name}: the queue")
        # Each client has found the node that it waits for, and sleeps.
        wait_for(lambda: is_settled(hosts), f"{name}: the watches")
        memory, threads, descriptors = kept(processes)
        waiting = mntr(hosts)
        grew = lambda key: int(waiting[key]) - int(before[key])  # noqa: E731
        row = {"MiB": round(memory), "threads": threads, "descriptors": descriptors,
               "nodes": grew("zk_znode_count"), "watches": grew("zk_watch_count")}
        begun = time.monotonic()
        client.delete(gate)
        for process in processes:
            process.wait(timeout=1200)
        row["seconds"] = round(time.monotonic() - begun, 1)
        grants = options.processes * options.threads
        packets = int(mntr(hosts)["zk_packets_received"]) - int(waiting["zk_packets_received"])
        row["packets a grant"] = round(packets / grants, 2)
        return row
    finally:
        for process in processes:
            process.kill()
            process.wait()
        client.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hosts")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1000)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_intermixed_args()
    growth = max(GROWTHS, key=lambda path: path.stat().st_mtime)
    all_of_them = {"ours": lambda hosts, count, path: (growth, hosts, f"wait={count}", path)}
    for name, command in commands():
        all_of_them[name] = lambda hosts, count, path, command=command: \
            (*command, hosts, f"wait-{count}", path)
    table = {}
    for name, command in all_of_them.items():
        if options.names and name not in options.names:
            continue
        try:
            row = measure(name, command, options)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"{name}: {error}", flush=True)
            continue
        if not table:
            print("| | " + " | ".join(row) + " |")
            print("|---|" + "---|" * len(row))
        table[name] = row
        print(f"| {name} | " + " | ".join(map(str, row.values())) + " |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
