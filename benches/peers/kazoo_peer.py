"""One round of kazoo: prints lock grants a second; `wait-N` prints nothing, see `waiting.py`.

    python kazoo_peer.py HOSTS SCENARIO PATH
"""
import sys
import threading
import time

from kazoo.client import KazooClient

HOSTS, SCENARIO, PATH = sys.argv[1:4]
KIND, _, COUNT = SCENARIO.partition("-")
COUNT = int(COUNT or 1)
WARM_UP, ROUND = 0.7, 1.0


def client():
    it = KazooClient(hosts=HOSTS, timeout=20)
    it.start()
    return it


def threads(targets):
    all_of_them = [threading.Thread(target=target, daemon=True) for target in targets]
    for thread in all_of_them:
        thread.start()
    return all_of_them


def rate():
    """Grants a second while all clients lock and unlock as fast as they can."""
    over = threading.Event()
    done = [0] * COUNT
    shared = client()

    def work(at, lock):
        while not over.is_set():
            with lock:
                done[at] += 1

    def lock(at):
        if KIND == "handoff":
            return client().Lock(PATH, "bench")
        return shared.Lock(f"{PATH}-{at}", "bench")

    running = threads([lambda at=at, it=lock(at): work(at, it) for at in range(COUNT)])
    time.sleep(WARM_UP)
    before, begun = sum(done), time.monotonic()
    time.sleep(ROUND)
    result = (sum(done) - before) / (time.monotonic() - begun)
    over.set()
    for thread in running:
        thread.join(5)
    return result


def queue():
    """Grants a second of a queue that waits behind a holder."""
    watcher = client()
    gate = watcher.Lock(PATH, "bench")
    gate.acquire()

    def once(lock):
        with lock:
            pass

    waiting = threads([lambda it=client().Lock(PATH, "bench"): once(it) for _ in range(COUNT)])
    while len(watcher.get_children(PATH)) <= COUNT:
        time.sleep(0.02)
    time.sleep(WARM_UP)
    begun = time.monotonic()
    gate.release()
    for thread in waiting:
        thread.join()
    return COUNT / (time.monotonic() - begun)


def wait():
    """Threads of one client each get the lock once."""
    shared = client()

    def once():
        with shared.Lock(PATH, "bench"):
            pass

    for thread in threads([once] * COUNT):
        thread.join()


if KIND == "wait":
    wait()
else:
    print(queue() if KIND == "queue" else rate())
