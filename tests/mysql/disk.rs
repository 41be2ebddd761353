//! A disk that is full, and later has room again.

use std::fs::{self, File};
use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use mysql::prelude::Queryable;
use zklock::mysql::CREATE_TABLE;

use crate::database::{Database, Server};
use crate::support::zookeeper::Folder;
use crate::support::{free_port, run, within};
use crate::{LATE, client, seconds};

/// A file system in memory; mounting it needs root.
struct Disk(Folder);

impl Disk {
    fn new(size: &str) -> Option<Self> {
        let disk = Self(Folder::new());
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", size, "tmpfs"]);
        let done = mount.arg(disk.0.path("")).output();
        let is_mounted = done.is_ok_and(|output| output.status.success());
        if !is_mounted {
            println!("no small disk: that takes root");
        }
        is_mounted.then_some(disk)
    }

    fn fill(&self) {
        let mut file = File::create(self.0.path("filler")).unwrap();
        for size in [1 << 20, 1 << 12, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    fn free(&self) {
        fs::remove_file(self.0.path("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The server has ended, and has no open files on it any more.
        run(Command::new("umount").arg(self.0.path("")));
    }
}

/// Takes locks until one cannot be acquired, fills the disk meanwhile, and frees it.
fn fill_and_free(options: &[&str]) {
    // The disk is dropped last.
    let Some(disk) = Disk::new("size=120m") else {
        return;
    };
    let server = Server::prepare_in(disk.0.path("data"), free_port(), Vec::new());
    server.resume(options);
    let database = Database::empty_on(Arc::new(server));
    database.conn().query_drop(CREATE_TABLE).unwrap();
    let client = client(&database.url(), seconds(6));
    let held = client.mutex("held").unwrap().lock().unwrap();
    disk.fill();
    let mut guards = Vec::new();
    let failed = (0..10_000).find_map(|number| {
        let mutex = client.mutex(&format!("{number:0>200}")).unwrap();
        let begun = Instant::now();
        let taken = mutex.try_lock_for(seconds(2));
        assert!(begun.elapsed() < seconds(2) + LATE);
        match taken {
            Ok(guard) => guards.push(guard.expect("it is free")),
            Err(error) => return Some(error.to_string()),
        }
        None
    });
    println!("{} locks, then {failed:?}", guards.len());
    assert!(failed.is_some());
    let begun = Instant::now();
    drop(guards);
    assert!(begun.elapsed() < LATE);
    let verified = held.verify();
    assert!(verified.is_err() || held.is_valid());
    println!("held: {verified:?}");
    disk.free();
    let mutex = client.mutex("after").unwrap();
    // MariaDB checks once a minute whether there is room for its log.
    let guard = mutex.try_lock_for(seconds(150)).unwrap().unwrap();
    guard.verify().unwrap();
    guard.unlock().unwrap();
    drop(held);
    let live = "SELECT COUNT(*) FROM database_lock WHERE lease_end > UTC_TIMESTAMP(6)";
    let mut conn = database.conn();
    assert!(within(seconds(30), || {
        conn.query_first(live).unwrap() == Some(0)
    }));
}

#[test]
#[ignore = "needs MariaDB and root"]
fn a_full_disk_ends_no_wait_and_leaves_no_row() {
    fill_and_free(&[]);
}

#[test]
#[ignore = "needs MariaDB and root"]
fn a_disk_that_is_too_full_for_the_log_hangs_nobody_and_leaves_no_row() {
    fill_and_free(&["--log-bin"]);
}
