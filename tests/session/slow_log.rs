//! A logger that is slow.

use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use log::{LevelFilter, Log, Metadata, Record};
use zklock::Client;
use zklock::embedded::Server;

use crate::SOON;
use crate::support::aside;
use crate::support::worker::alone;

/// A logger that blocks on the line about a revoke request until it is released.
struct Slow {
    entered: Sender<()>,
    leave: Receiver<()>,
}

impl Log for Slow {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        if record.args().to_string().contains("asks for the lock") {
            let _ = self.entered.send(());
            let _ = self.leave.recv();
        }
    }

    fn flush(&self) {}
}

#[test]
fn a_slow_log_of_a_revoke_request_holds_up_no_other_lock() {
    alone(|| {
        let (entered, enters) = bounded(1);
        let (leaves, leave) = bounded(1);
        log::set_logger(Box::leak(Box::new(Slow { entered, leave }))).unwrap();
        log::set_max_level(LevelFilter::Info);
        let server = Server::start().unwrap();
        let client = Client::connect(server.hosts()).unwrap();
        let other = Client::connect(server.hosts()).unwrap();

        let held = client.mutex("/slow/held").unwrap().lock().unwrap();
        // The nodes of locks that are held for a while are watched.
        thread::sleep(Duration::from_millis(200));
        other.contenders("/slow/held").unwrap()[0].revoke().unwrap();
        enters.recv_timeout(SOON).unwrap();

        let free = client.mutex("/slow/free").unwrap();
        let locked = aside(move || free.lock().and_then(|guard| guard.unlock()));
        let locked = locked.recv_timeout(SOON);
        leaves.send(()).unwrap();
        locked.expect("a lock waits for the log").unwrap();
        held.unlock().unwrap();
    });
}
