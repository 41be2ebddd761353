//! The log of waits: a waiter logs what it waits for, and a holder why it lost its lock.

use std::thread;
use std::time::Duration;

use zklock::embedded::Server;
use zklock::{Client, LostReason};

use super::connect;
use crate::logs;
use crate::support::worker::alone;
use crate::support::{eventually, fresh_path, handle};

#[test]
fn a_waiter_says_what_it_waits_for_when_that_changes_and_nothing_else() {
    alone(|| {
        logs::keep();
        let server = Server::start().unwrap();
        let named = |note| {
            let builder = Client::builder(server.hosts()).note(note);
            builder.session_timeout(Duration::from_secs(4)).connect()
        };
        let (first, second) = (named("first").unwrap(), named("second").unwrap());
        let (third, path) = (named("third").unwrap(), fresh_path("told"));
        let holder = first.mutex(&path).unwrap().lock().unwrap();
        let said = |count| {
            let what = format!("{count} say what they wait for");
            eventually(&what, || logs::count("waiting for") == count);
        };
        thread::scope(|scope| {
            scope.spawn(|| drop(second.mutex(&path).unwrap().lock().unwrap()));
            said(1);
            scope.spawn(|| drop(third.mutex(&path).unwrap().lock().unwrap()));
            said(2);
            scope.spawn(|| drop(third.mutex(&path).unwrap().lock().unwrap()));
            said(3);
            thread::sleep(Duration::from_millis(300));
            drop(holder);
        });
        let permits = first.semaphore("/s", 1).unwrap();
        let permit = permits.acquire().unwrap();
        let soon = Duration::from_millis(300);
        assert!(permits.try_acquire_for(soon).unwrap().is_none());
        drop(permit);

        let told: Vec<_> = logs::take()
            .into_iter()
            .filter(|line| line.contains("waiting for"))
            .map(|line| {
                // Threads wait for each other all the time.
                let level = match line.contains("another thread") {
                    true => "DEBUG ",
                    false => "INFO ",
                };
                assert!(line.starts_with(level), "{line}");
                let text = line.split_once(": ").expect("a target").1;
                // These are the host and the process id.
                let mut words: Vec<_> = text.split(' ').collect();
                if let Some(pid) = words.iter().position(|word| *word == "pid") {
                    words.drain(pid - 1..pid + 2);
                }
                words.join(" ").replace(&path, "/m")
            })
            .collect();
        let mut expected = [
            "waiting for the lock /m, which (first) holds",
            "waiting for the lock /m: 2 ahead, then (second)",
            "waiting for the lock /m, which another thread of this client has",
            "waiting for the lock /m, which (second) holds",
            "waiting for a permit of /s: 1 must be given back first",
        ]
        .to_vec();
        // The third client may find the lock free when it looks.
        expected.retain(|line| !line.contains("(second) holds") || told.iter().any(|t| t == line));
        assert_eq!(told, expected);
    });
}

#[test]
fn the_log_says_at_debug_level_when_a_lock_of_each_kind_was_granted_and_released() {
    alone(|| {
        logs::keep();
        let (server, timeout) = (Server::start().unwrap(), Duration::from_secs(4));
        let handle = handle::connect(server.hosts(), timeout, |_| ());
        let handle = Client::from_zookeeper(handle, timeout).unwrap();
        for (client, transacts) in [(connect(server.hosts(), timeout), true), (handle, false)] {
            let path = fresh_path("told");
            let guard = client.mutex(&path).unwrap().lock().unwrap();
            let (node, token) = (guard.node().to_owned(), guard.fencing_token().get());
            tells(&[(
                &format!("got {path} after "),
                &format!(": token {token}, node {node}"),
            )]);
            drop(guard);
            tells(&[(&format!("released {path} after "), &format!(": {node}"))]);

            let lock = client.rwlock(&path).unwrap();
            let granted = || tells(&[(&format!("got {path} after "), "")]);
            let released = || tells(&[(&format!("released {path} after "), "")]);
            let reader = lock.read().unwrap();
            granted();
            reader.unlock().unwrap();
            released();
            let reader = lock.write().unwrap().downgrade().unwrap();
            granted();
            drop(reader);
            released();

            let permits = format!("{path}-permits");
            let permit = client.semaphore(&permits, 1).unwrap().acquire().unwrap();
            tells(&[(&format!("got {permits} after "), "")]);
            permit.unlock().unwrap();
            tells(&[(&format!("released {permits} after "), "")]);

            if !transacts {
                continue;
            }
            let both = [path.as_str(), "/another"];
            let guard = client.multi_lock(both).unwrap().lock().unwrap();
            let all = format!("got /another, {path} after ");
            assert_eq!(logs::count(&all), 1);
            logs::take();
            drop(guard);
            tells(&[(&format!("released /another, {path} after "), "")]);
        }
    });
}

/// Checks which lines at debug level tell of grants and releases since the last call: how they begin and end.
#[track_caller]
fn tells(expected: &[(&str, &str)]) {
    let of_locks = |line: &String| {
        let line = line.strip_prefix("DEBUG zklock::lock::raw_guard");
        let text = line.and_then(|line| line.split_once(": "));
        text.map(|(_, text)| text.to_owned())
    };
    let told: Vec<_> = logs::take().iter().filter_map(of_locks).collect();
    assert_eq!(told.len(), expected.len(), "{told:?}");
    for (line, (begins, ends)) in told.iter().zip(expected) {
        assert!(line.starts_with(begins) && line.ends_with(ends), "{line}");
    }
}

#[test]
fn a_thread_that_hands_its_lock_on_says_so_at_debug_level() {
    alone(|| {
        logs::keep();
        let server = Server::start().unwrap();
        let builder = Client::builder(server.hosts()).local_handoffs(8);
        let (client, path) = (builder.connect().unwrap(), fresh_path("handed"));
        let guard = client.mutex(&path).unwrap().lock().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| drop(client.mutex(&path).unwrap().lock().unwrap()));
            eventually("it waits", || {
                logs::count("another thread of this client") == 1
            });
            drop(guard);
        });
        let (got, handed) = (format!("got {path}"), format!("handed on {path}"));
        let count = |what: &str| logs::count(what);
        assert_eq!((count(&got), count(&handed), count("released ")), (2, 1, 1));
    });
}

#[test]
fn the_log_says_of_an_evicted_lock_what_its_guard_says_and_that_a_client_is_back() {
    alone(|| {
        logs::keep();
        let server = Server::start().unwrap();
        let client = Client::connect(server.hosts()).unwrap();
        let path = fresh_path("evicted");
        let guard = client.mutex(&path).unwrap().lock().unwrap();
        server.disconnect_all();
        eventually("it is back", || client.metrics().reconnects == 1);
        for contender in client.contenders(&path).unwrap() {
            contender.evict().unwrap();
        }
        eventually("it knows why", || {
            guard.lost_reason() == Some(LostReason::Evicted)
        });
        let logged = || logs::take().into_iter();
        let mut lines = Vec::new();
        eventually("the log knows why, too", || {
            lines.extend(logged());
            let of_loss = |line: &&String| line.contains(&format!("{path} is Lost"));
            let last = lines.iter().rfind(of_loss);
            last.is_some_and(|line| line.ends_with("another client evicted it"))
        });
        let back = format!("{}: connected, session", server.hosts());
        let back = |line: &&String| line.starts_with("INFO") && line.contains(&back);
        assert_eq!(lines.iter().filter(back).count(), 1, "{lines:?}");
    });
}

#[test]
fn of_a_client_that_is_closed_with_many_guards_one_line_warns() {
    alone(|| {
        logs::keep();
        let server = Server::start().unwrap();
        let client = Client::connect(server.hosts()).unwrap();
        let mutexes: Vec<_> = (0..50)
            .map(|_| client.mutex(&fresh_path("closed")).unwrap())
            .collect();
        let guards: Vec<_> = mutexes.iter().map(|one| one.lock().unwrap()).collect();
        client.close().unwrap();
        client.close().unwrap();
        assert!(guards.iter().all(|one| one.check().is_err()));
        let mut lines = logs::take();
        lines.retain(|line| line.starts_with("WARN"));
        let [line] = &lines[..] else {
            panic!("{lines:?}");
        };
        assert!(line.ends_with("the client was closed with 50 guards, which are Lost"));
    });
}

/// Once, the log said nothing for 15 s unless some other server had an address.
#[test]
fn a_client_that_no_server_answers_says_why_before_it_gives_up() {
    alone(|| {
        logs::keep();
        for (hosts, millis, why) in [
            (
                "no-such-host.invalid",
                1500,
                "2181: the name cannot be resolved: ",
            ),
            ("127.0.0.1:1", 2500, "127.0.0.1:1: Connection refused"),
        ] {
            logs::take();
            let limit = Duration::from_millis(millis);
            let connected = Client::builder(hosts).connect_timeout(limit).connect();
            connected.expect_err("no server");
            let told = logs::take();
            let mut told = told.iter().filter(|line| line.starts_with("WARN "));
            let line = told.next().expect("a warning");
            assert!(
                line.contains("no server has answered yet, trying on: "),
                "{line}"
            );
            assert!(line.contains(why), "{line}");
            assert_eq!(told.next(), None);
        }
    });
}
