//! The table of jobs: what each statement does, and why it is safe.
//!
//! A job's journal is a row of its own, because the row of a lock is deleted with the lock. The
//! same statement that checks the row of the lock, or ends its lease, writes the journal. One
//! statement is undone as a whole or not at all, even by a node of Galera.

use ::mysql::prelude::Queryable;
use ::mysql::{Conn, Result};

use crate::mysql::lock_table::{Key, text};
use crate::mysql::primary::{changes_at_last, changes_on_primary, expect_primary};
use zklock_core::journal::Journal;

/// The state of a job in the database.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) journal: Vec<u8>,
    pub(super) version: i32,
    /// When the journal was written, in milliseconds since 1970 by the database's clock.
    pub(super) changed: i64,
    /// Whether the row of the lock still belongs to the acquisition that asks.
    pub(super) is_ours: bool,
}

/// The outcome of writing a journal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Written {
    Yes,
    /// The journal has another version.
    BadVersion,
    /// The lock is no longer this acquisition's.
    Gone,
}

/// Reads the state of a job; returns `None` if the job was never begun.
pub(super) fn read(conn: &mut Conn, key: Key<'_>) -> Result<Option<Found>> {
    let sql = format!(
        "SELECT CAST(`journal` AS BINARY), `version`, \
         TIMESTAMPDIFF(MICROSECOND, '1970-01-01', `changed`) DIV 1000, \
         EXISTS (SELECT 1 FROM `database_lock` WHERE `lock` = {name} AND `owner` = {owner}) \
         FROM `database_lock_job` WHERE `lock` = {name}",
        name = text(key.name),
        owner = text(key.owner),
    );
    let found = conn.query_first_opt::<(Vec<u8>, i32, i64, bool), _>(sql)?;
    Ok(found.map(|row| {
        // A value of another program may be NULL or out of range: then it is no journal.
        let (journal, version, changed, is_ours) = row.unwrap_or_default();
        Found {
            journal,
            version,
            changed,
            is_ours,
        }
    }))
}

/// Like [`read`]; fails if the server is read-only.
///
/// A run may have been recorded on a server that another one had replaced by then.
pub(super) fn read_on_primary(conn: &mut Conn, key: Key<'_>) -> Result<Option<Found>> {
    let found = read(conn, key)?;
    expect_primary(conn)?;
    Ok(found)
}

/// Creates the journal of a job that was never begun.
pub(super) fn create(conn: &mut Conn, key: Key<'_>) -> Result<()> {
    let insert = format!(
        "INSERT INTO `database_lock_job` (`lock`, `journal`, `version`, `changed`) \
         VALUES ({}, {}, 0, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE `lock` = `lock`",
        text(key.name),
        literal(Journal::EMPTY),
    );
    changes_on_primary(conn, &insert).map(drop)
}

/// Writes the journal if it has this version and our row exists, with a lease that has not ended.
pub(super) fn write(
    conn: &mut Conn,
    (key, token): (Key<'_>, i64),
    journal: &[u8],
    version: i32,
) -> Result<Written> {
    // The lock's row is also written, unchanged, so that it is locked first and for writing.
    let update = format!(
        "UPDATE `database_lock` AS `l` STRAIGHT_JOIN `database_lock_job` AS `j` \
         SET `l`.`lease_end` = `l`.`lease_end`, {} \
         WHERE {} AND `l`.`lease_end` > UTC_TIMESTAMP(6) AND `j`.`version` = {version}",
        set(journal),
        ours(key, token),
    );
    if changes_at_last(conn, &update)? {
        return Ok(Written::Yes);
    }
    Ok(match read(conn, key)? {
        Some(found) if found.is_ours && found.version != version => Written::BadVersion,
        _ => Written::Gone,
    })
}

/// Ends the lease of our row and writes the journal; returns whether the row was ours.
///
/// From then on any client may take the row, which is deleted next.
pub(super) fn end(
    conn: &mut Conn,
    key: Key<'_>,
    (token, journal): &(i64, Vec<u8>),
) -> Result<bool> {
    let update = format!(
        "UPDATE `database_lock` AS `l` STRAIGHT_JOIN `database_lock_job` AS `j` \
         SET `l`.`lease_end` = '2000-01-01', {} WHERE {}",
        set(journal),
        ours(key, *token),
    );
    changes_at_last(conn, &update)
}

/// Returns whether the acquisition with this token still has the lock.
pub(super) fn is_held(conn: &mut Conn, name: &str, token: i64) -> Result<bool> {
    let sql = format!(
        "SELECT 1 FROM `database_lock` WHERE `lock` = {} AND `token` = {token} \
         AND `lease_end` > UTC_TIMESTAMP(6)",
        text(name),
    );
    Ok(conn.query_first::<u8, _>(sql)?.is_some())
}

fn set(journal: &[u8]) -> String {
    format!(
        "`j`.`journal` = {}, `j`.`version` = `j`.`version` + 1, \
         `j`.`changed` = UTC_TIMESTAMP(6)",
        literal(journal),
    )
}

/// Selects the rows of a job whose lock belongs to this acquisition.
///
/// If an INSERT of the acquisition is carried out late, the row that it leaves has another token.
/// Other clients may have run the job before that, and another late statement must not undo their
/// marks.
fn ours(key: Key<'_>, token: i64) -> String {
    format!(
        "`l`.`lock` = {name} AND `l`.`owner` = {} AND `l`.`token` = {token} \
         AND `j`.`lock` = {name}",
        text(key.owner),
        name = text(key.name),
    )
}

/// Returns a journal, which is JSON, as an SQL literal.
fn literal(journal: &[u8]) -> String {
    text(&String::from_utf8_lossy(journal))
}
