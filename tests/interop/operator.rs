//! The view of an operator on locks whose contenders use four languages.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use zklock::{Client, LockOptions, SendMutexGuard};

use super::A_WHILE;
use super::contender::Contender;
use super::kinds::{CURATOR_MUTEX, GO, KAZOO_AS_CURATOR, Kind, Side};
use super::libraries::Library;
use super::peer::{Peer, server};
use super::stalls::Stalls;
use crate::support::ensemble::Ensemble;
use crate::support::leash::Leashed;
use crate::support::raw::{EPHEMERAL, Raw, wait_for_children};
use crate::support::zookeeper::ZooKeeper;
use crate::support::{eventually, fresh_path, program};

/// How long a machine that has stood still may need to catch up.
const SHORTLY: Duration = Duration::from_secs(5);

/// How many threads take the many locks.
const THREADS: usize = 16;

/// A contender of ours waits for one of Curator's, that for one of kazoo's, and that for ours. Beside them,
/// another one of ours waits for a holder in Go, which is at work.
#[test]
#[ignore = "needs a ZooKeeper server, Curator, kazoo and go-zookeeper: tests/all.sh"]
fn a_circle_through_three_languages_is_named_and_nobody_healthy_is_accused() {
    let hosts = server().hosts();
    // The sessions are separate: a wait of one contender counts for all contenders of its session.
    let peers = [Library::Java, Library::Kazoo, Library::Go].map(|one| Peer::start(one, &hosts));
    let [Some(curator), Some(kazoo), Some(go)] = peers else {
        return;
    };
    let root = fresh_path("operator");
    let path = |name: &str| format!("{root}/{name}");
    let hold = |peer: &Peer, kind: &str, name: &str| {
        let contender = peer.contender();
        contender.lock(kind, &path(name));
        contender.held();
        contender
    };
    let of_curator = hold(&curator, CURATOR_MUTEX.word, "b");
    let of_kazoo = hold(&kazoo, KAZOO_AS_CURATOR.word, "c");
    let of_go = hold(&go, GO.word, "d");
    let look = Client::connect(&hosts).unwrap();
    let queues = |waiters: usize| {
        eventually("they wait", || {
            let queues = look.locks(&root).unwrap();
            queues
                .iter()
                .map(|queue| queue.waiters().count())
                .sum::<usize>()
                == waiters
        });
    };
    let (end, ended) = bounded::<()>(0);
    thread::scope(|scope| {
        let wait = |has: &'static str, wanted: &'static str| {
            let (client, ended) = (Client::connect(&hosts).unwrap(), ended.clone());
            let (has, wanted) = (path(has), path(wanted));
            scope.spawn(move || {
                let _has = client.mutex(&has).unwrap().lock().unwrap();
                let mutex = client.mutex(&wanted).unwrap();
                let waited = mutex.lock_with(LockOptions::new().cancel(ended)).unwrap();
                assert!(waited.is_none());
            });
        };
        wait("a", "b");
        wait("e", "d");
        queues(2);
        for name in ["a", "b", "c", "d", "e"] {
            let blockers = look.blockers(&path(name), &root).unwrap();
            assert_eq!(blockers.deadlock(), None, "{name}");
        }
        let (curators, kazoos) = (curator.contender(), kazoo.contender());
        curators.lock(CURATOR_MUTEX.word, &path("c"));
        kazoos.lock(KAZOO_AS_CURATOR.word, &path("a"));
        queues(4);

        for (name, circle) in [("a", ["a", "b", "c"]), ("c", ["c", "a", "b"])] {
            let blockers = look.blockers(&path(name), &root).unwrap();
            let circle = circle.map(&path);
            assert_eq!(blockers.deadlock(), Some(circle.as_slice()), "{blockers:?}");
        }
        for (name, chain) in [("d", vec![None]), ("e", vec![Some(path("d")), None])] {
            let blockers = look.blockers(&path(name), &root).unwrap();
            assert_eq!(blockers.deadlock(), None, "{blockers:?}");
            let waits = blockers
                .iter()
                .map(|one| one.waits_for().map(str::to_owned));
            assert_eq!(waits.collect::<Vec<_>>(), chain);
        }
        // This contender waits behind the circle, but is not part of it.
        let behind = look.mutex(&path("b")).unwrap();
        let options = LockOptions::new().timeout(A_WHILE).detect_deadlock(&root);
        assert!(behind.lock_with(options).unwrap().is_none());
        drop(end);
        of_kazoo.release();
        curators.held();
        curators.release();
        kazoos.held();
        kazoos.release();
    });
    of_curator.release();
    of_go.release();
}

/// The number of locks that one client holds, beside those that a test is about.
const LOCKS: usize = 10_000;
/// The number of locks that each peer holds, and of contenders that wait for each.
const HELD: usize = 25;
const WAITERS: usize = 3;
/// The timeout of all sessions, so long that a machine that stands still for a while costs none of the locks.
const SESSION: Duration = Duration::from_secs(120);

/// The report names the faults, and nothing else, among ten thousand locks on three servers.
#[test]
#[ignore = "needs ZooKeeper servers, Curator, kazoo and go-zookeeper: tests/all.sh"]
fn what_is_wrong_is_found_among_ten_thousand_locks() {
    let longest = format!("maxSessionTimeout={}", SESSION.as_millis());
    let builder = ZooKeeper::builder().fsync(false);
    // A leader waits as long for its followers.
    let ensemble = Ensemble::start_with(&builder.line(&longest).line("syncLimit=120"));
    let hosts = ensemble.hosts();
    let operator = Operator {
        hosts: hosts.clone(),
        stalls: Stalls::watch(),
    };
    let peers = || {
        [
            (Library::Java, CURATOR_MUTEX),
            (Library::Kazoo, KAZOO_AS_CURATOR),
            (Library::Go, GO),
        ]
        .map(|(library, kind)| Some((Peer::start_with(library, &hosts, SESSION)?, kind)))
    };
    let ([Some(a), Some(b), Some(c)], [Some(d), Some(e), Some(f)]) = (peers(), peers()) else {
        return;
    };
    let _load = load(&hosts);
    let crowd: Vec<_> = [(&a, &d), (&b, &e), (&c, &f)]
        .map(|(holder, waiter)| wait_in_a_crowd(&hosts, holder, waiter))
        .into_iter()
        .flatten()
        .collect();

    // The session is separate, as a wait of one of its threads counts for all that it holds.
    let Some(other) = Peer::start_with(Library::Go, &hosts, SESSION) else {
        return;
    };
    let (circle, _end) = plant(&hosts, &other);
    let (all_hold, gate) = bounded(0);
    let _pair_ends = [("/pair/x", "/pair/y"), ("/pair/y", "/pair/x")]
        .map(|(has, wanted)| hold_and_wait(&hosts, has, wanted, gate.clone()));
    drop(all_hold);
    for path in ["/pair/x", "/pair/y"] {
        wait_for_children(&hosts, path, 2);
    }
    let (code, listed) = operator.zklock(&["list", "-r", "--json"]);
    assert_eq!(code, 0);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert!(LOCKS + 3 * HELD <= listed["locks"].as_array().unwrap().len());
    for path in ["/circle/x", "/circle/y", "/pair/x", "/pair/y"] {
        let (code, told) = operator.zklock(&["why", path]);
        assert_eq!(code, 2, "{told}");
        let begins = format!("deadlock: {path} waits for {}/", &path[..path.len() - 2]);
        assert!(told.contains(&begins), "{told}");
    }
    for path in ["/load/0", "/crowd/Java/0", "/crowd/Kazoo/7", "/crowd/Go/24"] {
        let (code, told) = operator.zklock(&["why", path]);
        assert_eq!(code, 0, "{told}");
        assert!(told.contains("waits for no lock"), "{told}");
        let (code, told) = operator.zklock(&["doctor", path]);
        assert_eq!(code, 0, "{told}");
    }
    for (path, names, wrong) in [
        (
            "/full",
            &["_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-lock--2147483648"][..],
            "numbers",
        ),
        (
            "/mixed",
            &[
                "_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-lock-0000000000",
                "6f9c1c9e5a0b4b579a3e0123456789ab__rlock__0000000001",
            ],
            "kazoo's ReadLock",
        ),
    ] {
        found_by_the_doctor(&operator, path, names, wrong);
    }
    let mut stopped = Command::new(program());
    let lasts = SESSION.as_secs().to_string();
    stopped.args(["--hosts", &hosts, "--session-timeout", &lasts]);
    stopped.args(["run", "/stopped", "--", "sleep", "60"]);
    let mut stopped = Leashed::spawn(&mut stopped, None).unwrap();
    wait_for_children(&hosts, "/stopped", 1);
    stopped.pause();
    assert_eq!(operator.zklock(&["revoke", "/stopped"]).0, 0);
    let (code, told) = operator.zklock(&["doctor", "/stopped"]);
    assert_eq!(code, 1, "{told}");
    assert!(told.contains("was asked to let go"), "{told}");
    stopped.kill();

    let follower = ensemble.follower().unwrap();
    ensemble.pause(follower);
    let (code, told) = operator.zklock(&["doctor"]);
    assert_eq!(code, 2, "{told}");
    let server = ensemble.server(follower).hosts();
    let troubles: Vec<_> = told
        .lines()
        .filter(|line| line.starts_with("trouble"))
        .collect();
    assert!(
        !troubles.is_empty() && troubles.iter().all(|line| line.contains(&server)),
        "{told}"
    );
    ensemble.resume(follower);
    drop((circle, crowd));
}

/// Checks that the doctor finds these nodes wrong in this way. The session that creates the nodes sends no pings:
/// if the doctor takes longer than that session lasts, on a busy machine, it looks again.
fn found_by_the_doctor(operator: &Operator, path: &str, names: &[&str], wrong: &str) {
    let hosts = &operator.hosts;
    for _ in 0..3 {
        let mut raw = Raw::connect_with(hosts, SESSION);
        raw.create_all(path);
        let made: Vec<_> = names
            .iter()
            .map(|name| {
                raw.create(&format!("{path}/{name}"), b"", EPHEMERAL)
                    .unwrap()
            })
            .collect();
        let (code, told) = operator.zklock(&["doctor", path]);
        let mut now = Raw::connect(hosts);
        if made.iter().any(|node| now.stat(node).is_none()) {
            continue;
        }
        assert_eq!(code, 2, "{told}");
        assert!(told.contains(wrong), "{told}");
        return;
    }
    panic!("the doctor of {path} took longer than a session, three times");
}

/// Takes many locks with one client.
fn load(hosts: &str) -> Vec<SendMutexGuard> {
    let client = connect(hosts);
    let part = |thread: usize| {
        let client = client.clone();
        let places = (0..LOCKS).skip(thread).step_by(THREADS);
        let lock = move |place| {
            client
                .mutex(&format!("/load/{place}"))
                .unwrap()
                .lock()
                .unwrap()
                .into_send()
        };
        thread::spawn(move || places.map(lock).collect::<Vec<_>>())
    };
    let parts: Vec<_> = (0..THREADS).map(part).collect();
    parts
        .into_iter()
        .flat_map(|part| part.join().unwrap())
        .collect()
}

/// Makes one peer hold locks, and another one of its kind wait for them.
fn wait_in_a_crowd(hosts: &str, holder: &(Peer, Kind), waiter: &(Peer, Kind)) -> Vec<Contender> {
    let Side::Theirs(library) = holder.1.side else {
        return Vec::new();
    };
    let path = |place| format!("/crowd/{library:?}/{place}");
    let holders = (0..HELD).map(|place| {
        let contender = holder.0.contender();
        contender.lock(holder.1.word, &path(place));
        contender.held();
        contender
    });
    let holders: Vec<_> = holders.collect();
    let waiters = (0..HELD * WAITERS).map(|place| {
        let contender = waiter.0.contender();
        contender.lock(waiter.1.word, &path(place % HELD));
        contender
    });
    let waiters: Vec<_> = waiters.collect();
    for place in 0..HELD {
        wait_for_children(hosts, &path(place), 1 + WAITERS);
    }
    holders.into_iter().chain(waiters).collect()
}

/// Makes a contender of ours and a peer's wait for each other.
fn plant(hosts: &str, peer: &Peer) -> (Contender, Sender<()>) {
    let theirs = peer.contender();
    theirs.lock(GO.word, "/circle/y");
    theirs.held();
    let end = hold_and_wait(hosts, "/circle/x", "/circle/y", bounded(0).1);
    wait_for_children(hosts, "/circle/y", 2);
    let waits = peer.contender();
    waits.lock(GO.word, "/circle/x");
    wait_for_children(hosts, "/circle/x", 2);
    (theirs, end)
}

/// Makes one thread of a client of ours hold a lock and, when the gate is open, wait for
/// another one until the sender is dropped.
fn hold_and_wait(
    hosts: &str,
    has: &'static str,
    wanted: &'static str,
    gate: Receiver<()>,
) -> Sender<()> {
    let (client, (end, ended)) = (connect(hosts), bounded(0));
    let (holds, held) = bounded(0);
    thread::spawn(move || {
        let _has = client.mutex(has).unwrap().lock().unwrap();
        holds.send(()).unwrap();
        // The gate is open when its other side is dropped.
        let _ = gate.recv();
        let wanted = client.mutex(wanted).unwrap();
        drop(wanted.lock_with(LockOptions::new().cancel(ended)));
    });
    held.recv().unwrap();
    end
}

fn connect(hosts: &str) -> Client {
    let builder = Client::builder(hosts).session_timeout(SESSION);
    builder.connect().unwrap()
}

/// A user of the program.
struct Operator {
    hosts: String,
    stalls: Stalls,
}

impl Operator {
    /// Runs the program, again if the machine has stood still meanwhile or shortly before; returns its status
    /// and its output.
    fn zklock(&self, args: &[&str]) -> (i32, String) {
        for _ in 0..5 {
            let began = Instant::now();
            let ended = self.run(args);
            if !self.stalls.since(began - SHORTLY) {
                return ended;
            }
            thread::sleep(SHORTLY);
        }
        self.run(args)
    }

    fn run(&self, args: &[&str]) -> (i32, String) {
        let mut command = Command::new(program());
        let began = Instant::now();
        let output = command
            .args(["--hosts", &self.hosts, "--session-timeout", "5"])
            .args(args)
            .output()
            .unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        let shown: Vec<_> = told.lines().take(12).collect();
        println!("{args:?} took {:?}:\n{}", began.elapsed(), shown.join("\n"));
        (output.status.code().unwrap(), told)
    }
}
