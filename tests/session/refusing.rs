//! Clients that no server accepts, and that must not burden anybody.

use std::fs;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use zklock::Client;
use zklock::embedded::Server;

use super::{SOON, a_while, connect, logs};
use crate::support::proxy::Proxy;
use crate::support::raw::wait_for_children;
use crate::support::relay::Relay;
use crate::support::worker::{self, Worker};
use crate::support::zookeeper::ZooKeeper;
use crate::support::{eventually, fresh_path, timed};

const TIMEOUT: Duration = Duration::from_secs(4);

/// The time after which the client has reached its steady pace.
const FIRST: Duration = Duration::from_secs(4);

/// The ticks of a process's clock in a second, on every Linux.
const TICKS: f64 = 100.0;

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_server_that_refuses_is_not_called_too_often() {
    let proxy = Proxy::start(&ZooKeeper::shared().hosts());
    let worker = worker_at(&proxy);
    proxy.refuse();
    worker.expect("alone");
    let [attempts, cpu] = figures(&worker);
    judge("refused", attempts, cpu);
    proxy.accept();
    worker.expect("back");
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_server_that_hangs_up_is_not_called_too_often() {
    let proxy = Proxy::start(&ZooKeeper::shared().hosts());
    let worker = worker_at(&proxy);
    proxy.refuse();
    let address = proxy.hosts();
    let mut listener = None;
    // For a moment, a process that another test starts also has the proxy's socket.
    eventually("in the place of the proxy", || {
        listener = TcpListener::bind(&address).ok();
        listener.is_some()
    });
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    thread::spawn(move || {
        // This ends with the process: nobody else wants the port.
        for _ in listener.iter().flat_map(TcpListener::incoming).flatten() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    worker.expect("alone");
    let before = calls.load(Ordering::Relaxed);
    let [attempts, cpu] = figures(&worker);
    let calls = calls.load(Ordering::Relaxed) - before;
    println!("{calls} calls were counted here, {attempts} there");
    // Once the session must be over, the client asks a server that hangs up for a new session at
    // once. The two periods differ by an attempt at most.
    let attempted = attempts as usize;
    assert!(attempted <= calls + 1 && calls <= 2 * (attempted + 1));
    judge("hung up on", attempts, cpu);
}

#[test]
fn servers_that_accept_and_never_greet_leave_the_time_to_ask_the_others() {
    let server = Server::start().expect("a server");
    let mute = [0; 3].map(|port| TcpListener::bind(("127.0.0.1", port)).expect("a free port"));
    let mut hosts = mute
        .each_ref()
        .map(|mute| mute.local_addr().expect("its port").to_string())
        .to_vec();
    hosts.push(server.hosts().to_owned());
    // The order in which the servers are asked is shuffled.
    for _ in 0..4 {
        Client::builder(&hosts.join(","))
            .connect_timeout(TIMEOUT)
            .connect()
            .expect("a session");
    }
}

/// A packet may have been lost, or the server may have just started.
#[test]
fn the_only_address_is_asked_again_soon_if_it_did_not_greet() {
    let server = Server::start().expect("a server");
    let mute = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let silent = mute.local_addr().expect("its port").to_string();
    let address = Relay::start(vec![silent, server.hosts().to_owned()]);
    let (connected, took) = timed(|| Client::connect(&address.hosts));
    connected.expect("a session");
    assert_eq!(address.picked(), [0, 1]);
    assert!(took < TIMEOUT, "{took:?}");
}

/// Returns a process whose client has a lock and waits for another one.
fn worker_at(proxy: &Proxy) -> Worker {
    let (server, path) = (ZooKeeper::shared(), fresh_path("refused"));
    let input = format!("{} {path}", proxy.hosts());
    let worker = Worker::spawn(worker_that_nobody_answers, &input);
    wait_for_children(&server.hosts(), &path, 2);
    worker.expect("waiting");
    worker
}

fn figures(worker: &Worker) -> [f64; 2] {
    let said = worker
        .lines()
        .recv_timeout(watched() + SOON)
        .expect("a report");
    worker::words::<2>(&said).map(|word| word.parse().expect("a number"))
}

fn judge(what: &str, attempts: f64, cpu: f64) {
    let time = watched();
    println!(
        "{what} for {time:?}: {attempts} attempts, {cpu:.2} s of the processor, {:.2} %",
        100.0 * cpu / time.as_secs_f64()
    );
    assert!(attempts >= 2.0, "it goes on trying");
    assert!(attempts < time.as_secs_f64(), "fewer than 60 a minute");
    assert!(cpu < 0.02 * time.as_secs_f64());
}

fn watched() -> Duration {
    a_while(Duration::from_secs(15))
}

#[test]
#[ignore = "a worker process"]
fn worker_that_nobody_answers() {
    let Some(input) = worker::input() else { return };
    let [hosts, path] = worker::words(&input);
    let client = connect(&hosts, TIMEOUT);
    let session = client.session_id();
    let _guard = client.mutex(&path).unwrap().lock().unwrap();
    let waiting = connect(&hosts, TIMEOUT);
    let waiter = waiting.mutex(&path).unwrap();
    thread::spawn(move || waiter.lock().map(|guard| guard.check()));
    logs::keep();
    worker::say("waiting");
    eventually("it is alone", || !logs::take().is_empty());
    thread::sleep(FIRST);
    // Only one of the two clients is counted.
    waiting.close().unwrap_err();
    worker::say("alone");
    logs::take();
    let begun = cpu();
    thread::sleep(watched());
    let used = cpu() - begun;
    let attempts = logs::take()
        .iter()
        .filter(|line| line.starts_with("DEBUG"))
        .count();
    worker::say(&format!("{attempts} {used}"));
    eventually("it is back", || {
        client.session_id() != session && client.session_id() != 0
    });
    worker::say("back");
}

/// Returns the processor time of this process, in seconds.
fn cpu() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("a Linux system");
    let (_, fields) = stat.rsplit_once(") ").expect("a name in brackets");
    let fields: Vec<_> = fields.split(' ').collect();
    let ticks: f64 = [11, 12]
        .iter()
        .map(|at| fields[*at].parse::<f64>().unwrap())
        .sum();
    ticks / TICKS
}
