//! What goes on although a logger panics.

use mysql::prelude::Queryable;

use crate::database::Database;
use crate::panics::Panics;
use crate::proxy::Proxy;
use crate::support::eventually;
use crate::support::worker::alone;
use crate::{mutex, seconds, undisturbed};

#[test]
#[ignore = "needs MariaDB"]
fn a_log_that_panics_ends_no_renewals() {
    alone(|| {
        let panics = Panics::at("cannot renew the leases");
        let database = Database::new();
        let proxy = Proxy::new(&database.server);
        let mutex = mutex(&database.url_through(&proxy), seconds(4));
        let guard = mutex.lock().unwrap();
        proxy.refuse("UPDATE `database_lock` SET `lease_end`", 1053);
        eventually("it panics", || panics.has_panicked());
        let mut conn = database.conn();
        let mut lease_end = || {
            let row = "SELECT CAST(lease_end AS CHAR) FROM database_lock";
            conn.query_first::<String, _>(row).unwrap()
        };
        let before = lease_end();
        eventually("the lease is renewed", || lease_end() != before);
        guard.unlock().unwrap();
    });
}

#[test]
#[ignore = "needs MariaDB"]
fn a_log_that_panics_leaves_no_row() {
    alone(|| {
        let panics = Panics::at("cannot delete the row");
        let database = Database::new();
        let proxy = Proxy::new(&database.server);
        let client = undisturbed(&database.url_through(&proxy))
            .connect()
            .unwrap();
        let guard = client.mutex("a").unwrap().lock().unwrap();
        proxy.refuse("DELETE FROM `database_lock`", 1205);
        drop(guard);
        eventually("it panics", || panics.has_panicked());
        database.wait_for_rows(0);
    });
}
