//! Ports for the servers of the tests.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::process;
use std::sync::{Mutex, PoisonError};

/// The ports below the ranges from which the system takes those of outgoing connections and the
/// embedded server its own.
const PORTS: Range<u16> = 12_000..20_000;

/// How many ports a process claims at once.
const EACH: u16 = 50;

/// Returns a port of the loopback interface that no other process of the tests is given as long
/// as this one lives, so that a server can be stopped and started again on it.
///
/// Another program may have it by now: the port was free a moment ago.
pub fn free_port() -> u16 {
    static OURS: Mutex<Claims> = Mutex::new(Claims::new());
    let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let port = ours.next();
        if listen(port).is_some() {
            return port;
        }
    }
}

/// The claims of ranges of ports, with the one in use last.
struct Claims {
    held: VecDeque<Claim>,
    /// The number of the next port in the range in use.
    next: u16,
}

impl Claims {
    const fn new() -> Self {
        Self {
            held: VecDeque::new(),
            next: 0,
        }
    }

    fn next(&mut self) -> u16 {
        if self.held.is_empty() || self.next == EACH {
            // The port that marks the range as claimed stays taken.
            self.next = 1;
            let claim = Claim::make().or_else(|| self.held.pop_front());
            self.held
                .push_back(claim.expect("ports between 12,000 and 20,000"));
        }
        let port = self.held[self.held.len() - 1].first + self.next;
        self.next += 1;
        port
    }
}

/// A range of ports that belongs to this process.
struct Claim {
    first: u16,
    /// The listener at the first port: no other process can listen there, and so none has the
    /// range.
    _taken: TcpListener,
}

impl Claim {
    /// Returns nothing if all ranges are taken.
    fn make() -> Option<Self> {
        let ranges = (PORTS.end - PORTS.start) / EACH;
        // Processes that start at the same time begin at different places.
        let begin = process::id() % u32::from(ranges);
        let begin = u16::try_from(begin).expect("less than all ranges");
        let order = (begin..ranges).chain(0..begin);
        order.into_iter().find_map(|range| {
            let first = PORTS.start + range * EACH;
            let _taken = listen(first)?;
            Some(Self { first, _taken })
        })
    }
}

fn listen(port: u16) -> Option<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_was_claimed_is_nobody_elses() {
        let claims = [(); 4].map(|()| Claim::make().expect("a range"));
        let firsts: BTreeSet<_> = claims.iter().map(|claim| claim.first).collect();
        assert_eq!(firsts.len(), 4);
    }

    #[test]
    fn no_port_is_given_twice_while_there_are_others() {
        let mut claims = Claims::new();
        let ports: BTreeSet<_> = (0..200).map(|_| claims.next()).collect();
        assert_eq!(ports.len(), 200);
        let firsts: Vec<_> = claims.held.iter().map(|claim| claim.first).collect();
        assert!(firsts.iter().all(|first| !ports.contains(first)));
    }
}
