//! `zklock` with a Kerberos login.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::program::{Ended, Log, Zklock, command};
use crate::support::kdc::Kdc;
use crate::support::proxy::Proxy;
use crate::support::raw::op;
use crate::support::{eventually, fresh_path, timed};

/// Returns the program, as run by a user with this cache and this keytab.
fn as_user(kdc: &Kdc, hosts: &str, cache: &Path, keytab: Option<&Path>) -> Command {
    let mut command = command(hosts);
    command
        .env("KRB5_CONFIG", kdc.config())
        .env("KRB5CCNAME", cache)
        .env_remove("KRB5_CLIENT_KTNAME");
    if let Some(keytab) = keytab {
        command.env("KRB5_CLIENT_KTNAME", keytab);
    }
    command
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_ticket_of_the_system_lets_a_user_in_on_each_connection() {
    let mut kdc = Kdc::start(&["ann", "bob"]);
    let server = kdc.strict().start();
    let proxy = Proxy::start(&server.hosts());
    let hosts = proxy.hosts().replace("127.0.0.1", "localhost");
    let (path, log) = (fresh_path("kerberos"), Log::new());
    let (ann, bob) = (kdc.cache("ann"), kdc.cache("bob"));
    let (anns, bobs) = (kdc.keytab("ann"), kdc.keytab("bob"));
    let limits = [
        "--kerberos",
        "--session-timeout",
        "10",
        "--connect-timeout",
        "4",
    ];
    let ended = |mut command: Command, args: &str| -> Ended {
        Zklock::spawn(command.args(limits).args(args.split(' '))).end()
    };

    // The first login uses the keytab, with which the library gets tickets.
    let mut holder = as_user(&kdc, &hosts, &ann, Some(&anns));
    let run = format!("--acl creator run {path} -- sh -c");
    holder
        .args(limits)
        .args(run.split(' '))
        .arg(log.beat("held"));
    let mut holder = Zklock::spawn(&mut holder);
    log.await_word("held");

    // This login uses the cache, which the library has filled.
    let listed = ended(as_user(&kdc, &hosts, &ann, None), &format!("list {path}"));
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let other = ended(
        as_user(&kdc, &hosts, &bob, Some(&bobs)),
        &format!("list {path}"),
    );
    assert_eq!(other.code, Some(77), "{other:?}");

    // A new connection needs a new login, and keeps the lock.
    let logins = proxy.requests(op::SASL);
    proxy.cut();
    eventually("it logs in again", || {
        logins + 3 <= proxy.requests(op::SASL)
    });
    let listed = ended(as_user(&kdc, &hosts, &ann, None), &format!("list {path}"));
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(listed.out.contains("holds"), "{listed:?}");
    assert!(!holder.has_ended());

    let nobody = ended(
        as_user(&kdc, &hosts, &kdc.cache("none"), None),
        &format!("list {path}"),
    );
    assert_eq!(nobody.code, Some(69), "{nobody:?}");
    let said = "there is no Kerberos ticket for zookeeper@localhost: ";
    assert!(nobody.err.contains(said), "{nobody:?}");
    assert!(nobody.err.contains("get a ticket"), "{nobody:?}");

    // Without the KDC, the existing tickets still work.
    kdc.stop();
    let listed = ended(as_user(&kdc, &hosts, &ann, None), &format!("list {path}"));
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let late = ended(
        as_user(&kdc, &hosts, &kdc.cache("late"), Some(&anns)),
        "list /a",
    );
    assert_eq!(late.code, Some(69), "{late:?}");
    let advice = "look whether the key distribution centre answers";
    assert!(late.err.contains(advice), "{late:?}");
    assert!(!late.err.contains("Success"), "{late:?}");
    // The wait for a silent KDC is no longer than the wait for a server.
    let _silent = kdc.replace_by_silence();
    let mut silent = as_user(&kdc, &hosts, &kdc.cache("silent"), Some(&anns));
    silent.args([
        "--kerberos",
        "--session-timeout",
        "3",
        "--connect-timeout",
        "2.6",
    ]);
    let (told, took) = timed(|| Zklock::spawn(silent.args(["list", "/a"])).end());
    assert_eq!(told.code, Some(69), "{told:?}");
    let said = "there is no Kerberos ticket for zookeeper@localhost: none came within";
    assert!(told.err.contains(said), "{told:?}");
    assert!(took < Duration::from_secs(6), "{took:?}");
    holder.kill();
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_server_of_another_mechanism_is_passed_over() {
    use crate::support::jaas::Jaas;

    let kdc = Kdc::start(&["ann"]);
    let (kerberos, digest) = (kdc.strict().start(), Jaas::new(&[("ann", "x")]));
    let digest = digest.strict().start();
    let limit = ["--connect-timeout", "3"];

    let mut by_digest = command(&format!("localhost:{}", kerberos.port()));
    by_digest.env("ZKLOCK_AUTH", "sasl:ann:x").args(limit);
    let told = Zklock::spawn(by_digest.args(["list", "/a"])).end();
    assert_eq!(told.code, Some(69), "{told:?}");
    let said = "it does not take a SASL login by DIGEST-MD5: ";
    assert!(told.err.contains(said), "{told:?}");
    assert!(told.err.contains("log in by the mechanism"), "{told:?}");

    let hosts = format!("localhost:{}", digest.port());
    let (cache, keytab) = (kdc.cache("ann"), kdc.keytab("ann"));
    let mut by_ticket = as_user(&kdc, &hosts, &cache, Some(&keytab));
    let told = Zklock::spawn(by_ticket.args(limit).args(["--kerberos", "list", "/a"])).end();
    assert_eq!(told.code, Some(69), "{told:?}");
    let said = "its answer is not one of GSSAPI, ";
    assert!(told.err.contains(said), "{told:?}");
}
