#!/usr/bin/env python3
"""Ours, the floor and the peers in interleaved rounds, and how they compare.

    benches/peers/compare.py HOST:PORT [--rounds N] [SCENARIO ..]

Runs kazoo where KAZOO_PYTHON, or the python that runs this, has it, and Curator where its
jars are in /usr/share/java or CURATOR_CLASSPATH names them. Needs the example `floor`
(`cargo build --release --example floor`). Rates are medians; `~` is half of the spread
between the quartiles. With --svg FILE, a bar chart as well.
"""
import argparse
import glob
import os
import pathlib
import statistics
import subprocess
import sys
import uuid

HERE = pathlib.Path(__file__).resolve().parent
TARGET = os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target")
FLOOR = pathlib.Path(TARGET) / "release/examples/floor"
SCENARIOS = ["alone", "threads-4", "threads-16", "handoff-2", "handoff-8", "handoff-32"]


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
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
        out = run(*command, hosts, scenario, path)
        return out and float(out.split()[-1])

    return measure


def contenders():
    yield "ours", ours("ours")
    yield "floor", ours("floor")
    python = os.environ.get("KAZOO_PYTHON", sys.executable)
    if run(python, "-c", "import kazoo") is not None:
        yield "kazoo", peer(python, HERE / "kazoo_peer.py")
    jars = [jar for name in ("curator-client", "curator-framework", "curator-recipes",
                             "zookeeper", "guava", "slf4j-simple")
            for jar in glob.glob(f"/usr/share/java/{name}.jar")]
    classpath = os.environ.get("CURATOR_CLASSPATH", ":".join(jars))
    if "curator" in classpath:
        yield "curator", peer("java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
                              "-cp", classpath, HERE / "CuratorPeer.java")


def spread(rates):
    if len(rates) < 4:
        return 0.0
    low, _, high = statistics.quantiles(rates, n=4)
    return (high - low) / 2


def chart(table, names, path):
    """Bars of the rates relative to the floor."""
    rows = [(s, n, statistics.median(table[s][n]) / statistics.median(table[s]["floor"]))
            for s in table for n in names if n != "floor" and table[s][n]]
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="640" height="{len(rows) * 20 + 40}"'
           ' font-family="sans-serif" font-size="12">',
           '<text x="170" y="16">rate relative to the floor (line: 1)</text>']
    for at, (scenario, name, ratio) in enumerate(rows):
        y = 28 + at * 20
        colour = "#2b6cb0" if name == "ours" else "#a0aec0"
        out.append(f'<text x="4" y="{y + 12}">{scenario} {name}</text>')
        out.append(f'<rect x="170" y="{y}" width="{ratio * 280:.0f}" height="15" fill="{colour}"/>')
        out.append(f'<text x="{ratio * 280 + 176:.0f}" y="{y + 12}">{ratio:.2f}</text>')
    out.append(f'<line x1="450" x2="450" y1="22" y2="{len(rows) * 20 + 30}" stroke="black"/></svg>')
    pathlib.Path(path).write_text("\n".join(out) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("hosts")
    parser.add_argument("scenarios", nargs="*", default=SCENARIOS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--svg")
    options = parser.parse_args()
    all_of_them = dict(contenders())
    table = {}
    print("| grants/s | " + " | ".join(all_of_them) + " | ours/floor |")
    print("|---|" + "---|" * (len(all_of_them) + 1))
    for scenario in options.scenarios or SCENARIOS:
        rates = {name: [] for name in all_of_them}
        for _ in range(options.rounds):
            for name, measure in all_of_them.items():
                rate = measure(options.hosts, scenario)
                if rate:
                    rates[name].append(rate)
        cells = [f"{statistics.median(r):.0f} ~{spread(r):.0f}" if r else "-"
                 for r in rates.values()]
        ratio = statistics.median(rates["ours"]) / statistics.median(rates["floor"])
        print(f"| {scenario} | " + " | ".join(cells) + f" | {ratio:.2f} |", flush=True)
        table[scenario] = rates
    if options.svg:
        chart(table, all_of_them, options.svg)


if __name__ == "__main__":
    main()
