//! A forked child has a copy of the client and of its guards; the locks are the parent's.

use std::process;

use fork::{Fork, fork, waitpid_nohang};
use zklock::Error;
use zklock::mysql::{Client, MutexGuard};

use crate::database::Database;
use crate::support::eventually;
use crate::support::worker::alone;
use crate::{client, seconds};

#[test]
#[ignore = "needs MariaDB"]
fn what_a_forked_child_drops_or_closes_stays_with_the_parent() {
    alone(|| {
        let database = Database::new();
        let [client, other] = [(); 2].map(|()| client(&database.url(), seconds(20)));
        for end in [drop_all, close_first, use_it] {
            let names = ["a", "b", "c", "d", "e", "f"];
            let guards = names.map(|name| client.mutex(name).unwrap().lock().unwrap());
            let pid = match fork().unwrap() {
                Fork::Child => {
                    end(client, guards.into());
                    process::exit(0);
                }
                Fork::Parent(pid) => pid,
            };
            let mut status = None;
            eventually("the child ends", || {
                status = waitpid_nohang(pid).unwrap();
                status.is_some()
            });
            assert_eq!(status, Some(0));
            assert_eq!(database.rows(), 6);
            for (guard, name) in guards.into_iter().zip(names) {
                guard.verify().unwrap();
                let theirs = other.mutex(name).unwrap();
                assert!(theirs.try_lock().unwrap().is_none());
                guard.unlock().unwrap();
                drop(theirs.try_lock().unwrap().expect(name));
            }
            database.wait_for_rows(0);
        }
    });
}

fn drop_all(client: Client, guards: Vec<MutexGuard>) {
    drop(guards);
    drop(client);
}

fn close_first(client: Client, guards: Vec<MutexGuard>) {
    client.close();
    drop((client, guards));
}

fn use_it(client: Client, mut guards: Vec<MutexGuard>) {
    let mutex = client.mutex("another").unwrap();
    for refused in [mutex.try_lock(), mutex.try_lock_for(seconds(10))] {
        assert!(matches!(refused, Err(Error::Closed)));
    }
    let guard = guards.pop().unwrap();
    assert!(matches!(guard.verify(), Err(Error::Closed)));
    assert!(matches!(guard.unlock(), Err(Error::Closed)));
    assert!(matches!(client.create_table(), Err(Error::Closed)));
}
