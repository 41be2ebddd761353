//! No call waits longer than its caller asked, nor for an answer that can no longer come: on every
//! transport, on the embedded server and on a real one.

use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, bounded};
use zklock::{Acl, Client, Error, LockOptions, SessionState};

use crate::support::proxy::Proxy;
use crate::support::{aside, eventually, fresh_path};
use crate::transport::{Place, SOON, Transport, in_every_place, on_every_server, wait_for_queue};

/// A time shorter than a try waits for a connection.
const SHORT: Duration = Duration::from_millis(100);

in_every_place! {
    who_comes_to_a_closed_client_does_not_queue_behind_its_guards
    closing_a_client_ends_its_waits_although_nothing_is_heard
    a_waiter_that_closes_its_client_itself_learns_that
    a_limit_holds_in_every_step_of_a_semaphore
    a_thread_does_not_wait_for_itself_in_the_line_of_a_semaphore
    only_who_has_a_permit_is_overdue
    a_waiting_thread_learns_whether_the_one_ahead_holds
    threads_of_one_client_that_give_up_together_all_find_the_lock_taken
    a_try_beside_a_waiting_thread_waits_for_a_connection_too
}

// The credentials and the access control list of a handle are fixed, and it has no multi-locks.
on_every_server! {
    a_cancelled_multi_lock_ends_wherever_it_is
    directories_that_may_not_be_made_are_an_error
    a_chroot_that_is_missing_is_said_to_be
}

fn client(place: Place) -> Client {
    place.connect(&place.shared().hosts())
}

fn who_comes_to_a_closed_client_does_not_queue_behind_its_guards(place: Place) {
    let client = client(place);
    let mutex = client.mutex(&fresh_path("closed")).unwrap();
    let guard = mutex.lock().unwrap();
    client.close().unwrap();
    let came = aside(move || mutex.lock().map(drop));
    assert_eq!(came.recv_timeout(SOON), Ok(Err(Error::Closed)));
    drop(guard);
}

fn closing_a_client_ends_its_waits_although_nothing_is_heard(place: Place) {
    let path = fresh_path("silence");
    let network = Proxy::start(&place.shared().hosts());
    let (holder, waiter) = (client(place), place.connect(&network.hosts()));
    let _guard = holder.mutex(&path).unwrap().lock().unwrap();
    let mutex = waiter.mutex(&path).unwrap();
    let came = aside(move || mutex.lock().map(drop));
    eventually("it waits", || holder.contenders(&path).unwrap().len() == 2);
    network.blackhole();
    let start = Instant::now();
    // The server cannot confirm the end of the session.
    let _ = waiter.close();
    assert_eq!(came.recv_timeout(SOON), Ok(Err(Error::Closed)));
    assert!(start.elapsed() < SOON / 2, "{:?}", start.elapsed());
    network.heal();
}

fn a_waiter_that_closes_its_client_itself_learns_that(place: Place) {
    let path = fresh_path("closes");
    let [holder, second, waiter] = [(); 3].map(|()| client(place));
    let lock = |client: &Client| client.mutex(&path).unwrap();
    let _guard = lock(&holder).lock().unwrap();
    let (leave, left) = bounded(1);
    let before = lock(&second);
    let gone = aside(move || {
        let options = LockOptions::new().cancel(left);
        before.lock_with(options).map(|guard| guard.is_none())
    });
    wait_for_queue(&holder, &path, 2);
    let (mutex, mut told) = (lock(&waiter), 0);
    let came = aside(move || {
        let options = LockOptions::new().on_wait(|_| {
            told += 1;
            match told {
                1 => leave.send(()).unwrap(),
                // By now the thread hears of the connection through its mailbox.
                _ => drop(waiter.close()),
            }
        });
        mutex.lock_with(options).map(drop)
    });
    assert_eq!(gone.recv_timeout(SOON), Ok(Ok(true)));
    assert_eq!(came.recv_timeout(SOON), Ok(Err(Error::Closed)));
}

fn a_limit_holds_in_every_step_of_a_semaphore(place: Place) {
    let path = fresh_path("limits");
    let _permit = client(place)
        .semaphore(&path, 1)
        .unwrap()
        .acquire()
        .unwrap();
    let network = Proxy::start(&place.shared().hosts());
    let limits = (1..20).map(|i| Duration::from_millis(20 * i));
    let clients = limits.map(|limit| (limit, place.connect(&network.hosts())));
    let clients: Vec<_> = clients.collect();
    network.delay(Duration::from_millis(40));
    let tries: Vec<_> = clients
        .into_iter()
        .map(|(limit, client)| {
            let path = path.clone();
            aside(move || {
                let start = Instant::now();
                match client.semaphore(&path, 1)?.try_acquire_for(limit) {
                    Ok(permit) => assert!(permit.is_none()),
                    // No server has answered that soon.
                    Err(Error::ConnectTimeout { .. }) => {}
                    Err(error) => return Err(error),
                }
                Ok::<_, Error>(start.elapsed().saturating_sub(limit))
            })
        })
        .collect();
    for came in tries {
        let late = came.recv_timeout(SOON).unwrap().unwrap();
        assert!(late < SOON / 2, "{late:?} late");
    }
}

/// Once, such a try failed at once, and its error named a limit of no time.
fn a_try_beside_a_waiting_thread_waits_for_a_connection_too(place: Place) {
    let path = fresh_path("beside");
    let network = Proxy::start(&place.shared().hosts());
    let (holder, waiter) = (client(place), place.connect(&network.hosts()));
    let _guard = holder.mutex(&path).unwrap().lock().unwrap();
    let (waits, tries) = (waiter.mutex(&path).unwrap(), waiter.mutex(&path).unwrap());
    let _waits = aside(move || waits.lock().map(drop));
    eventually("it waits", || holder.contenders(&path).unwrap().len() == 2);
    network.refuse();
    eventually("it is cut", || waiter.state() != SessionState::Connected);
    let came = aside(move || tries.try_lock().map(|guard| guard.is_none()));
    assert_eq!(came.recv_timeout(SHORT), Err(RecvTimeoutError::Timeout));
    network.accept();
    match came.recv_timeout(SOON).unwrap() {
        Ok(taken) => assert!(taken),
        // The connection was not back in time.
        Err(error) => {
            assert!(matches!(error, Error::ConnectTimeout { limit, .. } if SHORT < limit))
        }
    }
}

/// Once, the second thread got its turn when no time was left, and said that no server had
/// answered.
fn threads_of_one_client_that_give_up_together_all_find_the_lock_taken(place: Place) {
    let paths = ["mutex", "reentrant", "write", "multi", "permit"].map(fresh_path);
    let (holder, waiter) = (client(place), client(place));
    let _held = [0, 1, 2, 3].map(|at| {
        let lock = holder.rwlock(&paths[at]).unwrap();
        lock.write().unwrap()
    });
    let _permit = holder.semaphore(&paths[4], 1).unwrap().acquire().unwrap();
    let multi = waiter.multi_lock([paths[3].as_str()]).unwrap();
    let mutex = waiter.mutex(&paths[0]).unwrap();
    let reentrant = waiter.reentrant_mutex(&paths[1]).unwrap();
    let write = waiter.rwlock(&paths[2]).unwrap();
    let permits = waiter.semaphore(&paths[4], 1).unwrap();
    let until = Instant::now() + Duration::from_secs(2);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| assert!(mutex.try_lock_until(until).unwrap().is_none()));
            scope.spawn(|| assert!(reentrant.try_lock_until(until).unwrap().is_none()));
            scope.spawn(|| assert!(write.try_write_until(until).unwrap().is_none()));
            if place.transport == Transport::Wire {
                scope.spawn(|| assert!(multi.try_lock_until(until).unwrap().is_none()));
            }
            scope.spawn(|| assert!(permits.try_acquire_until(until).unwrap().is_none()));
        }
    });
}

fn a_cancelled_multi_lock_ends_wherever_it_is(place: Place) {
    let paths = [fresh_path("taken"), fresh_path("free")];
    let _guard = client(place).mutex(&paths[0]).unwrap().lock().unwrap();
    let network = Proxy::start(&place.shared().hosts());
    let clients: Vec<_> = (1..12).map(|_| place.connect(&network.hosts())).collect();
    network.delay(Duration::from_millis(40));
    let tries: Vec<_> = (1..)
        .zip(clients)
        .map(|(i, client)| {
            let paths = paths.clone();
            let (cancel, cancelled) = bounded(1);
            let came = aside(move || {
                let options = LockOptions::new().cancel(cancelled);
                let lock = client.multi_lock(paths.iter().map(String::as_str)).unwrap();
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

fn directories_that_may_not_be_made_are_an_error(place: Place) {
    let (hosts, theirs) = (place.shared().hosts(), fresh_path("theirs"));
    let owner = Client::builder(&hosts)
        .auth("digest", "jo:secret")
        .acl(Acl::creator_all())
        .connect()
        .unwrap();
    // The directory above all tests' locks belongs to everybody.
    drop(client(place).mutex(&fresh_path("ours")).unwrap().lock());
    let lock = owner.mutex(&format!("{theirs}/lock")).unwrap();
    drop(lock.lock().unwrap());
    let other = client(place);
    let new = format!("{theirs}/new/lock");
    let mutex = other.mutex(&new).unwrap();
    let came = aside(move || mutex.lock().map(drop));
    assert!(matches!(
        came.recv_timeout(SOON).expect("an answer"),
        Err(Error::NoAuth { .. })
    ));
    let both = other.multi_lock([&*fresh_path("mine"), &*new]).unwrap();
    let came = aside(move || both.lock().map(drop));
    assert!(matches!(
        came.recv_timeout(SOON).expect("an answer"),
        Err(Error::NoAuth { .. })
    ));
}

fn a_chroot_that_is_missing_is_said_to_be(place: Place) {
    let client = place.connect(&format!("{}/missing", place.shared().hosts()));
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

fn a_thread_does_not_wait_for_itself_in_the_line_of_a_semaphore(place: Place) {
    let (client, path) = (client(place), fresh_path("itself"));
    let came = aside(move || {
        let _guard = client.mutex(&format!("{path}/locks"))?.lock()?;
        client.semaphore(&path, 1)?.acquire().map(drop)
    });
    assert!(matches!(
        came.recv_timeout(SOON),
        Ok(Err(Error::WouldDeadlock { .. }))
    ));
}

fn only_who_has_a_permit_is_overdue(place: Place) {
    let path = fresh_path("overdue");
    let (watcher, first, second) = (client(place), client(place), client(place));
    let left = |dir: &str| watcher.contenders(&format!("{path}/{dir}")).unwrap().len();
    let permit = watcher.semaphore(&path, 1).unwrap().acquire().unwrap();
    let semaphore = first.semaphore(&path, 1).unwrap();
    let one = aside(move || semaphore.acquire().and_then(|permit| permit.unlock()));
    eventually("the first waits for a permit", || left("leases") == 2);
    let semaphore = second.semaphore(&path, 1).unwrap();
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
    assert!(late < SOON, "{late:?} late");
}

fn a_waiting_thread_learns_whether_the_one_ahead_holds(place: Place) {
    let path = fresh_path("ahead");
    let clients: Vec<_> = (0..4).map(|_| client(place)).collect();
    let lock = |i: usize| clients[i].rwlock(&path).unwrap();
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
