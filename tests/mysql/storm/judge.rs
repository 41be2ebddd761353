//! The rows that must exist at the end, and the states that must never occur.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use mysql::prelude::Queryable;
use mysql::{Error, Pool, PooledConn};
use zklock::mysql::Client;

use super::{Storm, T, user};
use crate::checker::{self, Rules, Summary};
use crate::history;
use crate::relay::Relay;

/// The numbers that an application has written, with the number of its client.
pub(super) type Written = (usize, Vec<u64>);

/// Writes as an application does; returns the writes that the server has confirmed.
pub(super) fn write(storm: &Storm, client: usize, pool: &Pool) -> Written {
    let mut written = Vec::new();
    for number in 0.. {
        if storm.has_enough() {
            break;
        }
        thread::sleep(Duration::from_millis(fastrand::u64(..50)));
        let Ok(mut conn) = pool.try_get_conn(Duration::from_millis(500)) else {
            continue;
        };
        let row = format!("INSERT INTO app VALUES ({client}, {number})");
        let done = conn.query_drop(row);
        if done.is_ok() {
            written.push(number);
        }
        // An answer may be outstanding, and the driver's pool does not check that. A write that is
        // not committed must not stay by chance.
        let is_answered = matches!(done, Ok(()) | Err(Error::MySqlError(_)));
        if !is_answered || fastrand::u8(..8) == 0 {
            end(&mut conn);
        }
    }
    (client, written)
}

fn end(conn: &mut PooledConn) {
    let kill = |_: &u8| {
        !matches!(
            conn.query_drop("KILL CONNECTION_ID()"),
            Err(Error::IoError(_))
        )
    };
    (0..10).take_while(kill).for_each(drop);
}

/// Returns the most connections of each client that the server has had.
///
/// Connections that were cut or killed no longer belong to the client, although the server
/// has them until their statements end.
pub(super) fn most_connections(storm: &Storm, relays: &[Relay]) -> Vec<usize> {
    let all = "SELECT USER, HOST FROM information_schema.PROCESSLIST \
               WHERE USER LIKE 'client%' AND COMMAND <> 'Killed'";
    let mut most = vec![0; relays.len()];
    let mut conn = None;
    while !storm.is_over() {
        conn = conn.or_else(|| storm.conn());
        let all = conn
            .as_mut()
            .map(|conn| conn.query::<(String, String), _>(all));
        let Some(Ok(all)) = all else {
            // The server is about to restart.
            conn = None;
            continue;
        };
        for (client, most) in most.iter_mut().enumerate() {
            let own = all.iter().filter(|(name, _)| *name == user(client));
            let ports = own.filter_map(|(_, host)| host.rsplit(':').next()?.parse().ok());
            let count = ports.filter(|port| !relays[client].has_cut(*port)).count();
            *most = count.max(*most);
        }
        thread::sleep(Duration::from_millis(10));
    }
    most
}

/// Judges a run that has ended.
pub(super) fn judge(storm: &Storm, written: &[Written]) -> Summary {
    let database = &storm.database;
    let mut conn = database.conn();
    // A row that came too late for its guard stays for a lease.
    thread::sleep(2 * T);
    let live = "SELECT COUNT(*) FROM database_lock WHERE lease_end > UTC_TIMESTAMP(6)";
    assert_eq!(conn.query_first(live).unwrap(), Some(0), "rows are live");
    let builder = Client::builder(&database.url()).lease(Duration::from_secs(1));
    let _cleans = builder.clean_interval(T).connect().unwrap();
    database.wait_for_rows(0);

    for (client, written) in written {
        let rows = format!("SELECT number FROM app WHERE client = {client}");
        let rows: BTreeSet<u64> = conn.query(rows).unwrap().into_iter().collect();
        let gone = written.iter().filter(|number| !rows.contains(number));
        let gone: Vec<_> = gone.collect();
        let count = written.len();
        assert!(gone.is_empty(), "of {count} rows there are not: {gone:?}");
        println!("all {count} rows of the application are there");
    }
    let entries = history::read(storm.folder.path("").as_path());
    let rules = Rules::for_sessions_of(T);
    checker::check(&entries, &rules).unwrap_or_else(|story| panic!("{story}"))
}
