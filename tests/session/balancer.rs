//! Servers behind one address, where something else picks one for each connection.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::{SOON, connect};
use crate::support::ensemble::Ensemble;
use crate::support::{aside, eventually, fresh_path};

/// A connection that lived for so long was no failure.
const WORTHWHILE: Duration = Duration::from_millis(700);

/// Passes each connection on to the next server in turn; of one that is down it knows nothing.
struct Balancer {
    hosts: String,
    open: Arc<Mutex<Vec<TcpStream>>>,
    /// Which servers were picked.
    picked: Arc<Mutex<Vec<usize>>>,
}

impl Balancer {
    fn start(servers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let hosts = listener.local_addr().unwrap().to_string();
        let (open, picked) = (Arc::<Mutex<Vec<TcpStream>>>::default(), Arc::default());
        let (sockets, turns) = (Arc::clone(&open), Arc::<Mutex<Vec<usize>>>::clone(&picked));
        // It ends with the test's process.
        thread::spawn(move || {
            for (client, turn) in listener.incoming().flatten().zip(0..) {
                let turn = turn % servers.len();
                turns.lock().unwrap().push(turn);
                // Otherwise the client's end is dropped, which it sees.
                if let Ok(server) = TcpStream::connect(&servers[turn]) {
                    for (from, to) in [(&client, &server), (&server, &client)] {
                        let (mut from, mut to) =
                            (from.try_clone().unwrap(), to.try_clone().unwrap());
                        sockets.lock().unwrap().push(from.try_clone().unwrap());
                        thread::spawn(move || {
                            let _ = io::copy(&mut from, &mut to);
                            let _ = to.shutdown(Shutdown::Both);
                        });
                    }
                }
            }
        });
        Self {
            hosts,
            open,
            picked,
        }
    }

    fn cut(&self) {
        for socket in self.open.lock().unwrap().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn picks(&self) -> usize {
        self.picked.lock().unwrap().len()
    }
}

#[test]
#[ignore = "needs ZooKeeper servers"]
fn behind_a_load_balancer_a_session_moves_from_server_to_server_and_keeps_its_lock() {
    let ensemble = Ensemble::start();
    let servers = (0..3).map(|i| ensemble.server(i).hosts()).collect();
    let balancer = Balancer::start(servers);
    let timeout = Duration::from_secs(8);
    let [holder, waiter] = [(); 2].map(|()| connect(&balancer.hosts, timeout));
    let path = fresh_path("balanced");
    let guard = holder.mutex(&path).unwrap().lock().unwrap();
    let mutex = waiter.mutex(&path).unwrap();
    let next = aside(move || mutex.lock().map(|guard| guard.fencing_token()));
    eventually("it waits", || holder.contenders(&path).unwrap().len() == 2);
    // Each client comes to each server, and to one that is not there.
    for round in 0..6 {
        if round == 3 {
            ensemble.kill(ensemble.follower().expect("a follower"));
        }
        // Whoever is cut off sooner asks for connections more and more rarely.
        thread::sleep(WORTHWHILE);
        let before = balancer.picks();
        balancer.cut();
        eventually("both are back", || before + 2 <= balancer.picks());
        eventually("it is held", || guard.verify().is_ok());
        assert_eq!(holder.contenders(&path).unwrap().len(), 2);
        assert!(next.is_empty());
    }
    let token = guard.fencing_token();
    guard.unlock().unwrap();
    assert!(token < next.recv_timeout(SOON).unwrap().unwrap());
    let picked = balancer.picked.lock().unwrap();
    assert!((0..3).all(|server| picked.contains(&server)), "{picked:?}");
}
