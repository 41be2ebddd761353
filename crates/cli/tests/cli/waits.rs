//! How long `zklock` waits for a lock that is taken, and what the wait costs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use zklock::embedded::Server;

use crate::program::{Ended, Log, Zklock, on_every_server};
use crate::support::proxy::Proxy;
use crate::support::{eventually, fresh_path, timed};

on_every_server! {
    a_wait_is_as_short_as_the_user_says
    a_wait_that_connecting_has_used_up_still_gets_a_free_lock
}

/// Once, it took half a second, and longer if the lock was of another kind.
fn a_wait_is_as_short_as_the_user_says(hosts: &str) {
    let (path, log) = (fresh_path("short"), Log::new());
    let holds = format!("{}; read -r _", log.write("holds"));
    let mut holder = Zklock::start(hosts, &format!("run {path}"), &holds);
    log.await_word("holds");
    for kind in ["run", "run -s", "run --permits 2"] {
        // How much longer the wait is than a run that has nothing to wait for; a busy machine may delay one of
        // them.
        let longer = || {
            let free = fresh_path("free");
            let (ended, free) = connected(hosts, &format!("{kind} -w 0.05 {free}"), ":");
            assert_eq!(ended.code, Some(0), "{kind}: {ended:?}");
            let (ended, took) = connected(hosts, &format!("{kind} -w 0.05 {path}"), ":");
            assert_eq!(ended.code, Some(1), "{kind}: {ended:?}");
            took.saturating_sub(free)
        };
        let longer = (0..5).map(|_| longer()).min();
        assert!(
            longer < Some(Duration::from_millis(300)),
            "{kind}: {longer:?}"
        );
    }
    holder.feed("\n");
    assert_eq!(holder.end().code, Some(0));
}

fn a_wait_that_connecting_has_used_up_still_gets_a_free_lock(hosts: &str) {
    for kind in ["run", "run -s", "run --permits 2", "once --slot a"] {
        let path = fresh_path("used-up");
        let (ended, _) = connected(hosts, &format!("{kind} -w 0.001 {path}"), "exit 3");
        assert_eq!(ended.code, Some(3), "{kind}: {}", ended.err);
    }
}

/// Once, it said that no server had answered within the half second that connecting had left.
#[test]
fn who_has_waited_in_vain_for_an_answer_is_told_the_time_that_it_has_allowed() {
    let server = Server::start().expect("a server");
    let proxy = Proxy::start(server.hosts());
    proxy.delay(Duration::from_millis(300));
    for kind in ["run", "run --permits 2", "once --slot a"] {
        let ended = Zklock::run(&proxy.hosts(), &format!("{kind} -w 1 /a"), ":");
        assert_eq!(ended.code, Some(69), "{kind}: {ended:?}");
        assert!(ended.err.contains(" within 1s"), "{kind}: {ended:?}");
    }
}

/// Runs the program; returns its end and how long that took. Repeats the run if no server has greeted within the
/// second for connecting, as on a machine that stands still.
fn connected(hosts: &str, args: &str, script: &str) -> (Ended, Duration) {
    let runs = (0..5).map(|_| timed(|| Zklock::run(hosts, args, script)));
    let mut runs = runs.filter(|(ended, _)| ended.code != Some(69));
    runs.next().expect("a server that greets within a second")
}

/// Once, on a terminal and with `-v`, the program asked for the lock only when it knew the nodes below the path.
#[test]
fn what_is_told_of_a_path_delays_no_command() {
    const ROUND_TRIP: Duration = Duration::from_millis(300);
    let server = Server::start().expect("a server");
    let (path, proxy) = (fresh_path("told"), Proxy::start(server.hosts()));
    proxy.delay(ROUND_TRIP / 2);
    // A busy machine may delay one of them.
    let least = |command: &str| {
        let run = || {
            let (ended, took) =
                timed(|| Zklock::run(&proxy.hosts(), &format!("{command} {path}"), ":"));
            assert_eq!(ended.code, Some(0), "{command}: {ended:?}");
            took
        };
        (0..4).map(|_| run()).min().expect("a run")
    };
    let (silent, told) = (least("run"), least("-v run"));
    assert!(
        told < silent + ROUND_TRIP / 2,
        "{told:?}, and {silent:?} where nothing is told"
    );
}

/// Once, it asked ten times a second.
#[test]
fn a_wait_for_another_kind_of_lock_asks_nothing() {
    const A_WHILE: Duration = Duration::from_secs(3);
    let server = Server::start().expect("a server");
    let path = fresh_path("asks-nothing");
    let log = Log::new();
    let holds = format!("{}; read -r _", log.write("holds"));
    let mut holder = Zklock::start(server.hosts(), &format!("run {path}"), &holds);
    log.await_word("holds");
    let waiter = Zklock::start(server.hosts(), &format!("run --permits 2 {path}"), ":");
    let asked = || received(server.hosts());
    // The watch is set when the program sends no requests any more.
    let mut before = asked();
    eventually("it waits", || {
        thread::sleep(Duration::from_millis(500));
        let since = std::mem::replace(&mut before, asked());
        before - since <= 2
    });
    thread::sleep(A_WHILE);
    let count = asked() - before;
    // Both clients ping, and the holder lets its lock be confirmed.
    assert!(count < 10, "{count} requests");
    holder.feed("\n");
    assert_eq!(holder.end().code, Some(0));
    assert_eq!(waiter.end().code, Some(0));
}

/// Returns how many requests the server has received.
fn received(hosts: &str) -> u64 {
    let mut stream = TcpStream::connect(hosts).expect("a connection");
    stream.write_all(b"srvr").expect("asking");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("an answer");
    let count = said
        .lines()
        .find_map(|line| line.strip_prefix("Received: "));
    count
        .and_then(|count| count.trim().parse().ok())
        .expect("a number")
}
