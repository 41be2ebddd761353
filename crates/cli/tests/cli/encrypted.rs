//! `zklock` over TLS, with a real server that asks for a certificate.

use std::path::Path;

use crate::program::{Log, Zklock};
use crate::support::fresh_path;
use crate::support::secure::{self, Keys};

#[test]
#[ignore = "needs a ZooKeeper server"]
fn an_encrypted_server_is_asked_by_every_command() {
    let keys = Keys::new();
    let (chain, key) = keys.sign("client", &[]);
    let (_zk, hosts) = secure::server(&keys, &["127.0.0.1"]);
    let shown = |path: &Path| path.display().to_string();
    let (ca, chain, key) = (shown(&keys.ca()), shown(&chain), shown(&key));
    let tls = format!("--tls-ca {ca} --tls-cert {chain} --tls-key {key} --session-timeout 5");
    let (path, log) = (fresh_path("encrypted"), Log::new());
    let mut holder = Zklock::start(&hosts, &format!("{tls} run {path}"), &log.beat("held"));
    log.await_word("held");
    for (task, code) in [("list", 0), ("why", 0), ("doctor", 0), ("run -n", 1)] {
        let script = if task == "run -n" { "true" } else { "" };
        let told = Zklock::run(&hosts, &format!("{tls} {task} {path}"), script);
        assert_eq!(told.code, Some(code), "{task}: {told:?}");
        let plain = told.out.contains("4lw.commands.whitelist");
        assert!(!plain, "{task}: {told:?}");
    }
    let listed = Zklock::run(&hosts, &format!("{tls} list -r"), "");
    assert!(listed.out.contains(&path), "{listed:?}");
    // Another process ends its session, and must find the files, too.
    holder.kill();
    let limit = "--connect-timeout 2";
    for (args, said) in [
        (format!("{limit} list {path}"), "connect with it"),
        (
            format!("{limit} --tls list {path}"),
            "name the authority that signed the servers' certificates, with Tls::ca_file or --tls-ca",
        ),
        (
            format!("{limit} --tls-ca {ca} list {path}"),
            "ask for a certificate that they trust",
        ),
        (format!("--tls-cert {chain} list {path}"), "--tls-key"),
        (format!("--tls-ca /no/ca.pem list {path}"), "/no/ca.pem"),
        (
            format!("--tls-ca {key} list {path}"),
            "TLS cannot be set up",
        ),
    ] {
        let told = Zklock::run(&hosts, &args, "");
        assert!(
            [Some(64), Some(69)].contains(&told.code),
            "{args}: {told:?}"
        );
        assert!(told.err.contains(said), "{args}: {told:?}");
    }
}
