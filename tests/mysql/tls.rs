//! Encrypted connections: which servers a client trusts.

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use mysql::prelude::Queryable;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use zklock::mysql::Client;

use crate::database::{Database, Server};
use crate::seconds;
use crate::support::zookeeper::Folder;

/// An authority, and a server with certificates issued by it.
struct Signed {
    folder: Folder,
    issuer: Issuer<'static, KeyPair>,
    database: Database,
}

impl Signed {
    fn new() -> Self {
        // Otherwise MariaDB from 11.4 on makes a certificate of its own.
        let database = Database::empty_on(Arc::new(Server::start(&["--skip-ssl"])));
        let user = "CREATE USER tls@'%' REQUIRE SSL; GRANT ALL ON *.* TO tls@'%'";
        database.conn().query_drop(user).unwrap();
        let (folder, key) = (Folder::new(), KeyPair::generate().unwrap());
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        fs::write(folder.path("ca.pem"), certificate.pem()).unwrap();
        Self {
            folder,
            issuer: Issuer::new(params, key),
            database,
        }
    }

    /// Restarts the server with a certificate for this name, which expires with this year.
    fn restart(&self, name: &str, last: i32) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_after = date_time_ymd(last, 12, 31);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.folder.path("db.pem"), certificate.pem()).unwrap();
        fs::write(self.folder.path("db.key"), key.serialize_pem()).unwrap();
        let path = |file: &str| self.folder.path(file).display().to_string();
        let certificate = format!("--ssl-cert={}", path("db.pem"));
        let key = format!("--ssl-key={}", path("db.key"));
        self.database.server.kill();
        self.database.server.resume(&[&certificate, &key]);
    }

    /// Returns the URL with this file of authorities.
    fn url(&self, authorities: &str) -> String {
        let authorities = self.folder.path(authorities);
        let url = self.database.url_of("tls");
        format!("{url}&root_cert_path={}", authorities.display())
    }

    fn assert_refused(&self, why: &str) {
        let begun = Instant::now();
        let refused = Client::connect(&self.url("ca.pem")).unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
        assert!(begun.elapsed() < seconds(5), "{:?}", begun.elapsed());
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn a_server_is_trusted_for_its_name_and_time_by_an_authority_of_ones_own() {
    let signed = Signed::new();
    signed.assert_refused("server does not have this capability");

    signed.restart("127.0.0.1", 2100);
    let client = Client::connect(&signed.url("ca.pem")).unwrap();
    client.create_table().unwrap();
    let mutex = client.mutex("a").unwrap();
    mutex.lock().unwrap().unlock().unwrap();
    let plain = signed.database.url_of("tls");
    let denied = Client::connect(&plain).unwrap_err().to_string();
    assert!(denied.contains("Access denied for user"), "{denied}");

    signed.restart("db.example", 2100);
    signed.assert_refused("not valid for name \"127.0.0.1\"");
    let refused = mutex.lock().unwrap_err().to_string();
    assert!(refused.contains("certificate"), "{refused}");

    signed.restart("127.0.0.1", 2020);
    signed.assert_refused("certificate expired");
}

#[test]
#[ignore = "needs MariaDB"]
fn authorities_that_cannot_be_read_or_are_others_are_named() {
    let signed = Signed::new();
    signed.restart("127.0.0.1", 2100);
    let other = Signed::new();
    fs::copy(other.folder.path("ca.pem"), signed.folder.path("ca.pem")).unwrap();
    signed.assert_refused("invalid peer certificate");
    let missing = Client::connect(&signed.url("missing.pem")).unwrap_err();
    assert!(missing.to_string().contains("missing.pem"), "{missing}");
}
