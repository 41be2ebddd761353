//! Passwords: where they come from, and that they are never shown.

use std::fmt::Debug;
use std::fs;
use std::time::Duration;

use mysql::prelude::Queryable;
use mysql::{OptsBuilder, Pool};
use zklock::mysql::{Client, ClientBuilder};
use zklock::{Error, GuardState, Result};

use crate::database::{Database, opts};
use crate::proxy::Proxy;
use crate::support::eventually;
use crate::support::worker::alone;
use crate::support::zookeeper::Folder;
use crate::{logs, seconds};

const PASSWORD: &str = "correct-horse battery@staple";
/// The password as it is written in a URL.
const ENCODED: &str = "correct-horse%20battery%40staple";

fn database() -> (Database, String) {
    let database = Database::new();
    let user = format!("known_{}", database.name);
    let create = format!("CREATE USER {user}@'%' IDENTIFIED BY '{PASSWORD}'");
    let grant = format!("GRANT SELECT, INSERT, UPDATE, DELETE ON *.* TO {user}@'%'");
    let sql = format!("{create}; {grant}");
    database.conn().query_drop(sql).unwrap();
    (database, user)
}

#[test]
#[ignore = "needs MariaDB"]
fn a_password_is_read_from_a_file() {
    let (database, user) = database();
    let url = database.url_of(&user);
    assert_denied(Client::connect(&url));
    let folder = Folder::new();
    let file = folder.path("password");
    let connect = |file| Client::builder(&url).password_file(file).connect();
    for text in [PASSWORD.to_owned(), format!("{PASSWORD}\n")] {
        fs::write(&file, text).unwrap();
        let mutex = connect(file.clone()).unwrap().mutex("a").unwrap();
        mutex.lock().unwrap().unlock().unwrap();
    }
    fs::write(&file, "another").unwrap();
    assert_denied(connect(file));
    let missing = connect(folder.path("missing")).unwrap_err().to_string();
    assert!(missing.contains("/missing"), "{missing}");
    let pool = Database::pool(&database.url(), "DO 1");
    let pool = Client::builder_from_pool(pool).password_file("password");
    assert!(pool.connect().unwrap_err().is_bad_input());
}

#[track_caller]
fn assert_denied(connected: Result<Client>) {
    let told = connected.unwrap_err().to_string();
    assert!(told.contains("Access denied for user"), "{told}");
    assert!(!told.contains(PASSWORD), "{told}");
}

fn show(value: &impl Debug) -> String {
    format!("{value:?} {value:#?}")
}

fn show_error(error: &Error) -> String {
    format!("{error} {}", show(error))
}

#[test]
#[ignore = "needs MariaDB"]
fn passwords_are_in_no_log_line_no_debug_output_and_no_error() {
    alone(|| {
        logs::keep();
        let (database, user) = database();
        let folder = Folder::new();
        let file = folder.path("password");
        fs::write(&file, PASSWORD).unwrap();
        let proxy = Proxy::new(&database.server);
        let through = |user: &str| {
            let port = database.server.port.to_string();
            let url = database.url_of(user);
            url.replace(&port, &proxy.port.to_string())
        };
        let with_password = through(&format!("{user}:{ENCODED}"));
        let pool = Pool::new(OptsBuilder::from_opts(opts(&with_password))).unwrap();
        let mut shown = Vec::new();
        for builder in [
            Client::builder(&with_password),
            Client::builder(&through(&user)).password_file(&file),
            Client::builder_from_pool(pool),
        ] {
            live(builder, &proxy, &mut shown);
        }
        for url in [
            with_password.replace(&user, "nobody"),
            with_password.replace(&database.name, "nowhere"),
            with_password.replace("127.0.0.1", "host.invalid"),
            with_password.replace("stmt_cache_size", "another"),
            with_password.replace("stmt_cache_size=32", "pool_min=x"),
            with_password.replace("mysql://", "mysql:"),
            with_password.replace("mysql://", ""),
            format!("{with_password}&root_cert_path=missing"),
            format!("mysql://{user}:{ENCODED}@host:port/a"),
            format!("mysql://{user}:{PASSWORD}@[host/a"),
            format!("mysql://{user}:?{PASSWORD}@host/a"),
            format!("mysql://{user}:12?{ENCODED}@host/a"),
            format!("mysql://{user}:12?pool_min={PASSWORD}@host/a"),
        ] {
            let builder = Client::builder(&url).connect_timeout(seconds(1));
            shown.push(show(&builder));
            shown.push(show_error(&builder.connect().expect_err(&url)));
        }
        let logged = logs::take();
        assert!(logged.iter().any(|line| line.contains("zklock")));
        for line in logged.iter().chain(&shown) {
            for secret in [PASSWORD, ENCODED, "battery"] {
                assert!(!line.contains(secret), "{line}");
            }
        }
        assert!(logged.len() > 10 && shown.len() > 30, "{}", logged.len());
    });
}

/// Does everything that writes a line into a log.
fn live(builder: ClientBuilder, proxy: &Proxy, shown: &mut Vec<String>) {
    shown.push(show(&builder));
    let client = builder.lease(seconds(3)).connect().unwrap();
    let (mutex, reentrant) = (
        client.mutex("a").unwrap(),
        client.reentrant_mutex("b").unwrap(),
    );
    let guard = mutex.lock().unwrap();
    let other = reentrant.lock().unwrap();
    shown.push(show(&(&client, &mutex, &reentrant, &guard, &other)));
    proxy.cut();
    proxy.refuse("UPDATE `database_lock` SET `lease_end`", 1205);
    eventually("it is refused", || proxy.has_refused());
    shown.extend(guard.verify().err().map(|error| show_error(&error)));
    proxy.blackhole(true);
    eventually("it is lost", || guard.state() == GuardState::Lost);
    let limit = Duration::from_millis(300);
    let free = client.mutex("c").unwrap();
    shown.push(show_error(&free.try_lock_for(limit).unwrap_err()));
    shown.push(show_error(&guard.verify().unwrap_err()));
    shown.push(show_error(&other.unlock().unwrap_err()));
    proxy.blackhole(false);
    shown.push(show(&(client, guard)));
}
