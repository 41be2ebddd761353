//! Nobody waits for longer than was asked, nor for what can't come any more.

mod support;

use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use support::eventually;
use zklock::embedded::Server;
use zklock::{Acl, Client, Error, LockOptions};

/// More than enough for whatever is to come at once.
const SOON: Duration = Duration::from_secs(10);

fn client(server: &Server) -> Client {
    Client::connect(server.hosts()).unwrap()
}

/// Runs this on a thread of its own, which is left alone if it hangs.
fn aside<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (to, came) = bounded(1);
    thread::spawn(move || {
        let _ = to.send(run());
    });
    came
}

#[test]
fn who_comes_to_a_closed_client_does_not_queue_behind_its_guards() {
    let server = Server::start().unwrap();
    let client = client(&server);
    let mutex = client.mutex("/m").unwrap();
    let guard = mutex.lock().unwrap();
    client.close().unwrap();
    let came = aside(move || mutex.lock().map(drop));
    assert_eq!(came.recv_timeout(SOON), Ok(Err(Error::Closed)));
    drop(guard);
}

#[test]
fn a_limit_holds_in_every_step_of_a_semaphore() {
    let server = Server::start().unwrap();
    let holder = client(&server).semaphore("/s", 1).unwrap();
    let _permit = holder.acquire().unwrap();
    server.delay(Duration::from_millis(40));
    let limits = (1..20).map(|i| Duration::from_millis(20 * i));
    let tries: Vec<_> = limits
        .map(|limit| {
            let client = client(&server);
            aside(move || {
                let start = Instant::now();
                let permit = client.semaphore("/s", 1)?.try_acquire_for(limit)?;
                assert!(permit.is_none());
                Ok::<_, Error>(start.elapsed().saturating_sub(limit))
            })
        })
        .collect();
    for came in tries {
        let late = came.recv_timeout(SOON).unwrap().unwrap();
        assert!(late < Duration::from_secs(2), "{late:?} late");
    }
}

#[test]
fn a_cancelled_multi_lock_ends_wherever_it_is() {
    let server = Server::start().unwrap();
    let _guard = client(&server).mutex("/a").unwrap().lock().unwrap();
    server.delay(Duration::from_millis(40));
    let tries: Vec<_> = (1..12)
        .map(|i| {
            let client = client(&server);
            let (cancel, cancelled) = bounded(1);
            let came = aside(move || {
                let options = LockOptions::new().cancel(cancelled);
                let lock = client.multi_lock(["/a", "/b"]).unwrap();
                lock.lock_with(options).map(|guard| guard.is_none())
            });
            thread::sleep(Duration::from_millis(15 * i));
            cancel.send(()).unwrap();
            (cancel, came)
        })
        .collect();
    for (_cancel, came) in tries {
        assert_eq!(came.recv_timeout(SOON), Ok(Ok(true)));
    }
}

#[test]
fn directories_that_may_not_be_made_are_an_error() {
    let server = Server::start().unwrap();
    let owner = Client::builder(server.hosts())
        .auth("digest", "jo:secret")
        .acl(Acl::creator_all())
        .connect()
        .unwrap();
    drop(owner.mutex("/theirs/lock").unwrap().lock().unwrap());
    let other = client(&server);
    let mutex = other.mutex("/theirs/new/lock").unwrap();
    let came = aside(move || mutex.lock().map(drop));
    assert!(matches!(
        came.recv_timeout(SOON).expect("an answer"),
        Err(Error::NoAuth { .. })
    ));
    let both = other.multi_lock(["/mine", "/theirs/new/lock"]).unwrap();
    let came = aside(move || both.lock().map(drop));
    assert!(matches!(
        came.recv_timeout(SOON).expect("an answer"),
        Err(Error::NoAuth { .. })
    ));
}

#[test]
fn a_chroot_that_is_missing_is_said_to_be() {
    let server = Server::start().unwrap();
    let client = Client::connect(&format!("{}/missing", server.hosts())).unwrap();
    let mutex = client.mutex("/lock").unwrap();
    let both = client.multi_lock(["/lock", "/other"]).unwrap();
    for error in [mutex.lock().map(drop), both.lock().map(drop)] {
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("chroot") && error.contains("/lock"),
            "{error}"
        );
    }
}

#[test]
fn a_new_session_goes_back_to_the_end_of_a_semaphores_line() {
    let server = Server::start().unwrap();
    let (watcher, first, second) = (client(&server), client(&server), client(&server));
    let left = |dir: &str| watcher.contenders(&format!("/s/{dir}")).unwrap().len();
    let permit = watcher.semaphore("/s", 1).unwrap().acquire().unwrap();
    let wait = |client: &Client| {
        let semaphore = client.semaphore("/s", 1).unwrap();
        aside(move || semaphore.acquire().and_then(|permit| permit.unlock()))
    };
    let one = wait(&first);
    eventually("the first waits for a permit", || left("leases") == 2);
    let two = wait(&second);
    eventually("the second waits in the line", || left("locks") == 2);
    server.expire_session(first.session_id());
    eventually("both wait again", || left("leases") + left("locks") == 4);
    drop(permit);
    assert_eq!(two.recv_timeout(SOON), Ok(Ok(())));
    assert_eq!(one.recv_timeout(SOON), Ok(Ok(())));
}

#[test]
fn a_thread_does_not_wait_for_itself_in_the_line_of_a_semaphore() {
    let server = Server::start().unwrap();
    let client = client(&server);
    let came = aside(move || {
        let _guard = client.mutex("/s/locks")?.lock()?;
        client.semaphore("/s", 1)?.acquire().map(drop)
    });
    assert!(matches!(
        came.recv_timeout(SOON),
        Ok(Err(Error::WouldDeadlock { .. }))
    ));
}

#[test]
fn only_who_has_a_permit_is_overdue() {
    let server = Server::start().unwrap();
    let (watcher, first, second) = (client(&server), client(&server), client(&server));
    let left = |dir: &str| watcher.contenders(&format!("/s/{dir}")).unwrap().len();
    let permit = watcher.semaphore("/s", 1).unwrap().acquire().unwrap();
    let semaphore = first.semaphore("/s", 1).unwrap();
    let one = aside(move || semaphore.acquire().and_then(|permit| permit.unlock()));
    eventually("the first waits for a permit", || left("leases") == 2);
    let semaphore = second.semaphore("/s", 1).unwrap();
    let short = Duration::from_millis(50);
    let two = aside(move || {
        let options = LockOptions::new().evict_overdue(short, short);
        semaphore
            .acquire_with(options)
            .map(|permit| permit.is_some())
    });
    eventually("the second waits in the line", || left("locks") == 2);
    assert!(one.recv_timeout(6 * short).is_err(), "nobody was evicted");
    drop(permit);
    assert_eq!(one.recv_timeout(SOON), Ok(Ok(())));
    assert_eq!(two.recv_timeout(SOON), Ok(Ok(true)));
}

#[test]
fn a_server_that_never_answers_does_not_stretch_the_connect_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut crowd = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        crowd.push(stream);
    }
    let (start, limit) = (Instant::now(), Duration::from_millis(100));
    let builder = Client::builder(&address.to_string()).connect_timeout(limit);
    let error = builder.connect().unwrap_err();
    assert!(matches!(error, Error::ConnectTimeout { .. }), "{error}");
    let late = start.elapsed() - limit;
    assert!(late < Duration::from_millis(700), "{late:?} late");
}

#[test]
fn a_waiting_thread_learns_whether_the_one_ahead_holds() {
    let server = Server::start().unwrap();
    let clients: Vec<_> = (0..4).map(|_| client(&server)).collect();
    let lock = |i: usize| clients[i].rwlock("/rw").unwrap();
    let readers = [lock(0).read().unwrap(), lock(1).read().unwrap()];
    let wait = |writes: bool, i: usize| {
        let (lock, (told, heard)) = (lock(i), bounded(8));
        let came = aside(move || {
            let options = LockOptions::new().on_wait(|waiting| {
                let _ = told.try_send(waiting.ahead().map(|ahead| ahead.holds()));
            });
            match writes {
                true => lock.write_with(options).map(drop),
                false => lock.read_with(options).map(drop),
            }
        });
        (heard, came)
    };
    let (writer, written) = wait(true, 2);
    assert_eq!(writer.recv_timeout(SOON), Ok(Some(true)), "a reader holds");
    let (reader, read) = wait(false, 3);
    assert_eq!(
        reader.recv_timeout(SOON),
        Ok(Some(false)),
        "the writer waits"
    );
    drop(readers);
    assert_eq!(written.recv_timeout(SOON), Ok(Ok(())));
    assert_eq!(read.recv_timeout(SOON), Ok(Ok(())));
}
