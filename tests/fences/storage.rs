//! The storage to which a holder writes: each kind with its fence, and without it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use zklock::FencingToken;
use zklock::fence::Highest;

use crate::servers::{http, mariadb_client, psql};
use crate::statements::{marked, without};

/// The path of the object.
const OBJECT: &str = "/bucket/report";

/// A kind of storage.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    PostgreSql,
    /// A transaction of several statements.
    Transaction,
    Trigger,
    MariaDb,
    Sqlite,
    File,
    S3,
}

pub(crate) const ALL: [Kind; 7] = [
    Kind::PostgreSql,
    Kind::Transaction,
    Kind::Trigger,
    Kind::MariaDb,
    Kind::Sqlite,
    Kind::File,
    Kind::S3,
];

/// One report in a storage, and whether a fence protects it.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) kind: Kind,
    pub(crate) fenced: bool,
    pub(crate) address: String,
}

impl Storage {
    /// Creates the table or the object that the writes need.
    pub(crate) fn make(&self) {
        let sql = match self.kind {
            Kind::PostgreSql => marked("postgresql"),
            Kind::Transaction => {
                marked("postgresql") + "INSERT INTO report VALUES (1, 'first', 0);"
            }
            Kind::Trigger => {
                let trigger = if self.fenced {
                    marked("postgresql trigger")
                } else {
                    String::new()
                };
                marked("postgresql") + "INSERT INTO report VALUES (1, 'first', 0);" + &trigger
            }
            Kind::MariaDb => marked("mariadb"),
            Kind::Sqlite => marked("sqlite"),
            Kind::File | Kind::S3 => return,
        };
        let told = self.run("", 0, &sql);
        assert!(told.status.success(), "{told:?}");
    }

    /// Writes the report under this token; returns whether the write was accepted.
    pub(crate) fn write(&self, body: &str, token: FencingToken) -> bool {
        let but = |statements: String, fence, instead| match self.fenced {
            true => statements,
            false => without(&statements, fence, instead),
        };
        match self.kind {
            Kind::File => self.write_file(body, token),
            Kind::S3 => self.write_object(body, token),
            Kind::PostgreSql => {
                let fence = "\nWHERE report.token <= excluded.token";
                let sql = but(marked("postgresql write"), fence, "");
                // psql prints the row count only if it is not quiet.
                let told = self.run(body, token.get(), &format!("\\set QUIET off\n{sql}"));
                assert!(told.status.success(), "{told:?}");
                String::from_utf8_lossy(&told.stdout).contains("INSERT 0 1")
            }
            Kind::Transaction => {
                let sql = but(marked("postgresql transaction"), " AND token <= :token", "");
                self.run(body, token.get(), &sql).status.success()
            }
            Kind::Trigger => {
                let sql = "UPDATE report SET body = :'body', token = :token WHERE id = 1;";
                self.run(body, token.get(), sql).status.success()
            }
            Kind::MariaDb => {
                let fence = "IF(token <= VALUES(token), VALUES(body), body)";
                let sql = but(marked("mariadb write"), fence, "VALUES(body)");
                self.says_one(body, token, &sql)
            }
            Kind::Sqlite => {
                let fence = "\nWHERE report.token <= excluded.token";
                let sql = but(marked("sqlite write"), fence, "");
                self.says_one(body, token, &sql)
            }
        }
    }

    /// Returns the report.
    pub(crate) fn body(&self) -> String {
        let sql = "SELECT body FROM report WHERE id = 1;";
        match self.kind {
            Kind::File => fs::read_to_string(self.file()).expect("a report"),
            Kind::S3 => self.object().expect("an object").1,
            _ => String::from_utf8_lossy(&self.run("", 0, sql).stdout)
                .trim()
                .to_owned(),
        }
    }

    /// Deletes the report, and the token with it.
    pub(crate) fn delete(&self) {
        match self.kind {
            Kind::File => {
                let token = Path::new(&self.address).join("report.token");
                fs::remove_file(token).expect("a token");
            }
            Kind::S3 => {
                let answer = http(&self.address, &format!("DELETE {OBJECT}"), &[], "");
                assert_eq!(answer.status, 204);
            }
            _ => {
                let told = self.run("", 0, "DELETE FROM report;");
                assert!(told.status.success(), "{told:?}");
            }
        }
    }

    fn says_one(&self, body: &str, token: FencingToken, sql: &str) -> bool {
        let told = self.run(body, token.get(), sql);
        assert!(told.status.success(), "{told:?}");
        String::from_utf8_lossy(&told.stdout).trim() == "1"
    }

    /// Makes the database run statements with these variables.
    pub(crate) fn run(&self, body: &str, token: i64, sql: &str) -> Output {
        let (mut command, sql) = match self.kind {
            Kind::MariaDb => {
                let mut command = mariadb_client(&self.address);
                command.arg("app");
                (
                    command,
                    format!("SET @body = '{body}', @token = {token};\n{sql}"),
                )
            }
            Kind::Sqlite => {
                let mut command = Command::new("sqlite3");
                command.args(["-batch", "-bail", &self.address]);
                let set =
                    format!(".parameter set :body \"'{body}'\"\n.parameter set :token {token}\n");
                (command, format!("{set}{sql}"))
            }
            _ => {
                let mut command = psql(&self.address);
                command.args([
                    "-v",
                    &format!("body={body}"),
                    "-v",
                    &format!("token={token}"),
                ]);
                (command, sql.to_owned())
            }
        };
        let pipes = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = pipes.spawn().expect("starting a database's client");
        let mut input = process.stdin.take().expect("its input");
        // The client may have ended at an earlier statement.
        drop(input.write_all(sql.as_bytes()));
        drop(input);
        process
            .wait_with_output()
            .expect("the end of a database's client")
    }

    fn file(&self) -> PathBuf {
        Path::new(&self.address).join("report.txt")
    }

    fn write_file(&self, body: &str, token: FencingToken) -> bool {
        let write = || fs::write(self.file(), body).expect("writing a report");
        match self.fenced {
            true => {
                let highest = Highest::in_file(Path::new(&self.address).join("report.token"));
                highest.write(token, write).is_ok()
            }
            false => {
                write();
                true
            }
        }
    }

    /// Returns the object's token, the rest of it, and its ETag.
    fn object(&self) -> Option<(i64, String, String)> {
        let answer = http(&self.address, &format!("GET {OBJECT}"), &[], "");
        if answer.status == 404 {
            return None;
        }
        assert_eq!(answer.status, 200);
        let (token, body) = answer.body.split_once('\n').expect("a token and a body");
        let token = token.parse().expect("a token");
        Some((token, body.to_owned(), answer.etag.expect("an ETag")))
    }

    fn write_object(&self, body: &str, token: FencingToken) -> bool {
        let text = format!("{token}\n{body}");
        let put = |headers: &[(&str, &str)]| {
            http(&self.address, &format!("PUT {OBJECT}"), headers, &text).status
        };
        if !self.fenced {
            return put(&[]) == 200;
        }
        loop {
            let status = match self.object() {
                Some((last, ..)) if token.get() < last => return false,
                Some((.., etag)) => put(&[("If-Match", &etag)]),
                None => put(&[("If-None-Match", "*")]),
            };
            match status {
                200 => return true,
                // Another client has written in between.
                409 | 412 => {}
                other => panic!("status {other}"),
            }
        }
    }
}
