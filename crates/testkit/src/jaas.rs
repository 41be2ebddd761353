//! Real ZooKeepers whose users log in by SASL.

use std::fmt::Write as _;
use std::fs;

use super::zookeeper::{Builder, Folder, ZooKeeper};

/// The users of servers, in a file that must outlive the servers.
#[derive(Debug)]
pub struct Jaas(Folder);

impl Jaas {
    /// Writes a file with these users and their passwords.
    pub fn new(users: &[(&str, &str)]) -> Self {
        let jaas = Self(Folder::new());
        jaas.change(users);
        jaas
    }

    /// Changes the users, from a server's next start on.
    pub fn change(&self, users: &[(&str, &str)]) {
        let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
        let mut text = format!("Server {{\n  {module} required");
        for (user, password) in users {
            write!(text, "\n  user_{user}=\"{password}\"").expect("writing to a string");
        }
        text.push_str(";\n};\n");
        fs::write(self.0.path("jaas.conf"), text).expect("writing the users");
    }

    /// Returns a builder of servers with these users, which let in other clients too.
    pub fn builder(&self) -> Builder {
        let file = self.0.path("jaas.conf").display().to_string();
        let provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider";
        ZooKeeper::builder()
            .fsync(false)
            .property("java.security.auth.login.config", &file)
            .property("zookeeper.authProvider.sasl", provider)
    }

    /// Returns a builder of servers with these users, which let in no other clients.
    pub fn strict(&self) -> Builder {
        self.builder()
            .property("zookeeper.sessionRequireClientSASLAuth", "true")
    }
}
