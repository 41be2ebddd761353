//! The addresses of the server's name.

use std::fs;
use std::process::Command;

use zklock::mysql::Client;

use crate::database::Database;
use crate::support::netns::{self, Network};
use crate::support::{folder::Folder, run};
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
