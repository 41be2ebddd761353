//! When a command begins after another one: at once if that one released its lock in order, and
//! after a pause if its holder may not know yet that the lock is gone.

use std::cmp::Reverse;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use zklock::Client;
use zklock::embedded::Server;

use crate::program::{Log, Zklock, await_queue, on_every_server};
use crate::support::proxy::Proxy;
use crate::support::raw::{Raw, children};
use crate::support::{eventually, fresh_path};

/// How long a command is held back.
const PAUSE: Duration = Duration::from_millis(250);

/// What `zklock -v` says then.
pub(crate) const HELD_BACK: &str = "not all ahead of it have recorded their release";

on_every_server! {
    commands_whose_locks_are_released_in_order_follow_each_other_at_once
    whoever_releases_in_order_makes_way_at_once
    nobody_ahead_is_nobody_to_wait_for
    whoever_may_have_been_evicted_holds_the_next_command_back
    a_command_is_held_back_after_a_holder_that_was_evicted
    a_command_is_held_back_after_a_holder_of_another_program
    a_standby_is_held_back_if_its_node_went_together_with_the_holders
    a_command_that_is_shorter_than_a_round_trip_leaves_a_note
    a_command_is_held_back_after_an_eviction_even_if_another_kind_of_lock_came_after_it
    what_others_keep_in_the_directory_of_a_lock_stays
}

fn commands_whose_locks_are_released_in_order_follow_each_other_at_once(hosts: &str) {
    let (path, log) = (fresh_path("in-order"), Log::new());
    let holder = Zklock::start(hosts, &format!("run {path}"), "read -r _");
    await_queue(hosts, &path, 1);
    let run = format!("run {path}");
    let waiters: Vec<_> = (0..4)
        .map(|_| spawn_waiting(hosts, &run, &begins(&log)))
        .collect();
    await_queue(hosts, &path, 5);
    end(holder);
    let mut held_back = 0;
    for (waiter, said) in waiters {
        assert_eq!(waiter.end().code, Some(0));
        held_back += usize::from(said.contains(HELD_BACK));
    }
    let begun = times(&log);
    assert_eq!(begun.len(), 4);
    let gaps = begun.windows(2).map(|two| two[1] - two[0]);
    // A busy machine may delay the commands, and a busy server show a note too late.
    let short = gaps.clone().filter(|gap| *gap < PAUSE).count();
    let gaps: Vec<_> = gaps.collect();
    assert!(2 <= short || held_back <= 1, "{held_back} of 4: {gaps:?}");
}

/// The commands that hold, and the command that waits for them; the path follows each.
const TURNS: [(&[&str], &str); 11] = [
    (&["run"], "run -s"),
    (&["run -s", "run -s", "run -s"], "run"),
    (&["run --permits 1"], "run --permits 1"),
    (&["run --permits 2", "run --permits 2"], "run --permits 2"),
    (&["run --permits 2", "run --permits 2"], "run"),
    (&["run --permits 1"], "run -s"),
    (&["run"], "run --permits 1"),
    (&["run -s", "run -s"], "run --permits 1"),
    (&["once --slot a"], "once --slot b"),
    (&["standby"], "standby"),
    (&["standby"], "run"),
];

/// Starts the holders, and a command that waits for them.
fn take_turns(
    hosts: &str,
    turn: (&[&str], &str),
    path: &str,
    log: &Log,
) -> (Vec<Zklock>, (Zklock, Log)) {
    let holding = Log::new();
    let holds = format!("{}; read -r _", holding.write("holds"));
    let start = |holder: &&str| Zklock::start(hosts, &format!("{holder} {path}"), &holds);
    let holders: Vec<_> = turn.0.iter().map(start).collect();
    eventually("they hold", || holding.words().len() == holders.len());
    let waiter = spawn_waiting(hosts, &format!("{} {path}", turn.1), &begins(log));
    (holders, waiter)
}

fn whoever_releases_in_order_makes_way_at_once(hosts: &str) {
    for turn in TURNS {
        at_once(&format!("{turn:?}"), || {
            let (path, log) = (fresh_path("makes-way"), Log::new());
            let (mut holders, (waiter, said)) = take_turns(hosts, turn, &path, &log);
            let released = now();
            holders.iter_mut().for_each(|holder| holder.feed("\n"));
            for ended in holders.into_iter().chain([waiter]).map(Zklock::end) {
                assert_eq!(ended.code, Some(0), "{turn:?}: {}", ended.err);
            }
            (times(&log)[0] - released, said)
        });
    }
}

fn nobody_ahead_is_nobody_to_wait_for(hosts: &str) {
    for args in [
        "run",
        "run -s",
        "run --permits 1",
        "once --slot a",
        "standby",
    ] {
        at_once(args, || {
            let (path, log) = (fresh_path("free"), Log::new());
            let args = format!("-v {args} {path}");
            let started = now();
            let (zklock, said) = Zklock::start_logged(hosts, &args, &begins(&log));
            assert_eq!(zklock.end().code, Some(0), "{args}: {said:?}");
            (times(&log)[0] - started, said)
        });
    }
}

/// One of the holders is evicted, and the others release in order.
fn whoever_may_have_been_evicted_holds_the_next_command_back(hosts: &str) {
    for turn in TURNS {
        let (path, log) = (fresh_path("may-be-evicted"), Log::new());
        let (mut holders, (waiter, said)) = take_turns(hosts, turn, &path, &log);
        let dir = match turn.0[0].contains("--permits") {
            true => format!("{path}/leases"),
            false => path.clone(),
        };
        let names = children(hosts, &dir);
        let first = first_of(&names);
        let evicted = now();
        let evict = Raw::connect(hosts).delete(&format!("{dir}/{first}"));
        assert_eq!(evict, Ok(()));
        // A standby stands in line again.
        let ends = turn.0 != ["standby"];
        eventually("it has ended", || {
            !ends || holders.iter_mut().any(Zklock::has_ended)
        });
        for mut holder in holders {
            if ends && !holder.has_ended() {
                end(holder);
            }
        }
        assert_eq!(waiter.end().code, Some(0));
        let begun = times(&log)[0];
        assert!(PAUSE <= begun - evicted, "{turn:?}: {:?}", begun - evicted);
        assert!(said.contains(HELD_BACK), "{turn:?}: {said:?}");
    }
}

/// Checks that a command begins at once. A busy machine may delay it now and then; on one that is never fast enough,
/// what `zklock` says must show that it is not held back.
#[track_caller]
fn at_once(what: &str, begins: impl Fn() -> (Duration, Log)) {
    let mut slow = Vec::new();
    for _ in 0..10 {
        let (took, said) = begins();
        if took < PAUSE {
            return;
        }
        slow.push((took, said.contains(HELD_BACK)));
    }
    assert!(
        slow.iter().any(|(_, held_back)| !held_back),
        "{what}: {slow:?}"
    );
}

fn a_command_is_held_back_after_a_holder_that_was_evicted(hosts: &str) {
    let (path, log) = (fresh_path("evicted"), Log::new());
    let run = format!("run {path}");
    let first = Zklock::start(hosts, &run, "read -r _");
    await_queue(hosts, &path, 1);
    let second = Zklock::start(hosts, &run, &log.beat("second"));
    await_queue(hosts, &path, 2);
    // The first holder leaves a note, which says nothing of the second.
    end(first);
    log.await_word("second");
    let node = format!("{path}/{}", children(hosts, &path)[0]);
    let other = Log::new();
    let third = start_waiting(hosts, &run, &begins(&other));
    let evicted = now();
    assert_eq!(Raw::connect(hosts).delete(&node), Ok(()));
    assert_eq!(third.end().code, Some(0));
    assert_ne!(second.end().code, Some(0));
    assert!(PAUSE <= times(&other)[0] - evicted);
}

fn a_command_is_held_back_after_a_holder_of_another_program(hosts: &str) {
    const EPHEMERAL_SEQUENTIAL: i32 = 3;
    let (path, log) = (fresh_path("foreign"), Log::new());
    let mut holder = Raw::connect(hosts);
    holder.create_all(&path);
    let prefix = format!("{path}/_c_5f2b7c1e-6f3a-4a52-9f43-0d5c5a3e8b11-lock-");
    let node = holder.create(&prefix, b"", EPHEMERAL_SEQUENTIAL);
    let waiter = start_waiting(hosts, &format!("run {path}"), &begins(&log));
    let released = now();
    assert_eq!(holder.delete(&node.expect("a node")), Ok(()));
    assert_eq!(waiter.end().code, Some(0));
    assert!(PAUSE <= times(&log)[0] - released);
}

/// This is so when somebody deletes the whole queue: the standby queues again, and nobody is ahead.
fn a_standby_is_held_back_if_its_node_went_together_with_the_holders(hosts: &str) {
    let (path, log) = (fresh_path("all-evicted"), Log::new());
    let holder = Zklock::start(hosts, &format!("run {path}"), "read -r _");
    await_queue(hosts, &path, 1);
    let waiter = start_waiting(hosts, &format!("standby {path}"), &begins(&log));
    let client = Client::connect(hosts).expect("a client");
    let beside = client.mutex(&fresh_path("beside")).expect("a mutex");
    let beside = beside.lock().expect("the mutex");
    // Its own node first: the event of the other one would make it the holder for a moment.
    let mut names = children(hosts, &path);
    names.sort_by_key(|name| Reverse(name[name.len() - 10..].to_owned()));
    let evict = names.iter().fold(beside.transaction(), |all, name| {
        all.delete(&format!("{path}/{name}"))
    });
    let evicted = now();
    evict.commit().expect("the evictions");
    assert_ne!(holder.end().code, Some(0));
    assert_eq!(waiter.end().code, Some(0));
    let begun = times(&log)[0] - evicted;
    assert!(PAUSE <= begun, "{begun:?}");
}

fn a_command_that_is_shorter_than_a_round_trip_leaves_a_note(hosts: &str) {
    for runs in ["run", "standby"] {
        let (path, proxy) = (fresh_path("short"), Proxy::start(hosts));
        proxy.delay(Duration::from_millis(30));
        let ended = Zklock::run(&proxy.hosts(), &format!("{runs} {path}"), ":");
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        let note = Raw::connect(hosts).data(&path);
        assert_eq!(note.as_deref(), Some(&b"{\"released\":0}"[..]), "{runs}");
    }
}

/// The permit is given back in order, but that says nothing of the holder that was evicted.
fn a_command_is_held_back_after_an_eviction_even_if_another_kind_of_lock_came_after_it(
    hosts: &str,
) {
    const PERSISTENT: i32 = 0;
    let (path, log) = (fresh_path("evicted-before-a-permit"), Log::new());
    let holder = Zklock::start(hosts, &format!("run -s {path}"), "read -r _");
    await_queue(hosts, &path, 1);
    let (waiter, said) = spawn_waiting(hosts, &format!("run {path}"), &begins(&log));
    let mut other = Raw::connect(hosts);
    let node = format!("{path}/{}", first_of(&children(hosts, &path)));
    let leases = format!("{path}/leases");
    let permit = format!("{leases}/_c_6f9c1c9e-5a0b-8b57-9a3e-0123456789ab-lease-0000000003");
    assert_eq!(other.set_data(&path, b"1"), Ok(()));
    for node in [&leases, &permit] {
        assert!(other.create(node, b"", PERSISTENT).is_ok());
    }
    let evicted = now();
    assert_eq!(other.delete(&node), Ok(()));
    eventually("it waits for the permit", || {
        said.contains("free for this command")
    });
    let note = b"{\"released\":null,\"shared\":[3]}";
    assert_eq!(other.set_data(&leases, note), Ok(()));
    assert_eq!(other.delete(&permit), Ok(()));
    assert_eq!(waiter.end().code, Some(0));
    assert_ne!(holder.end().code, Some(0));
    let begun = times(&log)[0] - evicted;
    assert!(PAUSE <= begun, "{begun:?}");
}

fn what_others_keep_in_the_directory_of_a_lock_stays(hosts: &str) {
    let path = fresh_path("not-ours");
    let mut other = Raw::connect(hosts);
    other.create_all(&path);
    for data in [&b"theirs"[..], b"{\"held\":null}", b"{\"job\":1}"] {
        assert_eq!(other.set_data(&path, data), Ok(()));
        assert_eq!(
            Zklock::run(hosts, &format!("run {path}"), ":").code,
            Some(0)
        );
        assert_eq!(other.data(&path).as_deref(), Some(data));
        await_queue(hosts, &path, 0);
    }
}

/// A run that cannot leave its note, because something else is in the directory, costs the same: a
/// session and its end, a node and its deletion.
#[test]
fn a_release_that_says_so_costs_no_further_write() {
    const PERSISTENT: i32 = 0;
    let server = Server::start().expect("a server");
    let path = fresh_path("writes");
    let mut other = Raw::connect(server.hosts());
    other.create_all(&path);
    let mut marks = 0;
    let mut zxid = || {
        marks += 1;
        let mark = format!("{path}-{marks}");
        assert!(other.create(&mark, b"", PERSISTENT).is_ok());
        other.stat(&mark).expect("a node").czxid
    };
    // On a busy machine, a run may let its lock be confirmed once more.
    let mut writes_of = |run: &str| {
        let once = |_| {
            let before = zxid();
            let ended = Zklock::run(server.hosts(), &format!("{run} {path}"), "sleep 0.1");
            assert_eq!(ended.code, Some(0), "{}", ended.err);
            zxid() - before
        };
        (0..4).map(once).min()
    };
    // The first run leaves its note, and the others replace it.
    let noted = ["run", "run -s"].map(&mut writes_of);
    let note = Raw::connect(server.hosts()).data(&path);
    assert!(note.is_some_and(|note| note.starts_with(b"{\"released\":")));
    assert_eq!(
        Raw::connect(server.hosts()).set_data(&path, b"theirs"),
        Ok(())
    );
    let unnoted = ["run", "run -s"].map(&mut writes_of);
    assert_eq!(noted, unnoted);
}

/// Starts a command; returns once it waits. If the holder left before, it would not wait.
fn start_waiting(hosts: &str, args: &str, script: &str) -> Zklock {
    spawn_waiting(hosts, args, script).0
}

/// As above; also returns its messages.
fn spawn_waiting(hosts: &str, args: &str, script: &str) -> (Zklock, Log) {
    let (zklock, said) = Zklock::start_logged(hosts, &format!("-v {args}"), script);
    eventually("it waits", || {
        said.contains("waiting for ") || said.contains("free for this command")
    });
    (zklock, said)
}

/// Returns the node that was created first.
fn first_of(names: &[String]) -> &str {
    let number = |name: &&String| name[name.len() - 10..].to_owned();
    names.iter().min_by_key(number).expect("a holder")
}

/// Returns the script that writes when it begins.
fn begins(log: &Log) -> String {
    format!("date +%s%N >> {}", log.file().display())
}

fn times(log: &Log) -> Vec<Duration> {
    let words = log.words();
    let nanos = words.iter().map(|word| word.parse().expect("a number"));
    nanos.map(Duration::from_nanos).collect()
}

fn now() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a time after 1970")
}

#[track_caller]
fn end(mut zklock: Zklock) {
    zklock.feed("\n");
    assert_eq!(zklock.end().code, Some(0));
}
