//! Users who cannot read or create each other's nodes.

use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use zklock::{Acl, Client, ClientBuilder, Error, LockOptions, Permission};

use super::SOON;
use crate::support::ensemble::Ensemble;
use crate::support::handle;
use crate::support::proxy::Proxy;
use crate::support::raw::{PERSISTENT, Raw, assert_nothing_left, op, wait_for_children};
use crate::support::zookeeper::ZooKeeper;
use crate::support::{aside, eventually, fresh_path, timed};

fn somebody(hosts: &str) -> ClientBuilder {
    Client::builder(hosts).session_timeout(SOON)
}

fn user(hosts: &str, name: &str) -> ClientBuilder {
    let credentials = format!("{name}:{name}'s password");
    somebody(hosts)
        .auth("digest", credentials)
        .acl(Acl::creator_all())
}

/// Creates a directory in which everybody may do everything.
fn open_directory(name: &str) -> String {
    let path = fresh_path(name);
    Raw::connect(&ZooKeeper::shared().hosts()).create_all(&path);
    path
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn who_may_not_use_a_lock_is_told_so() {
    let (hosts, path) = (ZooKeeper::shared().hosts(), fresh_path("closed"));
    let owner = user(&hosts, "owner").connect().unwrap();
    let guard = owner.mutex(&path).unwrap().lock().unwrap();
    for stranger in [somebody(&hosts), user(&hosts, "stranger")] {
        let mutex = stranger.connect().unwrap().mutex(&path).unwrap();
        for refused in [
            mutex.lock().map(Some),
            mutex.try_lock(),
            mutex.try_lock_for(SOON),
        ] {
            let Err(Error::NoAuth { path: named }) = &refused else {
                panic!("{refused:?}");
            };
            assert_eq!(*named, path);
        }
    }
    guard.verify().unwrap();
    // The same user on another machine waits in the same queue.
    let elsewhere = user(&hosts, "owner").connect().unwrap();
    thread::scope(|scope| {
        let mutex = elsewhere.mutex(&path).unwrap();
        let waiting = scope.spawn(move || mutex.lock().unwrap().unlock());
        eventually("it waits", || owner.contenders(&path).unwrap().len() == 2);
        guard.unlock().unwrap();
        waiting.join().unwrap().unwrap();
    });
    assert!(owner.contenders(&path).unwrap().is_empty());
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn who_may_not_read_the_node_ahead_is_woken_all_the_same() {
    let (hosts, path) = (ZooKeeper::shared().hosts(), open_directory("unreadable"));
    let proxy = Proxy::start(&hosts);
    let owner = user(&hosts, "owner").connect().unwrap();
    let stranger = somebody(&proxy.hosts()).connect().unwrap();
    let guard = owner.mutex(&path).unwrap().lock().unwrap();
    thread::scope(|scope| {
        let mutex = stranger.mutex(&path).unwrap();
        let (told, waits) = bounded(1);
        let waiting = scope.spawn(move || {
            let options = LockOptions::new()
                .deadline(Instant::now() + 2 * SOON)
                .on_wait(|_| {
                    let _ = told.try_send(());
                });
            let guard = mutex.lock_with(options).unwrap();
            guard.expect("its turn").unlock()
        });
        waits.recv_timeout(SOON).expect("it waits");
        // It may read its own node. The other request was refused, and the client found another way.
        assert_eq!(proxy.requests(op::GET_DATA), 2);
        let requests = proxy.all_requests();
        assert!(!waiting.is_finished());
        thread::sleep(Duration::from_millis(300));
        assert_eq!(proxy.all_requests(), requests, "it waits without asking");
        guard.unlock().unwrap();
        let (unlocked, took) = timed(|| waiting.join().unwrap());
        unlocked.unwrap();
        println!("woken after {took:?}");
        assert!(took < Duration::from_secs(5), "{took:?}");
    });
    assert_nothing_left(&hosts, &path);
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn readers_with_a_stranger_ahead_go_in_when_it_goes() {
    let (hosts, path) = (ZooKeeper::shared().hosts(), open_directory("readers"));
    let owner = user(&hosts, "owner").connect().unwrap();
    let stranger = somebody(&hosts).connect().unwrap();
    let guard = owner.rwlock(&path).unwrap().write().unwrap();
    thread::scope(|scope| {
        for i in 0..2 {
            let client = user(&hosts, &format!("reader {i}")).connect().unwrap();
            let lock = client.rwlock(&path).unwrap();
            scope.spawn(move || lock.read().unwrap().unlock().unwrap());
        }
        wait_for_children(&hosts, &path, 3);
        let lock = stranger.rwlock(&path).unwrap();
        let writing = scope.spawn(move || {
            let guard = lock.try_write_for(2 * SOON).unwrap();
            guard.expect("its turn").unlock()
        });
        wait_for_children(&hosts, &path, 4);
        guard.unlock().unwrap();
        writing.join().unwrap().unwrap();
    });
    assert_nothing_left(&hosts, &path);
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_directory_that_lets_strangers_in_lets_them_lock() {
    use Permission::{Create, Delete, Read};
    let hosts = ZooKeeper::shared().hosts();
    for allowed in [&[Read, Create][..], &[Read, Create, Delete]] {
        let path = fresh_path("let-in");
        let acl = Acl::creator_all().with(allowed, "world", "anyone");
        let owner = user(&hosts, "owner").acl(acl).connect().unwrap();
        let stranger = somebody(&hosts).connect().unwrap();
        let guard = owner.mutex(&path).unwrap().lock().unwrap();
        thread::scope(|scope| {
            let mutex = stranger.mutex(&path).unwrap();
            let waiting = scope.spawn(move || {
                let guard = mutex.lock().unwrap();
                guard.verify().unwrap();
                drop(guard);
            });
            eventually("it waits", || owner.contenders(&path).unwrap().len() == 2);
            guard.unlock().unwrap();
            waiting.join().unwrap();
        });
        // If the user may not delete its node, the end of the session deletes it.
        stranger.close().unwrap();
        eventually("nobody is left", || {
            owner.contenders(&path).unwrap().is_empty()
        });
        owner
            .mutex(&path)
            .unwrap()
            .lock()
            .unwrap()
            .unlock()
            .unwrap();
    }
}

/// Once, each call left one more node in everybody's way, and the client asked for the deletion of each every second. A
/// lock after an unlock waited for ever, for the client's own node.
#[test]
#[ignore = "needs a ZooKeeper server"]
fn who_may_not_delete_its_nodes_leaves_no_second_one_and_waits_for_none_of_its_own() {
    let hosts = ZooKeeper::shared().hosts();
    let mut raw = Raw::connect(&hosts);
    for tries in [true, false] {
        let (path, other) = (fresh_path("ghost"), fresh_path("ghost-too"));
        let [client, holder] = [(); 2].map(|()| somebody(&hosts).connect().unwrap());
        let mutex = client.mutex(&path).unwrap();
        let held = match tries {
            true => holder.mutex(&path).unwrap().lock().unwrap(),
            false => mutex.lock().unwrap(),
        };
        raw.forbid_deletes(&path).unwrap();
        let told = Error::NoAuth { path: path.clone() };
        let held = match tries {
            true => {
                assert!(mutex.try_lock_for(SOON / 99).unwrap().is_none());
                Some(held)
            }
            false => {
                assert_eq!(held.unlock().unwrap_err(), told);
                None
            }
        };
        let waits = || mutex.try_lock_for(SOON / 99);
        let refused = || waits().is_err_and(|error| error == told);
        eventually("it is known", refused);
        let left = client.contenders(&path).unwrap().len();
        assert_eq!(mutex.lock().unwrap_err(), told);
        let both = client.multi_lock([&*other, &*path]).unwrap();
        assert_eq!(both.lock().unwrap_err(), told);
        assert_eq!(client.contenders(&path).unwrap().len(), left);
        drop(held);
        client.close().unwrap();
        holder.close().unwrap();
        let next = somebody(&hosts).connect().unwrap();
        let job = next.job(&path).unwrap();
        // The first one is told that the path is a lock's.
        let runs = || job.once("a", |_| Ok::<_, Error>(()));
        let refused = || runs().unwrap_err() == told;
        eventually("it does not wait for its own stake", refused);
        next.close().unwrap();
        assert_nothing_left(&hosts, &path);
        assert_nothing_left(&hosts, &other);
    }
}

/// The threads of a client that lock a mutex have a line of their own; all others queue on the server.
#[test]
#[ignore = "needs a ZooKeeper server"]
fn who_waits_for_a_node_that_its_own_client_may_not_delete_is_told_so() {
    let hosts = ZooKeeper::shared().hosts();
    let mut raw = Raw::connect(&hosts);
    for what in ["a reader", "a writer", "a permit"] {
        let path = fresh_path("own-ghost");
        let client = somebody(&hosts).connect().unwrap();
        let lock = client.rwlock(&path).unwrap();
        let semaphore = client.semaphore(&path, 1).unwrap();
        let (reader, writer, permit) = match what {
            "a reader" => (Some(lock.read().unwrap()), None, None),
            "a writer" => (None, Some(lock.write().unwrap()), None),
            _ => (None, None, Some(semaphore.acquire().unwrap())),
        };
        let (queue, kept) = match permit {
            Some(_) => (format!("{path}/locks"), format!("{path}/leases")),
            None => (path.clone(), path.clone()),
        };
        let ended = aside(move || match what {
            "a reader" => lock.write().map(drop),
            "a writer" => lock.read().map(drop),
            _ => semaphore.acquire().map(drop),
        });
        wait_for_children(&hosts, &queue, 2 - usize::from(permit.is_some()));
        raw.forbid_deletes(&kept).unwrap();
        drop((reader, writer, permit));
        let told = Error::NoAuth { path: kept };
        assert_eq!(ended.recv_timeout(SOON), Ok(Err(told)), "behind {what}");
        client.close().unwrap();
    }
}

/// Such a server refuses the create of an ancestor before it answers that of the one above.
#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_lock_below_a_closed_directory_is_granted_where_servers_refuse_writes_early() {
    let (_ensemble, hosts) = servers_that_refuse_early();
    let (closed, client) = (fresh_path("closed"), somebody(&hosts).connect().unwrap());
    let mut raw = Raw::connect(&hosts);
    raw.create_all(&format!("{closed}/open"));
    raw.forbid_creates(&closed).unwrap();
    let mutex = client.mutex(&format!("{closed}/open/lock")).unwrap();
    let guard = mutex.try_lock_for(SOON).expect("a granted lock");
    guard.expect("a free lock").unlock().unwrap();
    let refused = client.mutex(&format!("{closed}/lock")).unwrap().lock();
    assert!(matches!(refused, Err(Error::NoAuth { .. })), "{refused:?}");
    assert_eq!(client.metrics().reconnects, 0);
}

/// What a follower refuses by itself says nothing of what the others have committed meanwhile.
#[test]
#[ignore = "needs a ZooKeeper server"]
fn reads_and_proofs_ask_the_quorum_where_servers_refuse_writes_early() {
    let (_ensemble, hosts) = servers_that_refuse_early();
    let mut raw = Raw::connect(&hosts);
    let shown = fresh_path("shown");
    raw.create_all(&shown);
    raw.allow_reads_only(&shown).unwrap();
    let handle = handle::connect(&hosts, SOON, |_| ());
    let handle = Client::from_zookeeper(handle, SOON).unwrap();
    for client in [somebody(&hosts).connect().unwrap(), handle] {
        let listed = writes_during(&mut raw, || drop(client.contenders(&shown).unwrap()));
        assert_ne!(listed, 0, "an old listing would do");
        let guard = client.mutex(&fresh_path("held")).unwrap().lock().unwrap();
        raw.allow_reads_only(guard.node()).unwrap();
        let proven = writes_during(&mut raw, || guard.verify().unwrap());
        assert_ne!(proven, 0, "an isolated follower would do");
        guard.unlock().unwrap();
    }
}

/// Starts servers that refuse a write themselves if they know that the user has no right to it; returns the addresses
/// of a follower, too.
fn servers_that_refuse_early() -> (Ensemble, String) {
    let eager = ZooKeeper::builder()
        .fsync(false)
        .property("zookeeper.enableEagerACLCheck", "true");
    let ensemble = Ensemble::start_with(&eager);
    let follower = ensemble.follower().expect("a follower");
    let hosts = ensemble.server(follower).hosts();
    (ensemble, hosts)
}

/// Returns how many writes passed through the quorum during an action, whether carried out or refused.
fn writes_during(raw: &mut Raw, action: impl FnOnce()) -> i64 {
    let mut write = || {
        let path = fresh_path("write");
        raw.create(&path, b"", PERSISTENT).unwrap();
        raw.stat(&path).expect("the node").czxid
    };
    let before = write();
    action();
    write() - before - 1
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_chroot_keeps_everything_below_it() {
    let hosts = ZooKeeper::shared().hosts();
    let root = open_directory("chroot");
    let inside = format!("{hosts}{root}");
    let one = user(&inside, "owner").connect().unwrap();
    let other = user(&hosts, "owner").connect().unwrap();
    let guard = one.mutex("/locks/a").unwrap().lock().unwrap();
    assert!(guard.node().starts_with("/locks/a/"));
    let same = other.mutex(&format!("{root}/locks/a")).unwrap();
    assert!(same.try_lock().unwrap().is_none(), "it is the same lock");
    let contenders = other.contenders(same.path()).unwrap();
    assert_eq!(contenders.len(), 1);
    assert_eq!(contenders[0].node(), format!("{root}{}", guard.node()));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| same.lock().unwrap().unlock());
        eventually("it waits", || {
            one.contenders("/locks/a").unwrap().len() == 2
        });
        guard.unlock().unwrap();
        waiting.join().unwrap().unwrap();
    });

    let missing = user(&format!("{hosts}{}", fresh_path("no-root")), "owner");
    let refused = missing.connect().and_then(|client| {
        let mutex = client.mutex("/a")?;
        let made = mutex.try_lock_for(Duration::from_secs(5))?;
        Ok(made.map(|guard| guard.node().to_owned()))
    });
    println!("below a root that does not exist: {refused:?}");
    let mut raw = Raw::connect(&hosts);
    assert!(
        raw.create(&format!("{root}/plain"), b"", PERSISTENT)
            .is_ok()
    );
}
