//! Packets of statements that write, and that only a primary carries out.
//!
//! A server that another one has replaced is read-only, and so is a replica. But an account may
//! have the right to write there all the same. Such a write would create a row that the primary
//! does not have, or end one that it has, and would sooner or later stop the replication.

use ::mysql::prelude::Queryable;
use ::mysql::{Conn, Error, MySqlError, Result};

use crate::mysql::statement_error::in_doubt;

/// The expression that tells whether the server is read-only. As a condition of a write, it would
/// be unsafe for some formats of the binary log.
pub(super) const IS_READ_ONLY: &str = "CONCAT(@@global.read_only) NOT IN ('0', 'OFF')";

/// The number that overflows if 1 is added.
const GREATEST: i64 = i64::MAX;

/// The server's error code for a number that is too large (`ER_DATA_OUT_OF_RANGE`).
const OUT_OF_RANGE: u16 = 1690;

/// The server's error code for a write that it does not accept (`ER_OPTION_PREVENTS_STATEMENT`).
const READ_ONLY: u16 = 1290;

/// A prefix of a statement that makes a node of a Galera cluster first carry out what the other
/// nodes have committed. It is a comment for MySQL.
const AFTER_ALL: &str = "/*M!100100 SET STATEMENT wsrep_sync_wait = 7 FOR */ ";

/// The server's error code for a variable that it does not have (`ER_UNKNOWN_SYSTEM_VARIABLE`).
const NO_VARIABLE: u16 = 1193;

/// Returns a statement that fails if the server is read-only, and otherwise sets the session's
/// `lock_wait_timeout` to the 1 that it has. The statement is not a SELECT, because a proxy might
/// send a packet that begins with one to a replica.
fn fail_if_read_only() -> String {
    let less = GREATEST - 1;
    format!("SET SESSION lock_wait_timeout = {GREATEST} + ({IS_READ_ONLY}) - {less}")
}

/// Runs a packet of statements unless the server is read-only; then fails before the first of them.
/// Otherwise like [`run`].
pub(super) fn run_unless_read_only(
    conn: &mut Conn,
    sql: &str,
    changed: &mut Vec<bool>,
) -> Result<Option<i64>> {
    let mut all = Vec::new();
    let packet = format!("{}; {sql}", fail_if_read_only());
    let selected = run(conn, &packet, &mut all);
    changed.extend(all.iter().skip(1));
    match selected {
        Err(Error::MySqlError(error)) if error.code == OUT_OF_RANGE && all.is_empty() => {
            Err(read_only())
        }
        selected => selected,
    }
}

/// Runs a statement; returns whether it changed a row.
pub(super) fn changes_on_primary(conn: &mut Conn, sql: &str) -> Result<bool> {
    let mut changed = Vec::new();
    run_on_primary(conn, sql, &mut changed)?;
    Ok(changed.first() == Some(&true))
}

/// Runs a statement after all that the nodes of a cluster have committed.
///
/// The connections of one client may lead to several nodes, through a balancer for example. A node
/// that lags does not have a row yet that another one has written.
pub(super) fn after_all<T>(
    conn: &mut Conn,
    sql: &str,
    run: impl Fn(&mut Conn, &str) -> Result<T>,
) -> Result<T> {
    match run(conn, &format!("{AFTER_ALL}{sql}")) {
        // This server was built without clusters.
        Err(Error::MySqlError(error)) if error.code == NO_VARIABLE => run(conn, sql),
        done => done,
    }
}

/// Like [`changes_on_primary`]; a statement that changes no row is run again
/// [after all](after_all).
pub(super) fn changes_at_last(conn: &mut Conn, sql: &str) -> Result<bool> {
    Ok(changes_on_primary(conn, sql)? || after_all(conn, sql, changes_on_primary)?)
}

/// Runs a packet of statements, and notes which of them changed a row. Notes nothing unless the
/// server said after them that it was not read-only.
pub(super) fn run_on_primary(conn: &mut Conn, sql: &str, changed: &mut Vec<bool>) -> Result<()> {
    let packet = format!("{sql}; SELECT {IS_READ_ONLY}");
    let done = run_unless_read_only(conn, &packet, changed);
    let answer = match &done {
        Ok(answer) => *answer,
        // The statements before the error were carried out.
        Err(Error::MySqlError(_)) if !changed.is_empty() => is_read_only(conn).unwrap_or(None),
        Err(_) => None,
    };
    let on_primary = answer == Some(0);
    if !on_primary {
        changed.clear();
    } else if done.is_ok() {
        // The last result is that of the SELECT.
        changed.pop();
    }
    match done {
        Ok(_) if !on_primary => Err(in_doubt("the server has become read-only")),
        done => done.map(drop),
    }
}

/// Fails if the server is read-only.
pub(super) fn expect_primary(conn: &mut Conn) -> Result<()> {
    match is_read_only(conn)? {
        Some(0) => Ok(()),
        _ => Err(read_only()),
    }
}

/// Returns 0 if the server is not read-only.
fn is_read_only(conn: &mut Conn) -> Result<Option<i64>> {
    conn.query_first(format!("SELECT {IS_READ_ONLY}"))
}

pub(super) fn read_only() -> Error {
    Error::MySqlError(MySqlError {
        state: "HY000".to_owned(),
        message: "the server is read-only".to_owned(),
        code: READ_ONLY,
    })
}

/// Runs a packet of statements, notes which of them changed a row, and returns the value that
/// the last of them selects.
pub(super) fn run(conn: &mut Conn, sql: &str, changed: &mut Vec<bool>) -> Result<Option<i64>> {
    let mut results = conn.query_iter(sql)?;
    let mut selected = None;
    while let Some(rows) = results.iter() {
        let count = rows.affected_rows();
        // A value of an earlier statement must not stand for a last statement that finds no row.
        selected = None;
        for row in rows {
            selected = row?.get_opt(0).and_then(std::result::Result::ok);
        }
        changed.push(count > 0);
    }
    Ok(selected)
}
