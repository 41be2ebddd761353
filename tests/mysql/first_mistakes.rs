//! The first mistakes of new users of a database, and the message for each of them.

use std::time::Duration;

use mysql::prelude::Queryable;
use zklock::mysql::Client;

use crate::database::{Database, Server};
use crate::proxy::Proxy;
use crate::support::worker::alone;
use crate::support::{eventually, free_port, timed};
use crate::{LATE, client, logs, seconds};

/// Returns the message of a connection that cannot be made.
#[track_caller]
fn said(url: &str) -> String {
    let builder = Client::builder(url).connect_timeout(Duration::from_millis(300));
    builder
        .connect()
        .expect_err("it was no mistake")
        .to_string()
}

#[test]
#[ignore = "needs MariaDB"]
fn a_server_that_is_not_there() {
    let port = free_port();
    let told = said(&format!("mysql://root@127.0.0.1:{port}/app"));
    let begins =
        format!("cannot connect to the database: Could not connect to address `127.0.0.1:{port}'");
    assert!(told.starts_with(&begins), "{told}");
    let ends = "Connection refused (os error 111); check host and port, and that the server runs";
    assert!(told.ends_with(ends), "{told}");
    let told = said("mysql://root@no-such-host.invalid/app");
    assert!(told.contains("no-such-host.invalid"), "{told}");
    assert!(
        told.ends_with("check host and port, and that the server runs"),
        "{told}"
    );
}

#[test]
#[ignore = "needs MariaDB"]
fn a_database_that_is_not_there_and_one_that_the_user_has_no_right_to() {
    let database = Database::new();
    let missing = said(&database.url().replace(&database.name, "nowhere"));
    assert_eq!(
        missing,
        "cannot connect to the database: Unknown database 'nowhere' (1049); create it, or correct its name at the end of the URL"
    );
    let user = format!("guest_{}", database.name);
    let name = &database.name;
    let mut root = database.conn();
    root.query_drop(format!("CREATE USER {user}@'%'")).unwrap();
    assert_eq!(
        said(&database.url_of(&user)),
        format!(
            "cannot connect to the database: Access denied for user '{user}'@'%' to database '{name}' (1044); correct its name at the end of the URL, or grant the user SELECT, INSERT, UPDATE and DELETE on the tables of the locks, and CREATE to create them"
        )
    );
    root.query_drop(format!("GRANT SELECT ON {name}.* TO {user}@'%'"))
        .unwrap();
    let reader = client(&database.url_of(&user), seconds(20));
    let told = reader.mutex("a").unwrap().lock().unwrap_err().to_string();
    assert!(
        told.starts_with("cannot take the lock: ") && told.contains("command denied to user"),
        "{told}"
    );
    assert!(
        told.contains("grant the user SELECT, INSERT, UPDATE and DELETE"),
        "{told}"
    );
    // The tables exist, so nobody has to create them.
    reader.create_table().unwrap();
    root.query_drop(format!("GRANT INSERT, UPDATE ON {name}.* TO {user}@'%'"))
        .unwrap();
    let writer = client(&database.url_of(&user), seconds(20));
    let guard = writer.mutex("a").unwrap().lock().unwrap();
    let (told, took) = timed(|| guard.unlock().unwrap_err());
    assert!(took < LATE, "{took:?}");
    assert!(
        told.to_string()
            .contains("the user needs DELETE on database_lock"),
        "{told}"
    );
}

#[test]
#[ignore = "needs MariaDB"]
fn a_wrong_password_and_a_wrong_url() {
    let database = Database::new();
    let told = said(&database.url_of("nobody:secret"));
    let begins = "cannot connect to the database: Access denied for user 'nobody'@'";
    assert!(told.starts_with(begins), "{told}");
    let ends = "(using password: YES) (1045); check the user and the password: in the URL, %40 is an @, %2F a slash and %25 a percent sign";
    assert!(told.ends_with(ends), "{told}");
    assert_eq!(
        said("db:3306/app"),
        "cannot read the database's URL: it does not begin with mysql://; write mysql://user:password@host:port/database"
    );
    assert_eq!(
        said("mysql://app@db/app?ssl=true"),
        "cannot read the database's URL: Unknown URL parameter `ssl' (for TLS, write ?root_cert_path=ca.pem); write mysql://user:password@host:port/database"
    );
}

#[test]
#[ignore = "needs MariaDB"]
fn a_login_plugin_that_the_driver_lacks_is_told_at_once() {
    let database = Database::new();
    for (library, plugin, reason) in [
        (
            "auth_pam_v1",
            "pam",
            "Unknown authentication protocol: `dialog`",
        ),
        (
            "auth_ed25519",
            "ed25519 USING PASSWORD('secret')",
            "Can't create response for `ed25519` authentication plugin",
        ),
    ] {
        let user = format!("{library}_{}", database.name);
        let create = format!("CREATE USER {user}@'%' IDENTIFIED VIA {plugin}");
        let install = format!("INSTALL SONAME '{library}'");
        let mut root = database.conn();
        root.query_drop(format!("{install}; {create}")).unwrap();
        let url = database.url_of(&format!("{user}:secret"));
        let (told, took) = timed(|| Client::connect(&url).unwrap_err().to_string());
        assert!(took < LATE, "{took:?}");
        assert!(told.contains(reason), "{told}");
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn a_table_that_is_not_there() {
    let database = Database::empty_on(Server::shared());
    let mutex = client(&database.url(), seconds(20)).mutex("a").unwrap();
    assert_eq!(
        mutex.lock().unwrap_err().to_string(),
        format!(
            "cannot take the lock: Table '{}.database_lock' doesn't exist (1146); create the tables with Client::create_table or mysql::CREATE_TABLE",
            database.name
        )
    );
}

#[test]
#[ignore = "needs MariaDB"]
fn a_client_a_lock_and_a_guard_are_a_line_each() {
    let database = Database::new();
    let client = client(&database.url(), seconds(20));
    let mutex = client.mutex("nightly").unwrap();
    let guard = mutex.lock().unwrap();
    let (token, node) = (guard.fencing_token(), guard.node().to_owned());
    let shown = format!("path: \"nightly\", state: Held, token: {token}, node: \"{node}\"");
    let of_client = "closed: false, lease: 20s }";
    assert_eq!(
        format!("{client:?} {mutex:?}"),
        format!("Client {{ waiting: 0, {of_client} Mutex {{ path: \"nightly\", {of_client}")
    );
    assert_eq!(format!("{guard:?}"), format!("MutexGuard {{ {shown} }}"));
    let guard = guard.into_send();
    assert_eq!(
        format!("{guard:?}"),
        format!("SendMutexGuard {{ {shown} }}")
    );
    client.close();
    eventually("it is lost", || !guard.is_valid());
    let lost = shown.replace("Held", "Lost, why: Closed");
    assert_eq!(format!("{guard:?}"), format!("SendMutexGuard {{ {lost} }}"));
    let client = crate::client(&database.url(), seconds(20));
    let guard = client.reentrant_mutex("again").unwrap().lock().unwrap();
    let shown = format!("{guard:?}");
    assert!(
        shown.starts_with("ReentrantMutexGuard { path: \"again\", state: Held,"),
        "{shown}"
    );
    assert!(shown.len() < 150, "{shown}");
}

#[test]
#[ignore = "needs MariaDB"]
fn contention_is_no_warning_and_a_full_disk_is_one() {
    alone(|| {
        logs::keep();
        let database = Database::new();
        let proxy = Proxy::new(&database.server);
        let mutex = client(&database.url_through(&proxy), seconds(20))
            .mutex("a")
            .unwrap();
        for (code, level) in [
            (1213, "DEBUG"),
            (1020, "DEBUG"),
            (3101, "DEBUG"),
            (1021, "WARN"),
        ] {
            proxy.refuse("INSERT INTO `database_lock` ", code);
            mutex.lock().unwrap().unlock().unwrap();
            assert!(proxy.has_refused());
            let logged = logs::take();
            let told: Vec<_> = logged
                .iter()
                .filter(|line| line.contains("trying again"))
                .map(|line| line.split_whitespace().next().unwrap_or_default())
                .collect();
            assert_eq!(told, [level], "{code}: {logged:?}");
        }
    });
}
