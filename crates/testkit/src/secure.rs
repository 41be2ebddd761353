//! A real ZooKeeper that takes only encrypted connections from clients with a certificate.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::zookeeper::{Builder, Folder, ZooKeeper};
use super::{eventually, free_port};

/// An authority, and the certificates that it has signed.
pub struct Keys {
    pub folder: Folder,
    issuer: Issuer<'static, KeyPair>,
}

impl Keys {
    pub fn new() -> Self {
        let folder = Folder::new();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "zklock test authority");
        let certificate = params.self_signed(&key).unwrap();
        fs::write(folder.path("ca.pem"), certificate.pem()).unwrap();
        let issuer = Issuer::new(params, key);
        Self { folder, issuer }
    }

    pub fn ca(&self) -> PathBuf {
        self.folder.path("ca.pem")
    }

    /// Writes `name.pem`, `name.key`, and both in one file, as ZooKeeper wants them.
    pub fn sign(&self, name: &str, hosts: &[&str]) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let file = |extension: &str| self.folder.path(format!("{name}.{extension}"));
        fs::write(file("pem"), certificate.pem()).unwrap();
        fs::write(file("key"), key.serialize_pem()).unwrap();
        let both = format!("{}{}", key.serialize_pem(), certificate.pem());
        fs::write(file("both.pem"), both).unwrap();
        (file("pem"), file("key"))
    }
}

/// Starts a server whose certificate is for these hosts; returns its secure address.
pub fn server(keys: &Keys, hosts: &[&str]) -> (ZooKeeper, String) {
    server_of(ZooKeeper::builder().fsync(false), keys, hosts)
}

/// As [`server`], with more settings.
pub fn server_of(builder: Builder, keys: &Keys, hosts: &[&str]) -> (ZooKeeper, String) {
    keys.sign("server", hosts);
    let port = free_port();
    let shown = |file: &Path| file.display().to_string();
    let both = shown(&keys.folder.path("server.both.pem"));
    let zk = builder
        .line(&format!("secureClientPort={port}"))
        .line("secureClientPortAddress=127.0.0.1")
        .line("serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory")
        .property("zookeeper.ssl.keyStore.location", &both)
        .property("zookeeper.ssl.keyStore.type", "PEM")
        .property("zookeeper.ssl.trustStore.location", &shown(&keys.ca()))
        .property("zookeeper.ssl.trustStore.type", "PEM")
        .property("zookeeper.ssl.clientAuth", "need")
        .start();
    eventually("the secure port is open", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    (zk, format!("127.0.0.1:{port}"))
}
