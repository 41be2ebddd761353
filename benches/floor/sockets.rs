//! Raw sockets in each scenario, which do what a lock needs, and nothing else.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::raw::Raw;
use crate::rounds::{FRESH_WAIT, hold, in_threads};

pub(crate) fn floor_cycles(hosts: &str, count: usize, path: &str) -> f64 {
    raw_cycles(hosts, count, path, true)
}

pub(crate) fn bare_cycles(hosts: &str, count: usize, path: &str) -> f64 {
    raw_cycles(hosts, count, path, false)
}

/// One thread and one socket serve all the locks, which saves every wake-up that threads
/// would need.
fn raw_cycles(hosts: &str, count: usize, path: &str, lists: bool) -> f64 {
    // The answer that shows that the lock is held.
    let last = if lists { Due::List } else { Due::Create };
    in_threads(1, |_, over, done| {
        let mut raw = Raw::connect(hosts);
        let dirs: Vec<_> = (0..count).map(|at| format!("{path}-{at}")).collect();
        for dir in &dirs {
            raw.make(dir);
        }
        let mut due = VecDeque::new();
        let mut names = vec![String::new(); count];
        let enter = |raw: &mut Raw, due: &mut VecDeque<_>, at: usize| {
            raw.enter(&dirs[at], lists);
            due.push_back((at, Due::Create));
            due.extend(lists.then_some((at, Due::List)));
        };
        (0..count).for_each(|at| enter(&mut raw, &mut due, at));
        raw.flush();
        while !over.load(Ordering::Relaxed) {
            let frame = raw.frame();
            let Some((at, what)) = due.pop_front() else {
                continue;
            };
            match what {
                Due::Delete => {}
                Due::Create => names[at] = frame.created(),
                Due::List => assert_eq!(frame.children().len(), 1),
            }
            if what == last {
                done.fetch_add(1, Ordering::Relaxed);
                raw.delete(&names[at]);
                if count == 1 {
                    // A program would do work between a release and its next lock.
                    raw.flush();
                }
                due.push_back((at, Due::Delete));
                enter(&mut raw, &mut due, at);
            }
            // If more replies have arrived, there will be more to write.
            if !raw.has_frame() {
                raw.flush();
            }
        }
    })
}

/// Like [`bare_cycles`], but deletes and creates of the same moment are one transaction: in
/// each burst of replies, half of the locks are released and taken again.
pub(crate) fn joined_cycles(hosts: &str, count: usize, path: &str) -> f64 {
    transactions(hosts, count, path, false)
}

/// Like [`joined_cycles`], with a look at each node: the reply to the transaction does not
/// have the zxid of its creation, which is the fencing token.
pub(crate) fn told_cycles(hosts: &str, count: usize, path: &str) -> f64 {
    transactions(hosts, count, path, true)
}

fn transactions(hosts: &str, count: usize, path: &str, looks: bool) -> f64 {
    in_threads(1, |_, over, done| {
        let mut raw = Raw::connect(hosts);
        let dirs: Vec<_> = (0..count).map(|at| format!("{path}-{at}")).collect();
        let dirs: Vec<_> = dirs.iter().map(String::as_str).collect();
        for dir in &dirs {
            raw.make(dir);
        }
        // Two transactions are on their way at a time, so that one is written during the other, as
        // in the other cycles.
        let halves: Vec<_> = dirs.chunks(count.div_ceil(2)).collect();
        let mut due = VecDeque::new();
        for half in &halves {
            raw.joined(&[], half);
            due.push_back((*half, Answer::Joined(0)));
        }
        raw.flush();
        while !over.load(Ordering::Relaxed) {
            let frame = raw.frame();
            let (half, names, looks) = match due.pop_front() {
                None | Some((_, Answer::Look)) => continue,
                Some((half, Answer::Joined(deleted))) => (half, frame.joined(deleted), looks),
                Some((half, Answer::LastLook(names))) => (half, names, false),
            };
            if looks {
                for name in &names {
                    raw.request(3, name, &[0]);
                }
                due.extend((1..names.len()).map(|_| (half, Answer::Look)));
                due.push_back((half, Answer::LastLook(names)));
            } else {
                done.fetch_add(names.len() as u64, Ordering::Relaxed);
                raw.joined(&names, half);
                due.push_back((half, Answer::Joined(names.len())));
            }
            if !raw.has_frame() {
                raw.flush();
            }
        }
    })
}

/// The request that is answered next: a transaction with this many deletions, or a look at a node.
enum Answer {
    Joined(usize),
    Look,
    LastLook(Vec<String>),
}

#[derive(Clone, Copy, PartialEq)]
enum Due {
    Create,
    List,
    Delete,
}

pub(crate) fn floor_hand_offs(hosts: &str, count: usize, path: &str) -> f64 {
    in_threads(count, |_, over, done| {
        let mut raw = Raw::connect(hosts);
        raw.make(path);
        while !over.load(Ordering::Relaxed) {
            let node = raw.hold(path);
            done.fetch_add(1, Ordering::Relaxed);
            raw.delete(&node);
            raw.flush();
        }
    })
}

/// One thread serves all the sockets, since only one of them has work at a time.
pub(crate) fn floor_queue(hosts: &str, count: usize, path: &str) -> f64 {
    queue(hosts, count, path, Duration::ZERO)
}

/// Like [`floor_queue`], but the last socket has waited for as long as the peers' clients do.
pub(crate) fn floor_fresh_queue(hosts: &str, count: usize, path: &str) -> f64 {
    queue(hosts, count, path, FRESH_WAIT)
}

fn queue(hosts: &str, count: usize, path: &str, waited: Duration) -> f64 {
    let mut gate = Raw::connect(hosts);
    gate.make(path);
    let mut before = gate.hold(path);
    let first = before.clone();
    let mut queue = Vec::new();
    for _ in 0..count {
        let mut raw = Raw::connect(hosts);
        let listed = raw.enter(path, true);
        let node = raw.reply_to(listed - 1).created();
        raw.reply_to(listed).children();
        let watched = raw.request(4, &before, &[1]);
        assert_eq!(raw.reply_to(watched).code(), 0);
        queue.push((raw, before, node.clone()));
        before = node;
    }
    std::thread::sleep(waited);
    let (begun, mut held) = (Instant::now(), Duration::ZERO);
    gate.delete(&first);
    gate.flush();
    for (raw, before, node) in &mut queue {
        raw.wait_until_gone(before);
        let listed = raw.request(8, path, &[0]);
        let names = raw.reply_to(listed).children();
        let least = names.iter().min_by_key(|name| &name[name.len() - 10..]);
        assert!(node.ends_with(least.expect("our node")));
        held += hold();
        raw.delete(node);
        raw.flush();
    }
    count as f64 / (begun.elapsed() - held).as_secs_f64()
}
