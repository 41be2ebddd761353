#!/usr/bin/env python3
"""Ours, the floor and the peers in interleaved rounds, and how they compare.

    benches/peers/compare.py HOST:PORT [--rounds N] [--json FILE] [SCENARIO ..]

Runs kazoo where KAZOO_PYTHON, or the python that runs this, has it, Curator where its jars
are in /usr/share/java or CURATOR_CLASSPATH names them, go-zookeeper where there is Go and
/usr/share/gocode or GOPATH has it, and kezhuw's `zookeeper-client` and the textbook recipe
on the crate `zookeeper` where `rust` has been built. Needs the bench `floor`
(`cargo bench --no-run --bench floor`), whose header describes the scenarios; `alone@5` is
`alone` over a network with 5 ms of delay each way. Rates are medians; `~` is half of the
spread between the quartiles; `worst` is our median round's rate by our slowest round's.
`plots.py` draws what --json has written.
"""
import argparse
import glob
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import uuid

from delay import Delay

HERE = pathlib.Path(__file__).resolve().parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target"))
# Cargo adds a hash to the name, and keeps earlier builds.
FLOORS = [path for path in TARGET.glob("release/deps/floor-*") if not path.suffix]
FLOOR = max(FLOORS, key=lambda path: path.stat().st_mtime, default=TARGET / "release/deps/floor")
GO = TARGET / "go-peer"
RUST = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE / "rust/target")) / "release"
SCENARIOS = ["alone", "threads-4", "threads-16", "handoff-2", "handoff-8", "handoff-32",
             "queue-10", "queue-100", "swarm-64", "crowd-10", "crowd-100", "crowd-1000"]


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done.stdout if done.returncode == 0 else None


def ours(side):
    def measure(hosts, scenario):
        out = run(FLOOR, hosts, scenario, "rounds=1", f"only={side}")
        column = 1 if side == "ours" else 2
        return out and float(out.splitlines()[-1].split()[column])

    return measure


def peer(*command):
    def measure(hosts, scenario):
        path = f"/zklock-peers/{uuid.uuid4()}"
        # Peers are fastest if each waiter is a client of its own, whose node exists beforehand.
        scenario = scenario.replace("crowd", "queue").replace("fresh", "queue").replace("swarm", "handoff")
        out = run(*command, hosts, scenario, path)
        return out and float(out.split()[-1])

    return measure


def commands():
    """The peers that are available, and how each is started."""
    python = os.environ.get("KAZOO_PYTHON", sys.executable)
    if run(python, "-c", "import kazoo") is not None:
        yield "kazoo", (python, HERE / "kazoo_peer.py")
    jars = [jar for name in ("curator-client", "curator-framework", "curator-recipes",
                             "zookeeper", "guava", "slf4j-simple")
            for jar in glob.glob(f"/usr/share/java/{name}.jar")]
    classpath = os.environ.get("CURATOR_CLASSPATH", ":".join(jars))
    if "curator" in classpath:
        yield "curator", ("java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
                          "-cp", classpath, HERE / "CuratorPeer.java")
    gopath = os.environ.get("GOPATH", "/usr/share/gocode")
    if run("env", "GO111MODULE=off", f"GOPATH={gopath}",
           "go", "build", "-o", GO, HERE / "go/main.go") is not None:
        yield "go-zookeeper", (GO,)
    for name in ("kezhuw", "textbook"):
        if (RUST / name).exists():
            yield name, (RUST / name,)


def contenders():
    yield "ours", ours("ours")
    yield "floor", ours("floor")
    for name, command in commands():
        yield name, peer(*command)


def spread(rates):
    if len(rates) < 4:
        return 0.0
    low, _, high = statistics.quantiles(rates, n=4)
    return (high - low) / 2


def cells(rates):
    """The medians of a table's row, and their spreads."""
    return [f"{statistics.median(r):.0f} ~{spread(r):.0f}" if r else "-" for r in rates.values()]


def measure_all(scenario, hosts, rounds, all_of_them):
    scenario, _, delay = scenario.partition("@")
    if delay:
        hosts = Delay(hosts, float(delay) / 1000).hosts
    rates = {name: [] for name in all_of_them}
    turns = list(all_of_them.items())
    # The first round warms the server up.
    for at in range(rounds + 1):
        for name, measure in turns:
            rate = measure(hosts, scenario)
            if rate and at:
                rates[name].append(rate)
        # So no side always comes after the same neighbour's load.
        turns = random.sample(turns, len(turns))
    return rates


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hosts")
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_intermixed_args()
    all_of_them = dict(contenders())
    table = {}
    print("| grants/s | " + " | ".join(all_of_them) + " | ours/floor | worst |")
    print("|---|" + "---|" * (len(all_of_them) + 2))
    for scenario in options.scenarios or SCENARIOS:
        rates = measure_all(scenario, options.hosts, options.rounds, all_of_them)
        table[scenario] = rates
        pairs = [ours / floor for ours, floor in zip(rates["ours"], rates["floor"])]
        ratio = f"{statistics.median(pairs):.2f}" if pairs else "-"
        worst = f"{statistics.median(rates['ours']) / min(rates['ours']):.1f}" if pairs else "-"
        print(f"| {scenario} | " + " | ".join(cells(rates)) + f" | {ratio} | {worst} |", flush=True)
        if options.json:
            options.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
