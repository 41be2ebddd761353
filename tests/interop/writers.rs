//! The program on a path that other libraries use as a read-write lock.

use std::process::{Command, Stdio};

use super::kinds::{
    CURATOR_READ, CURATOR_WRITE, KAZOO_AS_CURATOR_READ, KAZOO_AS_CURATOR_WRITE, Kind,
};
use super::{A_WHILE, peer::server};
use crate::support::leash::Leashed;
use crate::support::raw::Raw;
use crate::support::{eventually, fresh_path, program};

/// Nobody of theirs is there when the command begins, so nothing tells `zklock` what the path is.
#[test]
#[ignore = "needs a ZooKeeper server, Curator and kazoo: tests/all.sh"]
fn readers_and_writers_who_come_later_wait_for_a_command_that_writes() {
    for theirs in [
        CURATOR_READ,
        CURATOR_WRITE,
        KAZOO_AS_CURATOR_READ,
        KAZOO_AS_CURATOR_WRITE,
    ] {
        behind_a_command(theirs);
    }
}

fn behind_a_command(theirs: Kind) {
    let (hosts, path) = (server().hosts(), fresh_path("writes"));
    let mut command = Command::new(program());
    command.args(["run", "--write", &path, "--hosts", &hosts, "--"]);
    // It ends with its input.
    command.arg("cat").stdin(Stdio::piped());
    let mut command = Leashed::spawn(&mut command, None).expect("zklock");
    let mut witness = Raw::connect(&hosts);
    let mut wait_for = |count| {
        eventually("they are in the queue", || {
            witness.children(&path).unwrap_or_default().len() == count
        });
    };
    wait_for(1);
    let contender = theirs.contender(&hosts);
    contender.lock(theirs.word, &path);
    wait_for(2);
    assert_eq!(contender.hear_within(A_WHILE), None, "{}", theirs.label);
    drop(command.child().stdin.take());
    contender.held();
    contender.release();
}
