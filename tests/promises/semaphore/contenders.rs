//! The contenders that hold a permit or wait for one, as a client sees them that is not in the
//! line.

use std::thread;

use crossbeam_channel::{Receiver, bounded};
use zklock::{Contender, Dialect, LockOptions, Permit, Role};

use super::{connect, dialects};
use crate::support::{aside, eventually, fresh_path};
use crate::transport::{Place, SOON, in_every_place};

in_every_place! {
    the_holders_of_a_semaphore_come_first_and_then_its_line
    a_change_of_the_permits_or_of_the_line_is_told
}

/// Returns the contenders: whether each holds, and its note.
fn told(contenders: &[Contender]) -> Vec<(bool, String)> {
    contenders
        .iter()
        .map(|contender| {
            assert_eq!(contender.role(), Role::Permit, "{contender:?}");
            let note = contender.owner().note.clone();
            (contender.holds(), note.unwrap_or_default())
        })
        .collect()
}

/// Waits for a permit in a thread of its own, which ends when it is told to.
fn waiter(
    place: Place,
    dialect: Dialect,
    path: &str,
    name: &str,
    permits: u32,
) -> (crossbeam_channel::Sender<()>, Receiver<Option<Permit>>) {
    let semaphore = connect(place, dialect).semaphore(path, permits).unwrap();
    let (cancel, cancelled) = bounded(1);
    let name = name.to_owned();
    let got = aside(move || {
        let options = LockOptions::new().note(&name).cancel(cancelled);
        semaphore.acquire_with(options).unwrap()
    });
    (cancel, got)
}

fn expected(all: &[(bool, &str)]) -> Vec<(bool, String)> {
    let owned = |(holds, name): &(bool, &str)| (*holds, (*name).to_owned());
    all.iter().map(owned).collect()
}

fn the_holders_of_a_semaphore_come_first_and_then_its_line(place: Place) {
    for &dialect in dialects(place) {
        let path = fresh_path("who");
        let onlooker = connect(place, dialect);
        assert!(onlooker.contenders(&path).unwrap().is_empty());
        let semaphore = connect(place, dialect).semaphore(&path, 2).unwrap();
        let take = |note| {
            let options = LockOptions::new().note(note);
            semaphore.acquire_with(options).unwrap().unwrap()
        };
        let [a, b] = ["a", "b"].map(take);
        let look = || told(&onlooker.contenders(&path).unwrap());
        let mut expect = vec![(true, "a"), (true, "b")];
        let mut waiters = Vec::new();
        for name in ["c", "d", "e"] {
            waiters.push(waiter(place, dialect, &path, name, 2));
            expect.push((false, name));
            eventually("it is seen in the line", || look() == expected(&expect));
        }
        // The first one in the line asks for a permit, and does not count as two.
        thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(look(), expected(&expect));
        let all = onlooker.contenders(&path).unwrap();
        assert_eq!([all[0].node(), all[1].node()], [a.node(), b.node()]);

        a.unlock().unwrap();
        let c = waiters.remove(0).1.recv_timeout(SOON).unwrap().unwrap();
        let expect = [(true, "b"), (true, "c"), (false, "d"), (false, "e")];
        eventually("the next one holds", || look() == expected(&expect));
        for (cancel, _) in &waiters {
            cancel.send(()).unwrap();
        }
        eventually("the line is empty", || look() == expected(&expect[..2]));
        drop((b, c));
        eventually("nobody is there", || look().is_empty());
    }
}

/// A client keeps its view up to date through notifications alone, without asking.
fn a_change_of_the_permits_or_of_the_line_is_told(place: Place) {
    for &dialect in dialects(place) {
        let path = fresh_path("told");
        let onlooker = connect(place, dialect);
        let (to, pictures) = bounded(100);
        let watched = path.clone();
        let watching = aside(move || {
            let mut known = Vec::new();
            loop {
                known = onlooker
                    .wait_for_change(&watched, &known, 6 * SOON)
                    .unwrap();
                if to.send(told(&known)).is_err() {
                    return;
                }
            }
        });
        let mut last = Vec::new();
        let mut expect = |what: &str, expect: &[(bool, &str)]| {
            let expect = expected(expect);
            while last != expect {
                let seen = pictures.recv_timeout(SOON);
                last = seen.unwrap_or_else(|_| panic!("{dialect:?}, {what}: still {last:?}"));
            }
        };
        let (_a, a) = waiter(place, dialect, &path, "a", 2);
        let a = a.recv_timeout(SOON).unwrap().unwrap();
        expect("the first permit", &[(true, "a")]);
        let (_b, b) = waiter(place, dialect, &path, "b", 2);
        let b = b.recv_timeout(SOON).unwrap().unwrap();
        expect("the second one", &[(true, "a"), (true, "b")]);
        let (_c, c) = waiter(place, dialect, &path, "c", 2);
        expect("a waiter", &[(true, "a"), (true, "b"), (false, "c")]);
        let (cancel, _d) = waiter(place, dialect, &path, "d", 2);
        let all = [(true, "a"), (true, "b"), (false, "c"), (false, "d")];
        expect("another one", &all);
        cancel.send(()).unwrap();
        expect("who gives up", &all[..3]);
        a.unlock().unwrap();
        expect("a permit that passes on", &[(true, "b"), (true, "c")]);
        drop((b, c.recv_timeout(SOON).unwrap()));
        expect("the end", &[]);
        assert!(watching.is_empty(), "it goes on");
    }
}
