"""kazoo against the server whose host and port are the argument."""

import sys
import threading

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    LockTimeout,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from kazoo.security import make_digest_acl

PATIENCE = 20


def connect():
    client = KazooClient(hosts=sys.argv[1], timeout=10)
    client.start(timeout=PATIENCE)
    return client


def fails(error, action, *args, **kwargs):
    try:
        action(*args, **kwargs)
    except error:
        return
    raise AssertionError(f"{action} did not fail with {error}")


def nodes(client):
    assert client.create("/k/a/b", b"x", makepath=True) == "/k/a/b"
    assert client.create("/k/s-", b"", sequence=True) == "/k/s-0000000001"
    path, stat = client.create("/k/c", b"123", include_data=True)
    assert (path, stat.dataLength, stat.version) == ("/k/c", 3, 0)
    data, stat = client.get("/k/a/b")
    assert (data, stat.version) == (b"x", 0)
    assert client.set("/k/a/b", b"y").version == 1
    assert sorted(client.get_children("/k")) == ["a", "c", "s-0000000001"]
    assert client.exists("/no") is None
    assert client.sync("/k") == "/k"
    fails(NodeExistsError, client.create, "/k")
    fails(NoNodeError, client.create, "/no/x")
    fails(NotEmptyError, client.delete, "/k")
    fails(BadVersionError, client.set, "/k", b"", version=7)


def watches(client, other):
    seen, is_seen = [], threading.Event()

    @client.ChildrenWatch("/k/a")
    def children(names):
        seen.append(sorted(names))
        if len(names) == 3:
            is_seen.set()

    other.create("/k/a/c")
    other.create("/k/a/d")
    assert is_seen.wait(PATIENCE), seen
    data = threading.Event()
    client.get("/k/a/b", watch=lambda event: data.set())
    other.set("/k/a/b", b"z")
    assert data.wait(PATIENCE)


def transactions(client):
    failing = client.transaction()
    failing.create("/t", b"")
    failing.check("/t", 5)
    failing.delete("/k")
    results = failing.commit()
    assert [type(each).__name__ for each in results] == [
        "RolledBackError",
        "BadVersionError",
        "RuntimeInconsistency",
    ], results
    assert client.exists("/t") is None
    good = client.transaction()
    good.create("/t", b"")
    good.create("/t/n-", b"", ephemeral=True, sequence=True)
    good.set_data("/t", b"q")
    path, child, stat = good.commit()
    assert (path, child, stat.version) == ("/t", "/t/n-0000000000", 1)


def rights(client, other):
    client.add_auth("digest", "me:secret")
    acl = make_digest_acl("me", "secret", all=True)
    client.create("/mine", b"x", acl=[acl])
    fails(NoAuthError, other.get, "/mine")
    other.add_auth("digest", "me:secret")
    assert other.get("/mine")[0] == b"x"
    acls, _ = other.get_acls("/mine")
    assert acls == [acl]


def locks(client, other):
    mine, yours = client.Lock("/lock", "me"), other.Lock("/lock", "you")
    assert mine.acquire(timeout=PATIENCE)
    fails(LockTimeout, yours.acquire, timeout=0.3)
    waiter = threading.Thread(target=yours.acquire)
    waiter.start()
    while len(mine.contenders()) < 2:
        pass
    assert mine.contenders() == ["me", "you"]
    mine.release()
    waiter.join(PATIENCE)
    assert yours.is_acquired
    yours.release()
    read = [each.ReadLock("/rw", "r") for each in (client, other)]
    assert all(each.acquire(timeout=PATIENCE) for each in read)
    assert not client.WriteLock("/rw", "w").acquire(blocking=False)
    for each in read:
        each.release()


def semaphores(client, other):
    mine = client.Semaphore("/semaphore", "me", max_leases=1)
    yours = other.Semaphore("/semaphore", "you", max_leases=1)
    assert mine.acquire(timeout=PATIENCE)
    assert not yours.acquire(blocking=False)
    assert list(mine.lease_holders()) == ["me"]
    mine.release()
    assert yours.acquire(timeout=PATIENCE)
    yours.release()


def main():
    client, other = connect(), connect()
    nodes(client)
    watches(client, other)
    transactions(client)
    locks(client, other)
    semaphores(client, other)
    rights(client, other)
    for each in (client, other):
        each.stop()
        each.close()
    print("all is well")


main()
