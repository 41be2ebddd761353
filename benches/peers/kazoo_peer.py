"""One round of kazoo: prints lock grants a second.

    python kazoo_peer.py HOSTS SCENARIO PATH
"""
import sys
import threading
import time

from kazoo.client import KazooClient

HOSTS, SCENARIO, PATH = sys.argv[1:4]
KIND, _, COUNT = SCENARIO.partition("-")
COUNT = int(COUNT or 1)
WARM_UP, ROUND = 0.5, 1.0

over = threading.Event()
done = [0] * COUNT


def client():
    it = KazooClient(hosts=HOSTS, timeout=20)
    it.start()
    return it


def work(at, zk, path):
    lock = zk.Lock(path, "bench")
    while not over.is_set():
        with lock:
            done[at] += 1


shared = client()
threads = []
for at in range(COUNT):
    if KIND == "handoff":
        args = (at, client(), PATH)
    else:
        args = (at, shared, f"{PATH}-{at}")
    threads.append(threading.Thread(target=work, args=args, daemon=True))
for thread in threads:
    thread.start()
time.sleep(WARM_UP)
before, begun = sum(done), time.monotonic()
time.sleep(ROUND)
print((sum(done) - before) / (time.monotonic() - begun))
over.set()
for thread in threads:
    thread.join(5)
