//! The tables, the programs that share them, and the connection to the server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;
use zklock::mysql::{ALTER_TABLE, CREATE_TABLE, Client};

use crate::database::{Database, Server};
use crate::proxy::Proxy;
use crate::{LATE, mutex, seconds, try_lock};

#[test]
#[ignore = "needs MariaDB"]
fn programs_of_the_plain_form_are_excluded_and_exclude() {
    let database = Database::new();
    let mutex = mutex(&database.url(), seconds(20));
    let mut plain = database.conn();
    let insert = "INSERT INTO database_lock(`lock`, description) VALUES ('a', 'plain')";
    let delete = "DELETE FROM database_lock WHERE `lock` = 'a'";

    plain.query_drop(insert).unwrap();
    assert!(try_lock(&mutex).is_none());
    assert!(mutex.try_lock_for(seconds(2)).unwrap().is_none());
    plain.query_drop(delete).unwrap();
    let guard = try_lock(&mutex).unwrap();
    let refused = plain.query_drop(insert).unwrap_err();
    assert!(refused.to_string().contains("1062"), "{refused}");
    guard.unlock().unwrap();
    plain.query_drop(insert).unwrap();
    plain.query_drop(delete).unwrap();

    // This row is not committed yet, and is then rolled back.
    plain.query_drop("START TRANSACTION").unwrap();
    plain.query_drop(insert).unwrap();
    assert!(try_lock(&mutex).is_none());
    let limit = Duration::from_millis(300);
    let begun = Instant::now();
    assert!(!matches!(mutex.try_lock_for(limit), Ok(Some(_))));
    assert!(begun.elapsed() < limit + LATE);
    plain.query_drop("ROLLBACK").unwrap();
    let guard = mutex.try_lock_for(seconds(10)).unwrap().unwrap();
    guard.verify().unwrap();
    guard.unlock().unwrap();
}

#[test]
#[ignore = "needs MariaDB"]
fn a_table_of_the_plain_form_is_refused_until_it_is_altered() {
    let database = Database::empty_on(Server::shared());
    let mut conn = database.conn();
    let plain = "CREATE TABLE database_lock (id BIGINT NOT NULL AUTO_INCREMENT, \
                 `lock` VARCHAR(64) NOT NULL, description VARCHAR(1024) NOT NULL DEFAULT '', \
                 PRIMARY KEY (id), UNIQUE KEY (`lock`))";
    conn.query_drop(plain).unwrap();
    let refused = Client::connect(&database.url()).unwrap_err();
    assert!(refused.to_string().contains("ALTER_TABLE"), "{refused}");
    conn.query_drop(ALTER_TABLE).unwrap();
    conn.query_drop(CREATE_TABLE).unwrap();
    conn.query_drop("INSERT INTO database_lock(`lock`, description) VALUES ('a', '')")
        .unwrap();
    let client = Client::connect(&database.url()).unwrap();
    assert!(try_lock(&client.mutex("a").unwrap()).is_none());
    assert!(try_lock(&client.mutex("A").unwrap()).is_some());
}

#[test]
#[ignore = "needs MariaDB"]
fn a_table_in_which_two_names_could_be_one_is_refused() {
    let wrong = [
        (
            "MODIFY `lock` VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL",
            "VARCHAR(255)",
        ),
        (
            "MODIFY `lock` VARCHAR(255) CHARACTER SET latin1 COLLATE latin1_bin NOT NULL",
            "utf8mb4",
        ),
        (
            "MODIFY `lock` VARCHAR(255) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin NOT NULL",
            "utf8mb4",
        ),
        (
            "MODIFY `lock` VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL",
            "_bin",
        ),
        ("MODIFY `lock` BINARY(255) NOT NULL", "VARCHAR(255)"),
        (
            "DROP KEY database_lock_lock, ADD UNIQUE KEY (`lock`(10))",
            "unique",
        ),
        ("DROP KEY database_lock_lock, ADD KEY (`lock`)", "unique"),
        (
            "MODIFY `owner` CHAR(20) CHARACTER SET ascii COLLATE ascii_bin NULL",
            "owner",
        ),
        // Names that begin alike would share a row, and so would locks with equal tokens.
        ("ADD UNIQUE KEY (`lock`(10))", "unique"),
        ("ADD UNIQUE KEY (`token`)", "unique"),
        ("ADD UNIQUE KEY (`token`) USING HASH", "unique"),
        // The column is too long for an index: MariaDB makes it USING HASH.
        ("ADD UNIQUE KEY (`description`)", "unique"),
        // This makes a hidden column instead of an index: a statement would lock every row.
        (
            "DROP KEY database_lock_lock, ADD UNIQUE KEY (`lock`) USING HASH",
            "unique",
        ),
        // Of two locks held at a time, the second would be reported as taken.
        ("MODIFY `id` BIGINT NOT NULL DEFAULT 0", "AUTO_INCREMENT"),
        // Each try uses up a number; after the last one a free lock seems taken.
        ("MODIFY `id` SMALLINT NOT NULL AUTO_INCREMENT", "BIGINT"),
    ];
    for (change, why) in wrong {
        let database = Database::new();
        let alter = format!("ALTER TABLE database_lock {change}");
        database.conn().query_drop(alter).unwrap();
        let refused = Client::connect(&database.url())
            .expect_err(change)
            .to_string();
        assert!(refused.contains(why), "{change}: {refused}");
        assert!(
            refused.contains("ALTER_TABLE") || ["unique", "AUTO_INCREMENT"].contains(&why),
            "{refused}"
        );
    }
    // Two grants would have the same token.
    for (change, why) in [
        ("DROP PRIMARY KEY", "`slot`"),
        ("MODIFY `token` FLOAT NOT NULL", "BIGINT"),
        ("ADD UNIQUE KEY (`token`)", "unique"),
        ("ADD UNIQUE KEY (`token`) USING HASH", "unique"),
        // The server would give a counter 0 another number.
        (
            "MODIFY `slot` TINYINT UNSIGNED NOT NULL AUTO_INCREMENT",
            "AUTO_INCREMENT",
        ),
    ] {
        let database = Database::new();
        let alter = format!("ALTER TABLE database_lock_token {change}");
        database.conn().query_drop(alter).unwrap();
        let refused = Client::connect(&database.url()).map(|_| ());
        let refused = refused.expect_err(change).to_string();
        assert!(refused.contains(why), "{refused}");
    }
    for change in [
        "MODIFY `lock` VARCHAR(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL",
        "MODIFY `lock` VARBINARY(255) NOT NULL",
    ] {
        let database = Database::new();
        let alter = format!("ALTER TABLE database_lock {change}");
        database.conn().query_drop(alter).unwrap();
        let client = Client::connect(&database.url()).unwrap();
        for name in ["x".repeat(255), "\u{1f512}".repeat(63)] {
            let mutex = client.mutex(&name).unwrap();
            let guard = try_lock(&mutex).expect(change);
            guard.verify().unwrap();
            guard.unlock().unwrap();
        }
        assert_eq!(database.rows(), 0);
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn a_server_or_a_url_with_too_small_a_packet_is_told_at_once() {
    let server = Arc::new(Server::start(&["--max-allowed-packet=65536"]));
    let database = Database::empty_on(server);
    database.conn().query_drop(CREATE_TABLE).unwrap();
    let refused = Client::connect(&database.url()).map(|_| ());
    let refused = refused.expect_err("a small server").to_string();
    assert!(refused.contains("max_allowed_packet"), "{refused}");
    let database = Database::new();
    let url = format!("{}&max_allowed_packet=1024", database.url());
    let begun = Instant::now();
    let limit = Duration::from_secs(20);
    let refused =
        Client::connect(&url).and_then(|client| client.mutex("a")?.try_lock_for(limit).map(drop));
    let refused = refused.expect_err("a small URL").to_string();
    assert!(refused.contains("max_allowed_packet"), "{refused}");
    assert!(begun.elapsed() < seconds(5), "{:?}", begun.elapsed());
    let proxy = Proxy::new(&database.server);
    let client = Client::connect(&database.url_through(&proxy)).unwrap();
    proxy.refuse("INSERT INTO `database_lock` ", 1153);
    assert!(client.mutex("a").unwrap().try_lock_for(limit).is_err());
}

#[test]
#[ignore = "needs MariaDB"]
fn a_missing_table_is_named_and_created_on_request() {
    let database = Database::empty_on(Server::shared());
    let client = Client::connect(&database.url()).unwrap();
    let mutex = client.mutex("a").unwrap();
    let error = mutex.lock().unwrap_err().to_string();
    assert!(error.contains("create_table"), "{error}");
    client.create_table().unwrap();
    client.create_table().unwrap();
    mutex.lock().unwrap().unlock().unwrap();
}

#[test]
#[ignore = "needs MariaDB"]
fn credentials_are_refused_by_name_and_never_shown() {
    let database = Database::new();
    let url = database.url_of("nobody:secret");
    let denied = Client::connect(&url).unwrap_err();
    assert!(!format!("{denied} {denied:?}").contains("secret"));
    let builder = Client::builder(&url);
    assert!(!format!("{builder:?}").contains("secret"));
    let bad = "mysql://app:secret@db:port/app";
    let error = Client::connect(bad).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("secret"));
    let client = Client::connect(&database.url()).unwrap();
    let guard = client.mutex("a").unwrap().lock().unwrap();
    assert!(!format!("{client:?} {guard:?}").contains("127.0.0.1"));
}

#[test]
#[ignore = "needs MariaDB"]
fn tables_that_are_missing_are_created_beside_those_that_exist() {
    let statements: Vec<_> = CREATE_TABLE.split(";\n").collect();
    let [locks, tokens, _] = statements[..] else {
        panic!("three tables");
    };
    for exists in [locks, tokens] {
        let database = Database::empty_on(Server::shared());
        database.conn().query_drop(exists).unwrap();
        let client = Client::connect(&database.url()).unwrap();
        let mutex = client.mutex("a").unwrap();
        let missing = mutex.try_lock().unwrap_err().to_string();
        assert!(missing.contains("CREATE_TABLE"), "{missing}");
        client.create_table().unwrap();
        assert!(try_lock(&mutex).is_some());
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn tables_are_created_when_the_server_is_ready_for_it() {
    // Somebody has locked all tables, as for a backup; the server is about to end.
    for code in [1205, 1053] {
        let database = Database::empty_on(Server::shared());
        let proxy = Proxy::new(&database.server);
        let client = Client::connect(&database.url_through(&proxy)).unwrap();
        proxy.refuse("CREATE TABLE", code);
        client
            .create_table()
            .unwrap_or_else(|error| panic!("{code}: {error}"));
        assert!(proxy.has_refused());
        client.mutex("a").unwrap().lock().unwrap().unlock().unwrap();
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn on_a_replica_no_table_is_created() {
    let database = Database::empty_on(Arc::new(Server::start(&["--read-only"])));
    let client = Client::connect(&database.url()).unwrap();
    let error = client.create_table().unwrap_err().to_string();
    assert!(error.contains("primary"), "{error}");
    let mut conn = database.conn();
    // This user may write there all the same.
    assert_eq!(conn.query::<String, _>("SHOW TABLES").unwrap(), [""; 0]);
    conn.query_drop(CREATE_TABLE).unwrap();
    client.create_table().unwrap();
}

/// The driver goes from a loopback address to the socket that the server names, and behind a
/// tunnel that is another server's.
#[test]
#[ignore = "needs MariaDB"]
fn a_loopback_address_is_not_exchanged_for_a_socket() {
    let database = Database::new();
    let client = Client::connect(&database.url()).unwrap();
    let guard = client.mutex("a").unwrap().lock().unwrap();
    guard.verify().unwrap();
    let all = "SELECT HOST FROM information_schema.PROCESSLIST \
               WHERE DB = DATABASE() AND ID <> CONNECTION_ID()";
    let hosts: Vec<String> = database.conn().query(all).unwrap();
    assert!(!hosts.is_empty());
    let is_by_address = |host: &String| host.starts_with("127.0.0.1:");
    assert!(hosts.iter().all(is_by_address), "{hosts:?}");
}
