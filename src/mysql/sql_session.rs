//! The session of a connection: the settings that the locks rely on.
//!
//! A connection may come from a pool whose application has left anything in it, and a server may
//! begin sessions with anything. The statements on the tables are in `lock_table` and `job_table`.

use ::mysql::prelude::Queryable;
use ::mysql::{Conn, Error, Result, from_row_opt};

use crate::mysql::primary::run;
use crate::mysql::statement_error::in_doubt;

/// Sets what the locks rely on, whatever the server or a pool's first statements have set.
///
/// Every statement is a transaction of its own, and waits for only one second, the shortest time
/// that can be set, for a row or a table that another program has locked. No statement is too long,
/// too big or too unsafe. The connection lasts from one renewal to the next. A transaction whose
/// client falls silent ends after a second (except on MySQL, which cannot do that). Transactions
/// may write, in a way that every format of the binary log accepts. Answers are text that the
/// driver can read. Comments are for MariaDB (`M!`) and MySQL.
///
/// A session's clock that was stopped runs again. This setting comes last, because a server that
/// allows no client to stop the clock refuses it.
const PREPARE: &str = "SET SESSION autocommit = 1, completion_type = 0, \
                       innodb_lock_wait_timeout = 1, lock_wait_timeout = 1, \
                       unique_checks = 1, sql_mode = 'STRICT_TRANS_TABLES', \
                       sql_safe_updates = 0, sql_big_selects = 1, group_concat_max_len = 1024, \
                       wait_timeout = CAST(GREATEST(@@SESSION.wait_timeout, 60) AS UNSIGNED)\
                       /*M!100300 , idle_transaction_timeout = 1 */; \
                       SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE; \
                       SET NAMES utf8mb4";

/// Removes the limits that cut statements short, and ends no transaction.
///
/// This is sent alone: if a statement's time is up just as it ends, MariaDB (10.11) drops the rest
/// of the packet and sends nothing more, although it has announced more answers.
const LIFT_LIMITS: &str = "SET SESSION sql_select_limit = 18446744073709551615\
                           /*M!100101 , max_statement_time = 0 */\
                           /*!50708 , max_execution_time = 0 */";

const START_CLOCK: &str = "SET SESSION timestamp = DEFAULT";

/// The server's error code for a variable that must not be set (`ER_OPTION_PREVENTS_STATEMENT`).
const MUST_NOT_BE_SET: u16 = 1290;

/// The destination of a connection.
#[derive(Debug)]
pub(super) struct Destination {
    /// The database; empty if none is selected.
    pub(super) schema: String,
    pub(super) version: String,
}

/// Returns whether a connection of a pool answers the question that it is asked.
///
/// The driver also gives a connection back to its pool if an answer came too late. The next user
/// would take that answer for its own. This ends no transaction.
pub(super) fn answers(conn: &mut Conn) -> Result<bool> {
    let number = fastrand::u32(..);
    conn.query_drop(LIFT_LIMITS)?;
    let sql = format!("SET SESSION character_set_results = utf8mb4; SELECT {number}");
    let answer = run(conn, &sql, &mut Vec::new())?;
    Ok(answer == Some(i64::from(number)))
}

/// Prepares a new connection; returns its destination.
pub(super) fn prepare(conn: &mut Conn) -> Result<Destination> {
    conn.query_drop(LIFT_LIMITS)?;
    let sql = format!("{PREPARE}; SELECT COALESCE(DATABASE(), ''), VERSION(); {START_CLOCK}");
    let mut results = conn.query_iter(sql)?;
    let mut destination = None;
    while let Some(rows) = results.iter() {
        for row in rows {
            match row {
                Err(Error::MySqlError(error)) if error.code == MUST_NOT_BE_SET => {}
                row => destination = from_row_opt(row?).ok(),
            }
        }
    }
    let (schema, version) = destination.ok_or_else(|| in_doubt("the server names no version"))?;
    Ok(Destination { schema, version })
}

/// Returns `true` if the driver can reset a session of this server, and rerun the pool's first
/// statements. It cannot do so without COM_RESET_CONNECTION.
pub(super) fn can_reset(conn: &Conn, to: &Destination) -> bool {
    /// The version with which MariaDB introduced itself to old clients.
    const MARIADB: (u16, u16, u16) = (5, 5, 5);
    let version = to.version.trim_start_matches("5.5.5-");
    let numbers = version
        .split(['.', '-'])
        .map_while(|part| part.parse::<u16>().ok());
    match conn.server_version() {
        MARIADB => numbers.take(3).ge([10, 2, 7]),
        version => version > (5, 7, 3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MySQL takes the GREATEST of an unsigned number and a literal for a decimal, and refuses that.
    #[test]
    fn what_is_computed_for_a_setting_is_an_integer_on_mysql_too() {
        let mut computed = PREPARE.match_indices("GREATEST(");
        assert!(computed.all(|(at, _)| PREPARE[..at].ends_with("= CAST(")));
    }
}
