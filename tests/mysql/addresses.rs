//! The addresses of the server's name.

use std::fs;
use std::process::Command;

use zklock::mysql::Client;

use crate::database::Database;
use crate::support::netns::{self, Network};
use crate::support::{eventually, folder::Folder, run};
use crate::{client, seconds};

/// At one of its addresses, nobody listens.
const NAMES: &str = "127.0.0.1 localhost\n\
                     127.0.0.2 other-first\n127.0.0.1 other-first\n\
                     127.0.0.1 other-last\n127.0.0.2 other-last\n\
                     ::1 six-and-four\n127.0.0.1 six-and-four\n\
                     127.0.0.2 none\n127.0.0.3 none\n::1 none\n";

#[test]
#[ignore = "needs MariaDB"]
fn a_server_is_found_at_any_address_of_its_name() {
    netns::inside(|| {
        let _network = Network::new(0);
        let folder = Folder::new();
        let file = folder.path("hosts");
        fs::write(&file, NAMES).unwrap();
        run(Command::new("mount")
            .arg("--bind")
            .arg(&file)
            .arg("/etc/hosts"));
        let database = Database::new();
        let url = |name| database.url().replace("127.0.0.1", name);
        for name in ["other-first", "other-last", "six-and-four"] {
            let mutex = client(&url(name), seconds(20)).mutex("a").unwrap();
            mutex.lock().unwrap().verify().unwrap();
        }
        let none = Client::builder(&url("none")).connect_timeout(seconds(1));
        let told = none.connect().unwrap_err().to_string();
        assert!(told.contains("Connection refused"), "{told}");
    });
}

/// The kernel's table of connections has a number for what it waits for on each.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "needs MariaDB"]
fn the_system_looks_after_silent_connections() {
    const ESTABLISHED: &str = "01";
    const KEEP_ALIVE: &str = "02";
    let database = Database::new_alone();
    let mutex = client(&database.url(), seconds(20)).mutex("a").unwrap();
    mutex.lock().unwrap().unlock().unwrap();
    let server = format!("0100007F:{:04X}", database.server.port);
    eventually("all connections are watched", || {
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        let lines = table.lines().map(|line| line.split_whitespace());
        let lines = lines.map(|line| line.skip(2).take(4).collect::<Vec<_>>());
        let to_server = |line: &Vec<_>| line[..2] == [&*server, ESTABLISHED];
        let timers: Vec<_> = lines.filter(to_server).map(|line| line[3]).collect();
        !timers.is_empty() && timers.iter().all(|timer| timer.starts_with(KEEP_ALIVE))
    });
}
