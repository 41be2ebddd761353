//! A server for development.

use std::io::Write;

use log::LevelFilter;
use zklock::embedded::Server;

use crate::args::Serve;
use crate::failure::Failure;
use crate::stderr::{log, say};

pub(crate) fn serve(serve: &Serve) -> Result<u8, Failure> {
    // There is no other report of why the server serves no clients any more.
    log(LevelFilter::Warn);
    let mut builder = Server::builder()
        .listen(serve.listen.ip())
        .port(serve.listen.port())
        .max_connections(10_000)
        .container_check(serve.container_check);
    if let Some(folder) = &serve.data {
        builder = builder.data(folder);
    }
    if serve.extended_types {
        builder = builder.extended_types();
    }
    if let Some(digest) = &serve.super_digest {
        builder = builder.super_digest(digest);
    }
    let server = builder.start();
    let server = server
        .map_err(|error| Failure::other(format!("cannot serve on {}: {error}", serve.listen)))?;
    say(match serve.data {
        None => "this server is for development: one node, in memory, gone when it ends",
        Some(_) => "this server is for development: one node, and no fsync",
    });
    if !serve.listen.ip().is_loopback() {
        say(&format!(
            "whoever can reach {} can read, change and delete everything: it asks for no password",
            serve.listen
        ));
    }
    // The address is printed for scripts that choose port 0.
    drop(writeln!(std::io::stdout(), "{}", server.hosts()));
    // A signal ends the program; everything that must be saved is saved.
    let failure = server.failure();
    Err(Failure::other(format!(
        "this server ends, to be started again once its data folder can be written: {failure}"
    )))
}
