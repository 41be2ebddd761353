//! The features of all guards: they name themselves, fence, change threads, and end a block of
//! work.

use std::fmt::Debug;
use std::mem;
use std::thread;
use std::time::Duration;

use zklock::embedded::Server;
use zklock::{
    Client, Error, LockGuard, LockOptions, LostReason, Permit, Result, SendMultiGuard,
    SendMutexGuard, SendReadGuard, SendWriteGuard,
};

fn client() -> (Server, Client) {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    (server, client)
}

/// Masks the numbers that differ from run to run.
fn shown(value: &dyn Debug) -> String {
    let mut text = String::new();
    let plain = format!("{value:?}");
    let mut rest = plain.as_str();
    while let Some((before, number)) = rest.split_once("session: 0x") {
        text += before;
        text += "session: #";
        rest = number.trim_start_matches(|c: char| c.is_ascii_hexdigit());
    }
    text + rest
}

#[test]
fn clients_and_locks_show_what_they_are_in_one_line() {
    let (_server, client) = client();
    assert_eq!(
        shown(&client),
        "Client { waiting: 0, state: Connected, session: # }"
    );
    let locks: [(&dyn Debug, &str); 5] = [
        (&client.mutex("/m").unwrap(), r#"Mutex { path: "/m""#),
        (
            &client.reentrant_mutex("/m").unwrap(),
            r#"ReentrantMutex { path: "/m""#,
        ),
        (&client.rwlock("/r").unwrap(), r#"RwLock { path: "/r""#),
        (
            &client.semaphore("/s", 3).unwrap(),
            r#"Semaphore { path: "/s", permits: 3"#,
        ),
        (
            &client.multi_lock(["/b", "/a"]).unwrap(),
            r#"MultiLock { paths: ["/a", "/b"]"#,
        ),
    ];
    for (lock, begins) in locks {
        let expected = format!("{begins}, state: Connected, session: # }}");
        assert_eq!(shown(lock), expected);
    }
    #[derive(Debug)]
    #[expect(dead_code, reason = "it is shown")]
    struct Job {
        client: Client,
        attempts: u32,
    }
    client.close().unwrap();
    let job = Job {
        client,
        attempts: 1,
    };
    assert_eq!(
        shown(&job),
        "Job { client: Client { waiting: 0, state: Closed, session: # }, attempts: 1 }"
    );
}

#[test]
fn guards_show_what_they_hold_in_one_line() {
    let (_server, client) = client();
    let guard = client.mutex("/m").unwrap().lock().unwrap();
    let token = guard.fencing_token();
    let held = format!("{{ path: \"/m\", state: Held, token: {token}, session: # }}");
    assert_eq!(shown(&guard), format!("MutexGuard {held}"));
    let guard = guard.into_send();
    assert_eq!(shown(&guard), format!("SendMutexGuard {held}"));
    let permit = client.semaphore("/s", 3).unwrap().acquire().unwrap();
    assert_eq!(
        shown(&permit),
        r#"Permit { path: "/s", state: Held, session: # }"#
    );
    let all = client.multi_lock(["/b", "/a"]).unwrap().lock().unwrap();
    let begins = r#"MultiGuard { path: "/a, /b", state: Held, token: "#;
    assert!(shown(&all).starts_with(begins), "{all:?}");
    client.close().unwrap();
    let lost = format!("{{ path: \"/m\", state: Lost, why: Closed, token: {token}, session: # }}");
    assert_eq!(shown(&guard), format!("SendMutexGuard {lost}"));
}

#[test]
fn every_guard_names_its_lock_and_fences_if_it_holds_alone() {
    let (_server, client) = client();
    let mutex = client.mutex("/m").unwrap();
    let rwlock = client.rwlock("/r").unwrap();
    let fenced: Vec<(&[&str], Box<dyn LockGuard>)> = vec![
        (&["/m"], Box::new(mutex.lock().unwrap())),
        (&["/r"], Box::new(rwlock.write().unwrap())),
        (
            &["/a", "/b"],
            Box::new(client.multi_lock(["/a", "/b"]).unwrap().lock().unwrap()),
        ),
    ];
    for (paths, guard) in fenced {
        assert_eq!(guard.paths(), paths);
        let first = format!("{}/", paths[0]);
        assert!(guard.node().starts_with(&first), "{guard:?}");
        assert!(guard.fencing_token().is_some(), "{guard:?}");
        guard.unlock().unwrap();
    }
    let guard = mutex.lock().unwrap();
    let token = guard.fencing_token();
    assert_eq!(LockGuard::fencing_token(&guard), Some(token));
    let permit = client.semaphore("/s", 1).unwrap().acquire().unwrap();
    assert_eq!(LockGuard::fencing_token(&permit), None);
    assert_eq!(permit.path(), "/s");
    assert!(permit.node().starts_with("/s/leases/"));
}

#[test]
fn a_boxed_guard_writes_and_is_released_as_the_guard_inside() {
    fn end(guard: impl LockGuard) {
        assert!(guard.is_valid());
        let write = guard.transaction().create("/done", b"");
        write.commit().unwrap();
        guard.unlock().unwrap();
    }
    let (_server, client) = client();
    let guard = client.mutex("/m").unwrap().lock().unwrap();
    let boxed: Box<dyn LockGuard + Send> = Box::new(guard.into_send());
    end(boxed);
    assert!(client.nodes().exists("/done").unwrap());
    assert!(client.contenders("/m").unwrap().is_empty());
}

#[test]
fn every_guard_that_moves_is_released_by_another_thread_and_loses_nothing() {
    fn ends_elsewhere(guard: impl LockGuard + Send + 'static) {
        thread::spawn(move || guard.unlock())
            .join()
            .unwrap()
            .unwrap();
    }
    let (_server, client) = client();
    let rwlock = client.rwlock("/r").unwrap();
    let writing: SendWriteGuard = rwlock.write().unwrap().into();
    let token = writing.fencing_token();
    let reading = thread::spawn(move || writing.downgrade());
    let reading: SendReadGuard = reading.join().unwrap().unwrap();
    assert_eq!(reading.fencing_token(), token);
    // This thread may read, too: it is not the one that holds the lock.
    let beside: SendReadGuard = rwlock.read().unwrap().into();
    ends_elsewhere(reading);
    ends_elsewhere(beside);

    let multi = client.multi_lock(["/a", "/b"]).unwrap();
    let all: SendMultiGuard = multi.lock().unwrap().into();
    assert_eq!(all.tokens().count(), all.nodes().len());
    assert!(all.paths().eq(["/a", "/b"]));
    let soon = Duration::from_millis(500);
    assert!(multi.try_lock_for(soon).unwrap().is_none(), "no deadlock");
    ends_elsewhere(all);

    let mutex = client.mutex("/t").unwrap();
    let tracking = || LockOptions::new().track_abandonment();
    let tracked = || mutex.lock_with(tracking()).unwrap().unwrap();
    let left = tracked();
    let token = left.fencing_token();
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _left = left;
        std::panic::resume_unwind(Box::new(()));
    }));
    let next: SendMutexGuard = tracked().into();
    assert_eq!(next.abandoned(), Some(token));
    ends_elsewhere(next);
    ends_elsewhere(client.semaphore("/s", 1).unwrap().acquire().unwrap());
}

#[test]
fn a_block_of_work_under_a_lock_ends_with_its_release_confirmed() {
    let (server, client) = client();
    let (mutex, rwlock) = (client.mutex("/m").unwrap(), client.rwlock("/r").unwrap());
    let free = || !server.nodes().iter().any(|node| node.contains("-lock-"));
    let token = mutex.with(|guard| Ok::<_, Error>(guard.fencing_token()));
    assert!(token.is_ok() && free());
    assert_eq!(rwlock.with_read(|guard| guard.check()), Ok(()));
    assert_eq!(rwlock.with_write(|guard| guard.check()), Ok(()));

    // The error of the work comes first, of any type into which the lock's errors can be converted.
    type Any = Box<dyn std::error::Error>;
    let failed: std::result::Result<(), Any> = mutex.with(|_| Err("no paper".into()));
    assert_eq!(failed.unwrap_err().to_string(), "no paper");
    assert!(free());

    // Now the error of the lock.
    let lost: Result<()> = mutex.with(|guard| {
        client.contenders("/m")?[0].evict()?;
        guard.check().or(Ok(()))
    });
    // On a slow machine the event of the node's watch comes first, and does not say why the node
    // went.
    let is_lost = |why| matches!(why, LostReason::Evicted | LostReason::NodeGone);
    assert!(
        matches!(&lost, Err(Error::Lost { path, why }) if path == "/m" && is_lost(*why)),
        "{lost:?}"
    );
    let path = "/m".to_owned();
    let twice: Result<()> = mutex.with(|_| mutex.with(|_| Ok(())));
    assert_eq!(twice, Err(Error::WouldDeadlock { path }));

    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        mutex.with(|_| -> Result<()> { std::panic::resume_unwind(Box::new(())) })
    }));
    assert!(panicked.is_err());
    let soon = Duration::from_secs(5);
    assert!(mutex.try_lock_for(soon).unwrap().is_some(), "released");
}

#[test]
fn a_guard_that_moves_can_wait_in_a_pool() {
    fn pooled<T: Send + Sync + 'static>() {}
    pooled::<SendMutexGuard>();
    pooled::<SendReadGuard>();
    pooled::<SendWriteGuard>();
    pooled::<SendMultiGuard>();
    pooled::<Permit>();
}

#[test]
fn a_leaked_guard_keeps_its_lock_until_the_client_is_closed() {
    let server = Server::start().unwrap();
    let [client, other] = [(); 2].map(|()| Client::connect(server.hosts()).unwrap());
    mem::forget(client.mutex("/m").unwrap().lock().unwrap());
    let mutex = other.mutex("/m").unwrap();
    assert!(mutex.try_lock().unwrap().is_none());
    client.close().unwrap();
    assert!(mutex.try_lock().unwrap().is_some());
}
