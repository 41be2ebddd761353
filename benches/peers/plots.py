#!/usr/bin/env python3
"""Draws what `compare.py --json` and `instead.py --json` have measured.

    benches/peers/plots.py FILE.. FOLDER

Writes FOLDER/performance-{clients,queue,delay}.svg: the time that a grant takes against
the number of clients on one lock, the length of a queue and the delay of the network; and
FOLDER/performance-instead.svg: grants a second of what people would pick instead, marked
by whether a holder learns that it has lost the lock. Needs matplotlib.
"""
import json
import pathlib
import statistics
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "zklock"
from matplotlib import pyplot  # noqa: E402

STYLES = {
    "ours": dict(color="#1f5fa8", linewidth=2.5, marker="o", label="zklock"),
    "floor": dict(color="black", linestyle="--", marker=".", label="a raw socket"),
    "kazoo": dict(color="#c77700", marker="s"),
    "curator": dict(color="#2f8f4e", marker="^"),
    "go-zookeeper": dict(color="#b5327d", marker="D"),
    "kezhuw": dict(color="#7a4fbf", marker="v", label="zookeeper-client"),
    "textbook": dict(color="#888888", marker="P", label="the recipe in Rust"),
}
# For each plot: its name, its scenarios, the character before the number, its axis.
PLOTS = [
    ("clients", "handoff-", "-", "clients that hand one lock around"),
    ("queue", "queue-", "-", "clients in the queue"),
    ("delay", "alone@", "@", "delay of the network each way, ms"),
]


def draw(table, name, prefix, mark, axis, folder):
    scenarios = [s for s in table if s.startswith(prefix)]
    if not scenarios:
        return
    figure, axes = pyplot.subplots(figsize=(7.2, 3.6), layout="constrained")
    for who, style in STYLES.items():
        points = [(float(s.split(mark)[1]), 1e3 / statistics.median(table[s][who]))
                  for s in scenarios if table[s].get(who)]
        if points:
            axes.plot(*zip(*points), **{"label": who, **style})
    if mark == "-":
        axes.set_xscale("log")
        ticks = [int(s.split(mark)[1]) for s in scenarios]
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel(axis)
    axes.set_ylabel("ms a grant")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper")
    figure.savefig(folder / f"performance-{name}.svg", metadata={"Date": None})


def draw_instead(table, folder):
    panels = [("alone", "a free lock"), ("handoff-8", "a lock that 8 clients hand around")]
    figure, all_axes = pyplot.subplots(2, figsize=(5.2, 6.4), sharex=True, layout="constrained")
    for axes, (scenario, title) in zip(all_axes, panels):
        rates = {who: statistics.median(r) for who, r in table[scenario].items() if r}
        names = sorted(rates, key=rates.get)
        is_ours = [name.startswith("zklock") for name in names]
        colors = [STYLES["ours"]["color"] if ours else "#b8b8b8" for ours in is_ours]
        bars = axes.barh(names, [rates[name] for name in names], color=colors)
        axes.bar_label(bars, fmt="{:,.0f}", padding=3)
        axes.set_title(title, loc="left")
        axes.set_xscale("log")
        axes.set_xlim(30, 80_000)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("grants a second; blue: the holder is told before the next one holds",
                     fontsize="medium")
    figure.savefig(folder / "performance-instead.svg", metadata={"Date": None})


def main():
    *sources, folder = map(pathlib.Path, sys.argv[1:])
    table = {}
    for source in sources:
        measured = json.loads(source.read_text())
        if any("redis" in rates for rates in measured.values()):
            draw_instead(measured, folder)
        else:
            table.update(measured)
    for plot in PLOTS:
        draw(table, *plot, folder)


if __name__ == "__main__":
    main()
