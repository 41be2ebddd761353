//! A key distribution centre of MIT's Kerberos, and real ZooKeepers that let its users in.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::leash::Leashed;
use super::zookeeper::{Builder, Folder, ZooKeeper};
use super::{eventually, free_port, run};

const REALM: &str = "ZKLOCK.TEST";

/// A centre in a process of its own, which ends when this is dropped.
#[derive(Debug)]
pub struct Kdc {
    folder: Folder,
    port: u16,
    process: Option<Leashed>,
}

impl Kdc {
    /// Starts a centre that knows `zookeeper/localhost` and these users.
    pub fn start(users: &[&str]) -> Self {
        let kdc = Self {
            folder: Folder::new(),
            port: free_port(),
            process: None,
        };
        kdc.configure();
        kdc.admin("kdb5_util", &["create", "-s", "-P", "master"]);
        for name in users.iter().chain(&["zookeeper/localhost"]) {
            kdc.admin(
                "kadmin.local",
                &["-q", &format!("addprinc -randkey {name}")],
            );
            let keytab = kdc.keytab(name).display().to_string();
            kdc.admin(
                "kadmin.local",
                &["-q", &format!("ktadd -k {keytab} {name}")],
            );
        }
        kdc.serve()
    }

    fn serve(mut self) -> Self {
        let mut command = Command::new("krb5kdc");
        let log = fs::File::create(self.folder.path("kdc.out")).expect("a log");
        command
            .arg("-n")
            .env("KRB5_CONFIG", self.config())
            .env("KRB5_KDC_PROFILE", self.folder.path("kdc.conf"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("sharing the log"))
            .stderr(log);
        let process =
            Leashed::spawn(&mut command, None).expect("starting krb5kdc: install krb5-kdc");
        self.process = Some(process);
        eventually("the centre serves", || {
            let said = fs::read_to_string(self.folder.path("kdc.log")).unwrap_or_default();
            said.contains("commencing operation")
        });
        self
    }

    /// Ends the centre, and leaves its files.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// Listens at the centre's port, and answers nothing.
    pub fn replace_by_silence(&self) -> TcpListener {
        TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).expect("the centre's port")
    }

    /// Returns the file that `KRB5_CONFIG` must name.
    pub fn config(&self) -> PathBuf {
        self.folder.path("krb5.conf")
    }

    /// Returns the path of a cache of tickets, which does not exist at first.
    pub fn cache(&self, name: &str) -> PathBuf {
        self.folder.path(format!("{name}.cache"))
    }

    /// Returns the file with the keys of a user.
    pub fn keytab(&self, name: &str) -> PathBuf {
        self.folder
            .path(format!("{}.keytab", name.replace('/', "-")))
    }

    /// Returns a builder of servers that let in only the centre's users.
    pub fn strict(&self) -> Builder {
        let jaas = self.folder.path("jaas.conf");
        let text = format!(
            "Server {{\n  com.sun.security.auth.module.Krb5LoginModule required\n  \
             useKeyTab=true keyTab=\"{}\" storeKey=true useTicketCache=false\n  \
             principal=\"zookeeper/localhost@{REALM}\";\n}};\n",
            self.keytab("zookeeper/localhost").display()
        );
        fs::write(&jaas, text).expect("writing the servers' login");
        let provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider";
        ZooKeeper::builder()
            .fsync(false)
            .property(
                "java.security.auth.login.config",
                &jaas.display().to_string(),
            )
            .property(
                "java.security.krb5.conf",
                &self.config().display().to_string(),
            )
            .property("zookeeper.authProvider.sasl", provider)
            .property("zookeeper.sessionRequireClientSASLAuth", "true")
    }

    fn admin(&self, program: &str, args: &[&str]) {
        let mut command = Command::new(program);
        command
            .args(args)
            .env("KRB5_CONFIG", self.config())
            .env("KRB5_KDC_PROFILE", self.folder.path("kdc.conf"));
        run(&mut command);
    }

    fn configure(&self) {
        let port = self.port;
        let file = |name: &str| self.folder.path(name).display().to_string();
        let krb5 = format!(
            "[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n rdns = false\n \
             dns_canonicalize_hostname = false\n udp_preference_limit = 1\n\
             [realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n\
             [domain_realm]\n localhost = {REALM}\n"
        );
        fs::write(self.config(), krb5).expect("writing krb5.conf");
        let kdc = format!(
            "[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n\
             [realms]\n {REALM} = {{\n  database_name = {}\n  key_stash_file = {}\n  \
             acl_file = {}\n }}\n[logging]\n kdc = FILE:{}\n",
            file("principal"),
            file("stash"),
            file("kadm5.acl"),
            file("kdc.log"),
        );
        fs::write(self.folder.path("kdc.conf"), kdc).expect("writing kdc.conf");
    }
}
