//! Three daemons, one of which is active at a time.
//!
//! Each has a session of its own, as if it ran on a machine of its own. The active one imports
//! three items and ends, and the next one takes over.
//!
//! ```text
//! cargo run --example standby
//! ZKLOCK_HOSTS=zk1:2181,zk2:2181/app cargo run --example standby
//! ```
//!
//! Without `ZKLOCK_HOSTS` the example starts the embedded server.

use std::env;
use std::ops::ControlFlow;
use std::thread;

use zklock::embedded::Server;
use zklock::{Client, Term};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::start()?;
    let hosts = env::var("ZKLOCK_HOSTS").unwrap_or_else(|_| server.hosts().to_owned());
    thread::scope(|scope| {
        for daemon in 1..=3 {
            let hosts = &hosts;
            scope.spawn(move || {
                if let Err(error) = stand_by(hosts, daemon) {
                    eprintln!("daemon {daemon}: {error}");
                }
            });
        }
    });
    Ok(())
}

fn stand_by(hosts: &str, daemon: u32) -> zklock::Result<()> {
    let client = Client::connect(hosts)?;
    let standby = client.standby("/services/importer")?;
    standby.run(|term| import(term, daemon))
}

fn import(term: &Term<'_>, daemon: u32) -> ControlFlow<()> {
    for item in 1..=3 {
        if term.is_over() {
            // The term is lost, or somebody asked for the lock: go back in line.
            return ControlFlow::Continue(());
        }
        println!(
            "daemon {daemon} imports item {item} with token {}",
            term.fencing_token()
        );
    }
    ControlFlow::Break(())
}
