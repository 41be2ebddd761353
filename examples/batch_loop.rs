//! A guard as a stop token: a batch loop that pauses and ends with its lock.
//!
//! The loop is written once, for the guard of any lock. It calls `check()` before each item, which
//! costs no I/O. When it has nothing to do, it waits for the next item and for the lock's events at
//! the same time.
//!
//! ```text
//! cargo run --example batch_loop
//! ```
//!
//! The example starts the embedded server, and ends the session in the middle of a batch, as
//! a network outage of that length would.

use std::error::Error;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded, select};
use zklock::embedded::Server;
use zklock::{Client, GuardEvent, LockGuard};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let server = Server::start()?;
    let client = Client::connect(server.hosts())?;

    println!("A batch under a mutex, which it holds to the end:");
    let guard = client.mutex("/locks/invoices")?.lock()?;
    report(&guard, process(&guard, &orders(5)));
    guard.unlock()?;

    println!("A batch under a permit, which is lost in the middle:");
    let permit = client.semaphore("/locks/imports", 2)?.acquire()?;
    let orders = orders(5);
    let id = client.session_id();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(120));
            server.expire_session(id);
        });
        report(&permit, process(&permit, &orders));
    });
    Ok(())
}

/// Works until there is nothing left to do or the lock is lost; returns how many orders were
/// done.
fn process(guard: &impl LockGuard, orders: &Receiver<u32>) -> usize {
    let mut done = 0;
    loop {
        let order = select! {
            recv(orders) -> order => order,
            recv(guard.events()) -> event => match event {
                Ok(GuardEvent::Held) => continue,
                Ok(GuardEvent::Suspect) if recovers(guard) => continue,
                // The lock is lost, or another client asks us to release it.
                _ => break,
            },
        };
        // The last check before a step that cannot be undone.
        let (Ok(order), true) = (order, guard.is_valid()) else {
            break;
        };
        println!("  order {order}");
        done += 1;
    }
    done
}

/// Waits for the lock's next event; returns whether the lock is certainly held again. Until then
/// nobody else can have it, but nothing new should begin.
fn recovers(guard: &impl LockGuard) -> bool {
    guard.events().recv() == Ok(GuardEvent::Held)
}

fn report(guard: &impl LockGuard, done: usize) {
    println!("  {done} orders done, the lock is {:?}", guard.state());
}

/// Sends orders, one every 50 ms.
fn orders(count: u32) -> Receiver<u32> {
    let (orders, received) = bounded(0);
    thread::spawn(move || {
        for order in 1..=count {
            thread::sleep(Duration::from_millis(50));
            if orders.send(order).is_err() {
                return;
            }
        }
    });
    received
}
