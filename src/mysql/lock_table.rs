//! The statements on the table of locks: what each does, and why it is safe.
//!
//! - Every write is one transaction in one packet. A slow or dead client therefore keeps no
//!   transaction open on the server, and a lock costs one round trip.
//! - Time is the database's UTC time at the start of the statement, which is never earlier than the
//!   client sent it. Neither the client's clock nor a session's time zone matters.
//! - Text travels as hexadecimal literals, which the server reads alike in every SQL mode.

use std::fmt::Write as _;
use std::time::Duration;

use ::mysql::prelude::Queryable;
use ::mysql::{Conn, Result};

use crate::mysql::primary::{
    IS_READ_ONLY, after_all, changes_on_primary, read_only, run_on_primary, run_unless_read_only,
};
use crate::mysql::statement_error::in_doubt;
use crate::owner::Owner;

/// How many counters the locks share for their tokens.
///
/// There are several, so that commits of different locks do not have to wait for each other.
/// The number is a constant, because a lock must never change its counter.
const SLOTS: u32 = 64;

/// The positions of statements in the packet that takes a lock: the one that takes it, the
/// one that writes the token into the row, and COMMIT.
const TAKE: usize = 1;
const WRITE_TOKEN: usize = 3;
const COMMIT: usize = 4;

/// The value that is selected instead of a token if the server is read-only.
const NOT_GRANTED: i64 = -1;

/// A prefix of a statement; a comment for MySQL.
const NO_WAIT: &str = "/*M!100300 SET STATEMENT innodb_lock_wait_timeout = 0 FOR */ ";

/// Names the row of one acquisition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'a> {
    pub(super) name: &'a str,
    /// New for each acquisition, so that a late statement of an old acquisition does nothing.
    pub(super) owner: &'a str,
}

/// Whether a statement waits for a row that another transaction has locked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Wait {
    /// Does not wait on MariaDB from 10.3 and MySQL from 8.0.1; older servers always wait.
    No,
    Yes,
}

/// The state of a lock's row.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum RowState {
    /// There is no row.
    Free,
    /// The lease has ended.
    Expired,
    /// An earlier statement of this acquisition has taken the lock after all.
    Own,
    /// Another client has the lock.
    Taken(Holder),
}

/// The holder of a lock.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Holder {
    /// What is left of the lease; a program that uses the plain form has none.
    pub(super) left: Option<Duration>,
    pub(super) owner: Owner,
}

/// Takes a lock that has no row; returns its token, or `None` if it has a row.
///
/// An existing row is not an error. An error would end the packet before its COMMIT, with the
/// row locked until the client sends ROLLBACK.
pub(super) fn insert(
    conn: &mut Conn,
    key: Key<'_>,
    description: &str,
    lease: Duration,
) -> Result<Option<i64>> {
    let take = format!(
        "INSERT INTO `database_lock` (`lock`, `description`, `owner`, `lease_end`, `token`) \
         VALUES ({}, {}, {}, {}, 0) ON DUPLICATE KEY UPDATE `lock` = `lock`",
        text(key.name),
        text(description),
        text(key.owner),
        lease_end(lease),
    );
    take_and_draw(conn, key, &take)
}

/// Takes a lock whose lease has ended; returns its token, or `None` if it has not.
///
/// One step locks the row and tests its condition, so exactly one of many clients succeeds;
/// the others find the lease of that client.
pub(super) fn take_over(
    conn: &mut Conn,
    key: Key<'_>,
    description: &str,
    lease: Duration,
) -> Result<Option<i64>> {
    let take = format!(
        "UPDATE `database_lock` SET `owner` = {}, `description` = {}, `lease_end` = {}, \
         `token` = 0 WHERE `lock` = {} AND `lease_end` < UTC_TIMESTAMP(6)",
        text(key.owner),
        text(description),
        lease_end(lease),
        text(key.name),
    );
    take_and_draw(conn, key, &take)
}

/// Runs `take`; if it made the row ours, draws the row's token in the same transaction.
///
/// The token is drawn while the row is locked, so the grants of one lock draw tokens in their
/// order. In the other order, waiting for a row that a foreign program has locked would keep the
/// counter locked, and other locks with it. The row's AUTO_INCREMENT number is not enough: it is
/// drawn before the row is locked, and some servers set it back at a restart.
///
/// The token is read after the COMMIT. A node of Galera may undo a transaction between two
/// statements of a packet in favour of another node's, and carry out the rest, including COMMIT,
/// without an error.
fn take_and_draw(conn: &mut Conn, key: Key<'_>, take: &str) -> Result<Option<i64>> {
    let slot = format!("CRC32({}) % {SLOTS}", text(key.name));
    let ours = format!(
        "`lock` = {} AND `owner` = {}",
        text(key.name),
        text(key.owner)
    );
    // `ours` may also match a row that an earlier statement of this owner has left; its lease
    // is only as long as that statement said. Committed rows have a token.
    let taken = format!("{ours} AND `token` = 0");
    let sql = format!(
        "START TRANSACTION; {take}; \
         INSERT INTO `database_lock_token` (`slot`, `token`) \
         SELECT {slot}, LAST_INSERT_ID(1) FROM `database_lock` WHERE {taken} \
         ON DUPLICATE KEY UPDATE `token` = LAST_INSERT_ID(`database_lock_token`.`token` + 1); \
         UPDATE `database_lock` SET `token` = LAST_INSERT_ID() WHERE {taken}; \
         COMMIT; \
         SELECT IF({IS_READ_ONLY}, {NOT_GRANTED}, `token`) FROM `database_lock` WHERE {ours}"
    );
    let mut changed = Vec::new();
    let token = run_unless_read_only(conn, &sql, &mut changed);
    let taken = [TAKE, WRITE_TOKEN].map(|place| changed.get(place) == Some(&true)) == [true; 2];
    match token {
        Ok(None) if taken => Err(in_doubt("the server has undone the transaction")),
        // The row that may be left is deleted as soon as a primary answers.
        Ok(Some(NOT_GRANTED)) => Err(in_doubt("the server has become read-only")),
        Err(error) if changed.len() > COMMIT => Err(in_doubt(&error.to_string())),
        token => Ok(token?.filter(|_| taken)),
    }
}

/// Returns the state of the lock's row.
pub(super) fn look(conn: &mut Conn, key: Key<'_>) -> Result<RowState> {
    let sql = format!(
        "SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), `lease_end`), `owner` <=> {}, \
         CAST(`description` AS BINARY) FROM `database_lock` WHERE `lock` = {}",
        text(key.owner),
        text(key.name),
    );
    type Found = (Option<i64>, bool, Option<Vec<u8>>);
    let Some((left, is_own, owner)) = conn.query_first::<Found, _>(sql)? else {
        return Ok(RowState::Free);
    };
    Ok(match left {
        Some(left) if left < 0 => RowState::Expired,
        Some(_) if is_own => RowState::Own,
        left => RowState::Taken(Holder {
            left: left.map(|left| Duration::from_micros(left.unsigned_abs())),
            owner: Owner::parse(&owner.unwrap_or_default()),
        }),
    })
}

/// Like [`look`], including what other transactions have not committed yet.
pub(super) fn look_ahead(conn: &mut Conn, key: Key<'_>) -> Result<RowState> {
    // This applies only to the next transaction, which is one SELECT.
    conn.query_drop("SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")?;
    look(conn, key)
}

/// Renews leases, each in a transaction of its own; returns which rows were still there.
///
/// A row that exists changes in any case, if only by a microsecond. The answer was therefore proven
/// by this statement, and not by an earlier one. A lease never becomes shorter, because a delayed
/// renewal may arrive after a later one. A lease that has ended stays ended. Stops at the first
/// error, and then returns the rows before it.
pub(super) fn renew(
    conn: &mut Conn,
    keys: &[Key<'_>],
    lease: Duration,
    wait: Wait,
) -> (Vec<bool>, Result<()>) {
    let all: Vec<_> = keys.iter().map(|key| renewal(*key, lease, wait)).collect();
    let mut changed = Vec::with_capacity(keys.len());
    let mut done = run_on_primary(conn, &all.join("; "), &mut changed);
    for place in 0..changed.len() {
        if changed[place] {
            continue;
        }
        done = done.and_then(|()| {
            let again = renewal(keys[place], lease, Wait::Yes);
            changed[place] = after_all(conn, &again, changes_on_primary)?;
            Ok(())
        });
        if done.is_err() {
            changed.truncate(place);
            break;
        }
    }
    (changed, done)
}

fn renewal(key: Key<'_>, lease: Duration, wait: Wait) -> String {
    let (no_wait, is_free) = match wait {
        Wait::No => (NO_WAIT, is_free(key)),
        Wait::Yes => ("", String::new()),
    };
    format!(
        "{no_wait}UPDATE `database_lock` \
         SET `lease_end` = GREATEST(`lease_end` + INTERVAL 1 MICROSECOND, {}) \
         WHERE `lock` = {} AND `owner` = {} AND `lease_end` > UTC_TIMESTAMP(6){is_free}",
        lease_end(lease),
        text(key.name),
        text(key.owner),
    )
}

/// Returns a condition that fails with an error on MySQL if another transaction has locked the row.
/// It is tested before the statement locks a row itself. For MariaDB it is a comment.
fn is_free(key: Key<'_>) -> String {
    format!(
        " /*!80001 AND (SELECT COUNT(*) FROM (SELECT `id` FROM `database_lock` \
         WHERE `lock` = {} FOR UPDATE NOWAIT) AS `own`) */",
        text(key.name),
    )
}

/// Returns the token of the row, if the row exists and has one.
pub(super) fn token(conn: &mut Conn, key: Key<'_>) -> Result<Option<i64>> {
    let sql = format!(
        "SELECT IF({IS_READ_ONLY}, {NOT_GRANTED}, `token`) FROM `database_lock` \
         WHERE `lock` = {} AND `owner` = {} AND `token` > 0 LOCK IN SHARE MODE",
        text(key.name),
        text(key.owner),
    );
    match conn.query_first(sql)? {
        Some(NOT_GRANTED) => Err(read_only()),
        token => Ok(token),
    }
}

/// Deletes the row; returns whether it existed.
///
/// MariaDB may answer a DELETE that was killed (KILL QUERY) as if there had been no row, so a
/// SELECT checks that.
pub(super) fn delete(conn: &mut Conn, key: Key<'_>) -> Result<bool> {
    let ours = format!(
        "FROM `database_lock` WHERE `lock` = {} AND `owner` = {}",
        text(key.name),
        text(key.owner),
    );
    if changes_on_primary(conn, &format!("DELETE {ours}"))? {
        return Ok(true);
    }
    let find = |conn: &mut Conn, sql: &str| conn.query_first::<u8, _>(sql);
    match after_all(conn, &format!("SELECT 1 {ours}"), find)? {
        None => Ok(false),
        Some(_) => Err(in_doubt("the server has not deleted the row")),
    }
}

/// Deletes rows whose lease ended at least `ago` ago; returns how many.
///
/// It looks them up without a lock, and deletes each by its key: a DELETE that scans would
/// lock every row that it passes.
pub(super) fn clean(conn: &mut Conn, ago: Duration) -> Result<u64> {
    let ended = format!(
        "`lease_end` < UTC_TIMESTAMP(6) - INTERVAL {} MICROSECOND",
        ago.as_micros()
    );
    let ids: Vec<i64> = conn.query(format!(
        "SELECT `id` FROM `database_lock` WHERE {ended} LIMIT 1000"
    ))?;
    let mut deleted = 0;
    for id in ids {
        let delete = format!("DELETE FROM `database_lock` WHERE `id` = {id} AND {ended}");
        deleted += u64::from(changes_on_primary(conn, &delete)?);
    }
    Ok(deleted)
}

fn lease_end(lease: Duration) -> String {
    format!(
        "UTC_TIMESTAMP(6) + INTERVAL {} MICROSECOND",
        lease.as_micros()
    )
}

/// Returns text as an SQL literal.
pub(super) fn text(text: &str) -> String {
    let mut literal = String::with_capacity(2 * text.len() + 12);
    literal.push_str("_utf8mb4 X'");
    for byte in text.bytes() {
        let _ = write!(literal, "{byte:02x}");
    }
    literal.push('\'');
    literal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_can_end_its_literal() {
        assert_eq!(text("a'\\\0é"), "_utf8mb4 X'61275c00c3a9'");
        assert_eq!(text(""), "_utf8mb4 X''");
    }
}
