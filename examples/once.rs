//! A job that three machines start, and that one of them runs.
//!
//! Each worker has a session of its own, as if it ran on a machine of its own. On the first
//! night the worker that begins fails half way, and the next one in line finishes the job.
//!
//! ```text
//! cargo run --example once
//! ZKLOCK_HOSTS=zk1:2181,zk2:2181/app cargo run --example once
//! ```
//!
//! Without `ZKLOCK_HOSTS` the example starts the embedded server.

use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use zklock::embedded::Server;
use zklock::{Client, Once, Run};

const JOB: &str = "/jobs/nightly-report";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::start()?;
    let hosts = env::var("ZKLOCK_HOSTS").unwrap_or_else(|_| server.hosts().to_owned());
    let disk_is_full = AtomicBool::new(true);
    for night in ["2026-11-21", "2026-11-22"] {
        thread::scope(|scope| {
            for worker in 1..=3 {
                let (hosts, disk_is_full) = (&hosts, &disk_is_full);
                scope.spawn(move || {
                    let told = match work(hosts, night, disk_is_full) {
                        Ok(told) => told,
                        Err(error) => format!("error: {error}"),
                    };
                    println!("worker {worker}, {night}: {told}");
                });
            }
        });
    }
    let client = Client::connect(&hosts)?;
    if let Some(last) = client.job(JOB)?.last()? {
        println!("the last run: {last}");
    }
    Ok(())
}

fn work(hosts: &str, night: &str, disk_is_full: &AtomicBool) -> zklock::Result<String> {
    let job = Client::connect(hosts)?.job(JOB)?;
    Ok(match job.once(night, |run| report(run, disk_is_full))? {
        Once::Done(pages) => format!("wrote {pages} pages"),
        Once::DoneBefore(record) => format!("nothing to do: {record}"),
        Once::Failed(error) => format!("failed: {error}"),
        other => format!("{other:?}"),
    })
}

fn report(run: &Run<'_>, disk_is_full: &AtomicBool) -> Result<u32, String> {
    if let Some(before) = run.retry_of() {
        println!("attempt {}, after {before}", run.attempt());
    }
    for page in 1..=3 {
        // This costs no I/O, and stops us before anybody else runs.
        run.check().map_err(|error| error.to_string())?;
        if page == 2 && disk_is_full.swap(false, Ordering::Relaxed) {
            run.set_message("the disk is full");
            return Err("the disk is full".to_owned());
        }
    }
    Ok(3)
}
