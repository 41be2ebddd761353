//! The number of connections that a client has while the server carries nothing out.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mysql::Conn;
use mysql::prelude::Queryable;
use zklock::mysql::{CREATE_TABLE, Client};

use crate::database::{Database, Server};
use crate::faults::Elsewhere;
use crate::support::within;
use crate::{client, seconds};

/// The most connections of a client: four for statements, one for renewals, and those whose
/// statements are still on their way.
pub(crate) const MOST: usize = 11;

fn connections(root: &mut Conn) -> usize {
    let count = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'app'";
    root.query_first(count).unwrap().unwrap()
}

/// Returns a separate server, whose global locks block nobody else, and a client with a short
/// lease.
fn server() -> (Database, Conn, Client) {
    let database = Database::empty_on(Arc::new(Server::start(&["--log-bin"])));
    let mut root = database.conn();
    root.query_drop(CREATE_TABLE).unwrap();
    root.query_drop("CREATE USER app@'%'; GRANT ALL ON *.* TO app@'%'")
        .unwrap();
    let client = client(&database.url_of("app"), seconds(4));
    (database, root, client)
}

/// Lets six threads wait for locks while the server carries nothing out.
fn assert_few_connections(
    (database, mut root, client): (Database, Conn, Client),
    begin: &str,
    end: &str,
) {
    let guard = client.mutex("held").unwrap().lock().unwrap();
    root.query_drop(begin).unwrap();
    let names = ["held", "b", "c", "d", "e", "f"];
    let waiters = names.map(|name| client.mutex(name).unwrap().lock_elsewhere());
    let mut most = 0;
    for _ in 0..150 {
        most = connections(&mut root).max(most);
        thread::sleep(Duration::from_millis(100));
    }
    root.query_drop(end).unwrap();
    assert!(most <= MOST, "{most} connections");
    drop(guard);
    for waiter in waiters {
        waiter.join().unwrap().unwrap();
    }
    assert!(within(seconds(20), || database.rows() == 0));
    assert!(within(seconds(20), || connections(&mut root) <= 5));
}

#[test]
#[ignore = "needs MariaDB"]
fn a_client_has_few_connections_under_a_global_read_lock() {
    assert_few_connections(server(), "FLUSH TABLES WITH READ LOCK", "UNLOCK TABLES");
}

#[test]
#[ignore = "needs MariaDB"]
fn a_client_has_few_connections_while_statements_do_not_end() {
    // A commit waits for a replica that does not come.
    let begin = "SET GLOBAL rpl_semi_sync_master_timeout = 12000; \
                 SET GLOBAL rpl_semi_sync_master_enabled = 1";
    let end = "SET GLOBAL rpl_semi_sync_master_enabled = 0";
    assert_few_connections(server(), begin, end);
}
