//! The tables, and the check whether those in the database suit the locks.

use std::collections::HashMap;

use ::mysql::prelude::{FromRow, Queryable};
use ::mysql::{Conn, Error, QueryResult, Result, Text, from_row_opt};
use log::warn;

use crate::mysql::primary::run_unless_read_only;
use crate::mysql::statement_error::in_doubt;

/// The statements that create the tables.
///
/// `database_lock` has a row for each lock that is held. The columns are those of the plain
/// form (`id`, `lock`, `description`) and three more, which are NULL in the rows of programs
/// that use the plain form. Times are UTC.
///
/// `database_lock_token` has at most 64 rows, whatever the number of locks: counters from
/// which the fencing tokens are drawn. They outlive the rows of the locks, and must not be
/// deleted or set back.
///
/// `database_lock_job` has a row for each [`Job`](crate::mysql::Job) that was ever begun.
/// Locks alone do not need it.
pub const CREATE_TABLE: &str = "\
CREATE TABLE IF NOT EXISTS `database_lock` (
  `id` BIGINT NOT NULL AUTO_INCREMENT,
  `lock` VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `description` VARCHAR(1024) CHARACTER SET utf8mb4 NOT NULL DEFAULT '',
  `owner` CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NULL DEFAULT NULL,
  `lease_end` DATETIME(6) NULL DEFAULT NULL,
  `token` BIGINT NULL DEFAULT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `database_lock_lock` (`lock`)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS `database_lock_token` (
  `slot` TINYINT UNSIGNED NOT NULL,
  `token` BIGINT NOT NULL,
  PRIMARY KEY (`slot`)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS `database_lock_job` (
  `lock` VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `journal` MEDIUMTEXT CHARACTER SET utf8mb4 NOT NULL,
  `version` INT NOT NULL,
  `changed` DATETIME(6) NOT NULL,
  PRIMARY KEY (`lock`)
) ENGINE = InnoDB";

/// The statement that makes a table of the plain form suit these locks as well.
///
/// Run it before [`CREATE_TABLE`], which then adds the table of the counters. Programs that
/// use the plain form wait while it runs, and then continue.
pub const ALTER_TABLE: &str = "\
ALTER TABLE `database_lock`
  MODIFY `id` BIGINT NOT NULL AUTO_INCREMENT,
  MODIFY `lock` VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  MODIFY `description` VARCHAR(1024) CHARACTER SET utf8mb4 NOT NULL DEFAULT '',
  ADD COLUMN `owner` CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NULL DEFAULT NULL,
  ADD COLUMN `lease_end` DATETIME(6) NULL DEFAULT NULL,
  ADD COLUMN `token` BIGINT NULL DEFAULT NULL";

/// The query of the columns; the name of the table is appended.
const COLUMNS: &str = "\
SELECT LOWER(COLUMN_NAME), LOWER(DATA_TYPE), LOWER(COALESCE(COLLATION_NAME, '')), \
COALESCE(CHARACTER_MAXIMUM_LENGTH, 0), COALESCE(DATETIME_PRECISION, 0), LOWER(EXTRA) FROM information_schema.COLUMNS \
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME =";

const DATABASE: &str = "SELECT DATABASE()";

const ENGINES: &str = "\
SELECT TABLE_NAME, COALESCE(ENGINE, '') FROM information_schema.TABLES \
WHERE TABLE_SCHEMA = DATABASE() \
AND TABLE_NAME IN ('database_lock', 'database_lock_token', 'database_lock_job')";

/// The query that tells whether a commit survives a failure of the server, how long a packet of
/// statements may be, and whether a cluster may go on in two parts.
const VARIABLES: &str = "\
SHOW GLOBAL VARIABLES WHERE Variable_name IN \
('innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'max_allowed_packet', \
'wsrep_on', 'wsrep_provider_options')";

/// The query that tells whether other servers have each commit too. The variable `wsrep_on` may be ON without them.
const CLUSTER: &str = "\
SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_ready', 'wsrep_cluster_size')";

/// More bytes than a packet of renewals has.
const PACKET: u64 = 128 * 1024;

/// The query of the table and the columns of each unique key; an expression, and a column that is
/// compared only by its prefix, have no name here. The last column tells whether the key is an
/// index: in MariaDB's InnoDB, a key USING HASH is not, and neither is a key on a text too long for
/// an index.
const KEYS: &str = "\
SELECT LOWER(TABLE_NAME), \
GROUP_CONCAT(IF(SUB_PART IS NULL, COALESCE(LOWER(COLUMN_NAME), ''), '')), \
MIN(INDEX_TYPE = 'BTREE') FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() \
AND TABLE_NAME IN ('database_lock', 'database_lock_token', 'database_lock_job') \
AND NON_UNIQUE = 0 GROUP BY TABLE_NAME, INDEX_NAME";

/// The state of the tables in the database.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Schema {
    Good,
    /// Tables do not exist yet.
    Missing,
    /// What is wrong with the tables, and what to do.
    Wrong(&'static str),
}

impl Schema {
    /// Fails unless the tables exist and suit the locks.
    pub(super) fn usable(self) -> crate::error::Result<()> {
        let message = match self {
            Self::Good => return Ok(()),
            Self::Missing => "tables are missing: run CREATE_TABLE",
            Self::Wrong(message) => message,
        };
        Err(crate::error::Error::Database {
            what: "use the table",
            message: message.to_owned(),
        })
    }
}

/// Creates the tables that do not exist; returns the state of the tables then.
pub(super) fn create(conn: &mut Conn) -> Result<Schema> {
    match run_unless_read_only(conn, CREATE_TABLE, &mut Vec::new()) {
        Ok(_) => inspect(conn),
        // A user without the right to create tables does not need it if the tables exist.
        Err(error @ Error::MySqlError(_)) => match inspect(conn)? {
            Schema::Good => Ok(Schema::Good),
            _ => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// Reads which tables exist.
///
/// This sends two packets, because each round trip delays the first lock of every program that
/// starts. One packet would be too long for a server that the first packet tells from others.
pub(super) fn inspect(conn: &mut Conn) -> Result<Schema> {
    if let Some(wrong) = wrong_server(conn)? {
        return Ok(Schema::Wrong(wrong));
    }
    let columns = |table: &str| format!("{COLUMNS} '{table}'");
    let (locks, tokens, jobs) = (
        columns("database_lock"),
        columns("database_lock_token"),
        columns("database_lock_job"),
    );
    let mut results = conn.query_iter([ENGINES, &locks, &tokens, &jobs, KEYS].join("; "))?;
    let engines: Vec<(String, String)> = next(&mut results)?;
    let (locks, tokens): (Vec<Column>, Vec<Column>) = (next(&mut results)?, next(&mut results)?);
    let jobs: Vec<Column> = next(&mut results)?;
    let keys: Vec<Key> = next(&mut results)?;
    let wrong = wrong_locks(&locks, &keys)
        .or_else(|| wrong_tokens(&tokens, &keys))
        .or_else(|| wrong_jobs(&jobs, &keys))
        .or_else(|| wrong_engine(&engines));
    Ok(match wrong {
        Some(wrong) => Schema::Wrong(wrong),
        None if locks.is_empty() || tokens.is_empty() => Schema::Missing,
        None => Schema::Good,
    })
}

/// Returns what is wrong with the server, whatever tables it has.
fn wrong_server(conn: &mut Conn) -> Result<Option<&'static str>> {
    let mut results = conn.query_iter([DATABASE, VARIABLES, CLUSTER].join("; "))?;
    if next::<Option<String>>(&mut results)? == [None] {
        return Ok(Some("no database is chosen: name it in the URL"));
    }
    let variables = Variables::from_iter(next(&mut results)?);
    let packet = variables.get("max_allowed_packet");
    if packet.is_some_and(|bytes| bytes.parse().is_ok_and(|bytes: u64| bytes < PACKET)) {
        return Ok(Some(
            "statements are too long for this server: SET GLOBAL max_allowed_packet = 1048576",
        ));
    }
    let status = Variables::from_iter(next(&mut results)?);
    Ok(divides(&variables).or_else(|| forgets(&variables, is_in_cluster(&status))))
}

/// Returns the rows of the next answer.
fn next<T: FromRow>(results: &mut QueryResult<'_, '_, '_, Text>) -> Result<Vec<T>> {
    let Some(rows) = results.iter() else {
        return Err(in_doubt(
            "the server has answered fewer statements than it was sent",
        ));
    };
    rows.map(|row| Ok(from_row_opt(row?)?)).collect()
}

/// Returns why two nodes of a cluster could each grant a lock.
fn divides(variables: &Variables) -> Option<&'static str> {
    let options = variables.get("wsrep_provider_options")?;
    // A server without a cluster has none, and a node that has lost its cluster is not ready.
    if options.is_empty() {
        return None;
    }
    if variables.get("wsrep_on").is_some_and(|is| is == "OFF") {
        return Some(
            "this node does not pass its writes on to its cluster: SET GLOBAL wsrep_on = ON",
        );
    }
    let mut options = options
        .split(';')
        .filter_map(|option| option.split_once('='));
    let divides = |(name, value): (&str, &str)| {
        let goes_on = ["pc.ignore_sb", "pc.ignore_quorum"].contains(&name.trim());
        goes_on && !["false", "no", "off", "0"].contains(&&*value.trim().to_lowercase())
    };
    options.any(divides).then_some(
        "both parts of a divided cluster would grant a lock: set pc.ignore_sb and pc.ignore_quorum of wsrep_provider_options to false",
    )
}

fn is_in_cluster(status: &Variables) -> bool {
    let ready = status.get("wsrep_ready");
    let size = status.get("wsrep_cluster_size");
    ready.is_some_and(|ready| ready == "ON")
        && size.is_some_and(|size| size.parse().is_ok_and(|size: u32| 1 < size))
}

/// Returns why a crash would lose locks; logs a warning if only a crash of the whole machine does.
fn forgets(variables: &Variables, in_cluster: bool) -> Option<&'static str> {
    let is = |name: &str, value: &str| variables.get(name).is_some_and(|is| is == value);
    let flush = |value: &str| is("innodb_flush_log_at_trx_commit", value);
    if in_cluster {
        return None;
    }
    if flush("0") {
        return Some(
            "a crash of this server loses locks: SET GLOBAL innodb_flush_log_at_trx_commit = 1",
        );
    }
    if flush("2") {
        warn!("a crash of the database's machine loses locks: innodb_flush_log_at_trx_commit is 2");
    } else if is("log_bin", "ON") && !is("sync_binlog", "1") && !flush("3") {
        // The binary log then decides which transactions a restarted server has.
        warn!(
            "a crash of the database's machine loses locks: sync_binlog is not 1, and there is a binary log"
        );
    }
    None
}

type Variables = HashMap<String, String>;

/// Name, type, collation, length in characters, fractional digits, and the remaining attributes.
type Column = (String, String, String, u64, u64, String);

/// The table and the columns of a unique key, and whether it is an index.
type Key = (String, String, bool);

/// The length of the longest name of a lock, in bytes; it has at most as many characters.
const LONGEST_NAME: u64 = 255;

/// The length of a UUID.
const OWNER: u64 = 36;

/// Returns what is wrong with the table of the locks, if there is one.
fn wrong_locks(columns: &[Column], keys: &[Key]) -> Option<&'static str> {
    let column = |name: &str| columns.iter().find(|column| column.0 == name);
    let is = |name, data_type| column(name).is_some_and(|column| column.1 == data_type);
    if columns.is_empty() {
        return None;
    }
    let Some((_, data_type, collation, length, ..)) = column("lock") else {
        return Some("database_lock has no column `lock`: it is some other table");
    };
    if !tells_names_apart(data_type, collation, *length) {
        return Some(
            "`lock` must be a VARCHAR(255) of utf8mb4 that compares as _bin, as in ALTER_TABLE",
        );
    }
    if column("owner").is_some_and(|owner| owner.3 < OWNER) {
        return Some("`owner` must have 36 characters, as in ALTER_TABLE");
    }
    if column("description").is_none() || column("owner").is_none() || !is("token", "bigint") {
        return Some("database_lock lacks columns: run ALTER_TABLE");
    }
    // A TIMESTAMP would be read and written in the session's time zone.
    if !is("lease_end", "datetime") || column("lease_end").is_some_and(|column| column.4 != 6) {
        return Some("`lease_end` must be a DATETIME(6): run ALTER_TABLE");
    }
    // A second row with the same `id` would be taken for a second one with the same `lock`. Each
    // try uses up a number.
    let counts = column("id").is_some_and(|id| id.5.contains("auto_increment"));
    if !counts || !is("id", "bigint") {
        return Some("`id` must be a BIGINT that is AUTO_INCREMENT, as in ALTER_TABLE");
    }
    if !is_unique(keys, "database_lock", "lock") {
        return Some("`lock` has no unique key of its own, so nothing excludes: add it");
    }
    let admits = admits_all(keys, "database_lock", &["id", "lock"]);
    (!admits).then_some("database_lock has one more unique key, so free locks seem taken: drop it")
}

/// Returns what is wrong with the table of the counters, if there is one.
fn wrong_tokens(columns: &[Column], keys: &[Key]) -> Option<&'static str> {
    let column = |name: &str| columns.iter().find(|column| column.0 == name);
    if columns.is_empty() {
        return None;
    }
    // Other types round the count, or end sooner.
    if column("token").is_none_or(|token| token.1 != "bigint") {
        return Some("`token` of database_lock_token must be a BIGINT, as in CREATE_TABLE");
    }
    // The server would give a counter 0 another number.
    if column("slot").is_some_and(|slot| slot.5.contains("auto_increment")) {
        return Some(
            "`slot` of database_lock_token must not be AUTO_INCREMENT, as in CREATE_TABLE",
        );
    }
    if !is_unique(keys, "database_lock_token", "slot") {
        return Some(
            "`slot` of database_lock_token has no unique key of its own, so tokens repeat: add it",
        );
    }
    let admits = admits_all(keys, "database_lock_token", &["slot"]);
    (!admits).then_some("database_lock_token has one more unique key, so tokens repeat: drop it")
}

fn wrong_engine(engines: &[(String, String)]) -> Option<&'static str> {
    let is_innodb = |table: &(String, String)| table.1.eq_ignore_ascii_case("innodb");
    let all_are = engines.iter().all(is_innodb);
    (!all_are).then_some("the tables must be InnoDB: ALTER TABLE .. ENGINE = InnoDB")
}

/// Returns what keeps the table of the jobs, if there is one, from having a row for each name and
/// room for its journal.
fn wrong_jobs(columns: &[Column], keys: &[Key]) -> Option<&'static str> {
    let column = |name: &str| columns.iter().find(|column| column.0 == name);
    if columns.is_empty() {
        return None;
    }
    let names_jobs = |(_, data_type, collation, length, ..): &Column| {
        tells_names_apart(data_type, collation, *length)
    };
    if !column("lock").is_some_and(names_jobs) {
        return Some(
            "`lock` of database_lock_job must be a VARCHAR(255) of utf8mb4 that compares as _bin, as in CREATE_TABLE",
        );
    }
    if !is_unique(keys, "database_lock_job", "lock") {
        return Some(
            "`lock` of database_lock_job has no unique key of its own, so jobs repeat: add it",
        );
    }
    if !admits_all(keys, "database_lock_job", &["lock"]) {
        return Some(
            "database_lock_job has one more unique key, so some jobs have no row: drop it",
        );
    }
    let keeps_journals = |(_, data_type, collation, ..): &Column| match &**data_type {
        "mediumtext" | "longtext" => collation.starts_with("utf8mb4_"),
        data_type => ["mediumblob", "longblob"].contains(&data_type),
    };
    let counts = |column: &Column| ["int", "bigint"].contains(&&*column.1);
    // A TIMESTAMP would be read and written in the session's time zone.
    let tells_time = |column: &Column| column.1 == "datetime" && column.4 == 6;
    let is_good = column("journal").is_some_and(keeps_journals)
        && column("version").is_some_and(counts)
        && column("changed").is_some_and(tells_time);
    (!is_good).then_some(
        "`journal`, `version` and `changed` of database_lock_job must be a MEDIUMTEXT of utf8mb4, an INT and a DATETIME(6), as in CREATE_TABLE",
    )
}

/// Returns whether the column tells names apart. Otherwise names that differ only in case, in
/// characters that the column cannot store, or beyond its length would share one row, although they
/// name two locks.
fn tells_names_apart(data_type: &str, collation: &str, length: u64) -> bool {
    let is_text = ["varchar", "char"].contains(&data_type)
        && collation.starts_with("utf8mb4_")
        && collation.ends_with("_bin");
    (is_text || data_type == "varbinary") && LONGEST_NAME <= length
}

fn is_unique(keys: &[Key], table: &str, column: &str) -> bool {
    let mut keys = keys.iter();
    keys.any(|(name, columns, is_index)| name == table && columns == column && *is_index)
}

/// Returns whether each unique key, an index or not, has one of these columns; otherwise a row may
/// block another's.
fn admits_all(keys: &[Key], table: &str, columns: &[&str]) -> bool {
    let mut keys = keys.iter().filter(|(name, ..)| name == table);
    keys.all(|(_, key, _)| key.split(',').any(|column| columns.contains(&column)))
}
