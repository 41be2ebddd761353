//! A read-write lock around something that many clients read and few change.
//!
//! Readers work at the same time. The writer changes the catalogue alone, and then continues as a
//! reader without letting another writer in between, so it reads back what it wrote.
//!
//! ```text
//! cargo run --example rwlock_cache
//! ```

use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use zklock::Client;
use zklock::embedded::Server;

const READERS: usize = 3;
const EDITIONS: u32 = 3;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    let server = Server::start()?;
    let hosts = server.hosts();
    // These stand for a file or a table that all machines share: two numbers that must agree.
    let catalogue = [AtomicU32::new(0), AtomicU32::new(0)];
    thread::scope(|scope| {
        let catalogue = &catalogue;
        let mut all = vec![scope.spawn(move || edit(hosts, catalogue))];
        for reader in 1..=READERS {
            all.push(scope.spawn(move || read(reader, hosts, catalogue)));
        }
        for one in all {
            one.join().map_err(|_| "a thread panicked")??;
        }
        Ok(())
    })
}

fn edit(hosts: &str, catalogue: &[AtomicU32; 2]) -> Result<()> {
    let lock = Client::connect(hosts)?.rwlock("/locks/catalogue")?;
    for edition in 1..=EDITIONS {
        let writing = lock.write()?;
        for part in catalogue {
            part.store(edition, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(20));
        }
        let reading = writing.downgrade()?;
        println!("writer: edition {} is out", look(catalogue)?);
        reading.unlock()?;
    }
    Ok(())
}

fn read(reader: usize, hosts: &str, catalogue: &[AtomicU32; 2]) -> Result<()> {
    let lock = Client::connect(hosts)?.rwlock("/locks/catalogue")?;
    loop {
        let reading = lock.read()?;
        let edition = look(catalogue)?;
        reading.unlock()?;
        println!("reader {reader}: edition {edition}");
        if edition == EDITIONS {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(25));
    }
}

/// Reads both parts, slowly; a writer in between would be noticed.
fn look(catalogue: &[AtomicU32; 2]) -> Result<u32> {
    let [first, second] = catalogue;
    let edition = first.load(Ordering::Relaxed);
    thread::sleep(Duration::from_millis(10));
    match second.load(Ordering::Relaxed) {
        same if same == edition => Ok(edition),
        other => Err(format!("editions {edition} and {other} are mixed").into()),
    }
}
