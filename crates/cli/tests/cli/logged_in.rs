//! `zklock` with a SASL login, on a real server that requires one.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::program::{Log, Zklock, command};
use crate::support::fresh_path;
use crate::support::jaas::Jaas;
use crate::support::zookeeper::Folder;

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_server_that_asks_for_a_login_is_asked_by_every_command() {
    let users = Jaas::new(&[("ann", "p:4ss"), ("bob", "other")]);
    let server = users.strict().start();
    let (hosts, path, log) = (server.hosts(), fresh_path("login"), Log::new());
    let folder = Folder::new();
    let file = folder.path("credentials");
    fs::write(&file, "sasl:ann:p:4ss\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let auth = format!("--auth-file {} --session-timeout 5", file.display());

    let run = format!("{auth} --acl creator run {path}");
    let mut holder = Zklock::start(&hosts, &run, &log.beat("held"));
    log.await_word("held");
    for (task, code) in [("list", 0), ("why", 0), ("doctor", 0), ("run -n", 1)] {
        let script = if task == "run -n" { "true" } else { "" };
        let told = Zklock::run(&hosts, &format!("{auth} {task} {path}"), script);
        assert_eq!(told.code, Some(code), "{task}: {told:?}");
    }
    // Another process ends its session, and must log in, too.
    holder.kill();

    // If it only saw the server hang up, each of these commands would ask again for as long as it
    // may.
    for task in ["list", "check", "last", "run"] {
        let token = if task == "check" { "3" } else { "" };
        let script = if task == "run" { "true" } else { "" };
        let args = format!("--connect-timeout 60 {task} {path} {token}");
        let told = Zklock::run(&hosts, args.trim_end(), script);
        assert_eq!(told.code, Some(77), "{task}: {told:?}");
        assert!(told.err.contains("a line sasl:user:password"), "{told:?}");
    }

    let with = |credentials: &str| {
        let mut command = command(&hosts);
        command.env("ZKLOCK_AUTH", credentials);
        Zklock::spawn(command.args(["-vvv", "--connect-timeout", "5", "list", &path])).end()
    };
    for (credentials, code, said) in [
        ("sasl:ann:wr0ng", 77, "refused the SASL login of ann: "),
        ("sasl:bob:other", 77, "access control list"),
        ("SASL:ann:wr0ng", 64, "use the login, which is called sasl"),
        ("sasl:ann", 64, "write scheme:credentials"),
        ("sasl::wr0ng", 64, "a user and a password are needed"),
        (
            "sasl:ann:wr0ng\nsasl:bob:wr0ng",
            64,
            "a client logs in as one user",
        ),
    ] {
        let told = with(credentials);
        assert_eq!(told.code, Some(code), "{credentials}: {told:?}");
        assert!(told.err.contains(said), "{credentials}: {told:?}");
        assert!(!told.err.contains("wr0ng"), "{credentials}: {told:?}");
    }
}
