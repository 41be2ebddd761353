//! A server that takes over from another one, and a pair of servers.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;
use mysql::{Conn, Row};
use zklock::mysql::{CREATE_TABLE, Client, MutexGuard};
use zklock::{Error, GuardEvent, GuardState, Once};

use crate::database::{Database, Server, opts};
use crate::proxy::Proxy;
use crate::support::{eventually, free_port};
use crate::{client, next, seconds};

/// Returns a primary, and a server that replicates it asynchronously.
fn primary_and_replica() -> (Database, Database) {
    primary_and_replica_by("MIXED")
}

/// Like [`primary_and_replica`], with a binary log of this format.
fn primary_and_replica_by(format: &str) -> (Database, Database) {
    let format = format!("--binlog-format={format}");
    let start = |id: &str| Arc::new(Server::start(&["--log-bin", id, &format]));
    let (primary, replica) = (start("--server-id=1"), start("--server-id=2"));
    let port = primary.port;
    let database = Database::empty_on(primary);
    database.conn().query_drop(CREATE_TABLE).unwrap();
    let copy = database.on(replica);
    let root = copy.server.root();
    let follow = "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_USER = 'root', MASTER_PORT =";
    { root }
        .query_drop(format!("{follow} {port}; START SLAVE"))
        .unwrap();
    (database, copy)
}

#[test]
#[ignore = "needs MariaDB"]
fn a_run_that_a_fail_over_has_forgotten_is_not_told_as_done_because_another_was() {
    let (primary, replica) = primary_and_replica();
    let proxy = Proxy::new(&primary.server);
    let ours = client(&primary.url_through(&proxy), seconds(12));
    let ours = ours.job("nightly").unwrap();
    let tables = "SELECT COUNT(*) FROM database_lock_job";
    eventually("the tables are replicated", || {
        let conn = Conn::new(opts(&replica.url()));
        conn.is_ok_and(|mut conn| conn.query_drop(tables).is_ok())
    });
    let mut root = replica.conn();
    root.query_drop("STOP SLAVE").unwrap();
    let ran = ours.once("a", |_| {
        primary.server.kill();
        root.query_drop("RESET SLAVE ALL").unwrap();
        proxy.lead_to(&replica.server);
        // Its token equals that of our run, of which the replica knows nothing.
        let theirs = client(&replica.url(), seconds(12)).job("nightly").unwrap();
        thread::Builder::new()
            .name("another".to_owned())
            .spawn(move || {
                let ran = theirs.once("a", |_| Ok::<_, ()>(()));
                assert!(matches!(ran, Ok(Once::Done(()))), "{ran:?}");
            })
            .unwrap()
            .join()
            .unwrap();
        Ok::<_, ()>(())
    });
    assert!(
        matches!(ran, Err(Error::Lost { .. } | Error::Unconfirmed { .. })),
        "{ran:?}"
    );
}

#[test]
#[ignore = "needs MariaDB"]
fn a_replica_keeps_the_locks_that_it_knows_and_who_loses_one_is_told() {
    let (primary, replica) = primary_and_replica();
    let proxy = Proxy::new(&primary.server);
    let ours = client(&primary.url_through(&proxy), seconds(12));
    let known = ours.mutex("known").unwrap().lock().unwrap();
    eventually("it is replicated", || {
        replica.try_rows().is_some_and(|rows| rows == 1)
    });
    let mut root = replica.conn();
    root.query_drop("STOP SLAVE").unwrap();
    let unknown = ours.mutex("unknown").unwrap().lock().unwrap();
    unknown.verify().unwrap();

    primary.server.kill();
    root.query_drop("RESET SLAVE ALL").unwrap();
    proxy.lead_to(&replica.server);
    let theirs = client(&replica.url(), seconds(12));
    assert!(theirs.mutex("known").unwrap().try_lock().unwrap().is_none());
    // The changes that were committed only on the primary are lost: the lock, and the token, too.
    let other = theirs.mutex("unknown").unwrap().lock().unwrap();
    assert_eq!(other.fencing_token(), unknown.fencing_token());
    let deadline = Instant::now() + unknown.valid_for();
    while next(&unknown) != GuardEvent::Lost {}
    assert!(Instant::now() < deadline, "the replica did not tell");

    eventually("it is renewed", || known.state() == GuardState::Held);
    known.verify().unwrap();
    known.unlock().unwrap();
    other.unlock().unwrap();
    replica.wait_for_rows(0);
}

/// A lock that is held on a primary, and a read-only replica that knows none of its renewals.
struct Lagging {
    guard: MutexGuard,
    replica: Database,
    known: (String, String, i64),
    _primary: Database,
}

impl Lagging {
    const T: Duration = Duration::from_secs(3);

    fn new() -> Self {
        let (primary, replica) = primary_and_replica();
        let guard = client(&primary.url(), Self::T).mutex("a").unwrap().lock();
        eventually("it is replicated", || replica.try_rows() == Some(1));
        let mut root = replica.conn();
        root.query_drop("SET GLOBAL read_only = 1; STOP SLAVE SQL_THREAD")
            .unwrap();
        let ended = "SELECT lease_end < UTC_TIMESTAMP(6) - INTERVAL 4 SECOND FROM database_lock";
        eventually("the lease has ended there", || {
            root.query_first(ended).unwrap() == Some(true)
        });
        Self {
            guard: guard.unwrap(),
            known: row(&replica).unwrap(),
            replica,
            _primary: primary,
        }
    }

    /// Checks that the row is as it was, and that the replica still follows the primary.
    fn assert_untouched(self) {
        assert_eq!(row(&self.replica), Some(self.known));
        let start = "START SLAVE SQL_THREAD";
        self.replica.conn().query_drop(start).unwrap();
        self.guard.verify().unwrap();
        self.guard.unlock().unwrap();
        self.replica.wait_for_rows(0);
    }
}

fn row(database: &Database) -> Option<(String, String, i64)> {
    let row = "SELECT owner, CAST(lease_end AS CHAR), token FROM database_lock";
    database.conn().query_first(row).unwrap()
}

#[test]
#[ignore = "needs MariaDB"]
fn on_a_replica_that_lags_no_row_is_taken_over() {
    let lagging = Lagging::new();
    // This account may write there.
    let waiter = Client::builder(&lagging.replica.url()).lease(Lagging::T);
    let waiter = waiter.connect_timeout(seconds(1)).connect().unwrap();
    let refused = waiter.mutex("a").unwrap().try_lock();
    let refused = refused.map(drop).unwrap_err().to_string();
    assert!(refused.contains("read-only"), "{refused}");
    lagging.assert_untouched();
}

#[test]
#[ignore = "needs MariaDB"]
fn on_a_replica_that_lags_no_row_is_cleaned_away() {
    let lagging = Lagging::new();
    let proxy = Proxy::new(&lagging.replica.server);
    proxy.hold_answer_to("DELETE FROM `database_lock` WHERE `id`");
    let cleaner = Client::builder(&lagging.replica.url_through(&proxy)).lease(Lagging::T);
    let cleaner = cleaner.clean_interval(Duration::from_millis(100));
    let cleaner = cleaner.connect().unwrap();
    eventually("it cleans", || proxy.is_holding_answer());
    lagging.assert_untouched();
    drop(cleaner);
}

#[test]
#[ignore = "needs MariaDB"]
fn a_release_on_a_replaced_primary_does_not_stop_its_replication() {
    let (primary, replaced) = primary_and_replica_by("ROW");
    let proxy = Proxy::new(&primary.server);
    let ours = client(&primary.url_through(&proxy), seconds(12));
    let guard = ours.mutex("a").unwrap().lock().unwrap();
    eventually("it is replicated", || replaced.try_rows() == Some(1));
    let mut root = replaced.server.root();
    root.query_drop("SET GLOBAL read_only = 1").unwrap();
    proxy.lead_to(&replaced.server);
    proxy.cut();
    proxy.hold_answer_to("DELETE FROM `database_lock` WHERE `lock`");
    drop(guard);
    eventually("it is asked to delete the row", || {
        proxy.is_holding_answer()
    });
    assert_eq!(replaced.rows(), 1);

    proxy.lead_to(&primary.server);
    proxy.cut();
    proxy.release_answer();
    primary.wait_for_rows(0);
    replaced.wait_for_rows(0);
    let status: Row = root.query_first("SHOW SLAVE STATUS").unwrap().unwrap();
    let runs: Option<String> = status.get("Slave_SQL_Running");
    assert_eq!(runs.as_deref(), Some("Yes"));
}

/// The library of Galera's package.
const GALERA: &str = "/usr/lib/galera/libgalera_smm.so";

#[test]
#[ignore = "needs MariaDB and Galera"]
fn a_cluster_that_goes_on_in_two_parts_is_refused() {
    if !Path::new(GALERA).exists() {
        println!("no Galera: install galera-4");
        return;
    }
    // Where the options of Galera are variables of a plugin, as in MariaDB 11, they are set at the start alone.
    for told in ["pc.ignore_sb", "pc.ignore_quorum"] {
        let (database, _) = lone_node(&format!(";{told}=true"));
        let refused = Client::connect(&database.url()).map(drop).unwrap_err();
        assert!(refused.to_string().contains(told), "{refused}");
    }
    let (database, mut root) = lone_node("");
    for off in [
        "wsrep_on = OFF",
        // A node that has lost its cluster, and is made to write all the same.
        "wsrep_on = OFF, GLOBAL wsrep_cluster_address = ''",
    ] {
        client(&database.url(), seconds(20));
        root.query_drop(format!("SET GLOBAL {off}")).unwrap();
        let refused = Client::connect(&database.url()).map(drop).unwrap_err();
        assert!(refused.to_string().contains("wsrep_on"), "{refused}");
        root.query_drop("SET GLOBAL wsrep_on = ON").unwrap();
    }
}

/// Returns the only node of a cluster, with these options of Galera too.
fn lone_node(options: &str) -> (Database, Conn) {
    let port = free_port();
    let server = Server::start(&[
        "--wsrep-on=ON",
        &format!("--wsrep-provider={GALERA}"),
        "--wsrep-cluster-address=gcomm://",
        &format!(
            "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{port};gcache.size=16M{options}"
        ),
        &format!("--wsrep-node-address=127.0.0.1:{port}"),
        "--binlog-format=ROW",
        "--innodb-autoinc-lock-mode=2",
    ]);
    eventually("the node is ready", || is_ready(&server));
    let root = server.root();
    (Database::new_on(server.into()), root)
}

/// Returns whether this node of a cluster takes statements.
fn is_ready(node: &Server) -> bool {
    let ready = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS \
                 WHERE VARIABLE_NAME = 'wsrep_ready'";
    node.root().query_first(ready).unwrap() == Some("ON".to_owned())
}

/// Returns two nodes of one cluster, of which the second alone is a majority; `None` if there is no
/// Galera.
fn pair() -> Option<[Database; 2]> {
    if !Path::new(GALERA).exists() {
        println!("no Galera: install galera-4 and rsync");
        return None;
    }
    let nodes = [(); 2].map(|()| Arc::new(Server::prepare_for_another_user()));
    let mut cluster = "gcomm://".to_owned();
    for (weight, node) in nodes.iter().enumerate() {
        let ports = [(); 3].map(|()| free_port());
        let [group, increments, state] = ports;
        let own = format!("--wsrep-node-address=127.0.0.1:{group}");
        let receive = format!("--wsrep-sst-receive-address=127.0.0.1:{state}");
        let provider = format!(
            "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{group};\
             ist.recv_addr=127.0.0.1:{increments};pc.weight={};gcache.size=16M",
            weight + 1,
        );
        let address = format!("--wsrep-cluster-address={cluster}");
        let user = node.give_up_root();
        node.resume(&[
            &user,
            "--wsrep-on=ON",
            &format!("--wsrep-provider={GALERA}"),
            &address,
            &provider,
            &own,
            &receive,
            "--wsrep-sst-method=rsync",
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
            // The other node keeps the data that one node forgets.
            "--innodb-flush-log-at-trx-commit=0",
        ]);
        cluster = format!("gcomm://127.0.0.1:{group}");
        let ready = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS \
                     WHERE VARIABLE_NAME = 'wsrep_local_state_comment'";
        eventually("the node is synced", || {
            node.root().query_first(ready).unwrap() == Some("Synced".to_owned())
        });
    }
    // The first node was busy with the second, and may refuse statements for a moment.
    eventually("both are ready", || nodes.iter().all(|node| is_ready(node)));
    let [first, second] = nodes;
    let database = Database::empty_on(first);
    database.conn().query_drop(CREATE_TABLE).unwrap();
    let copy = database.on(second);
    eventually("the table is there", || copy.try_rows().is_some());
    Some([database, copy])
}

/// How often each thread takes a lock; of a thousand grants, a node has reported one or two as done
/// that it then undid.
const GRANTS: usize = 800;

#[test]
#[ignore = "needs MariaDB, Galera and rsync"]
fn the_nodes_of_a_cluster_exclude_each_other_and_one_that_fails_does_not_free_a_lock_early() {
    const T: Duration = Duration::from_secs(6);
    let Some(nodes) = pair() else { return };
    let clients = nodes.each_ref().map(|node| client(&node.url(), T));
    let tokens = Mutex::new([0; 3]);
    thread::scope(|scope| {
        for client in &clients {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..GRANTS {
                        let name = fastrand::usize(..3);
                        let mutex = client.mutex(&format!("n{name}")).unwrap();
                        let guard = mutex.lock().unwrap();
                        let token = guard.fencing_token().get();
                        let mut tokens = tokens.lock().unwrap();
                        assert!(tokens[name] < token || !guard.is_valid());
                        tokens[name] = token;
                        drop(tokens);
                        // Not all releases wait for the answer.
                        if fastrand::bool() {
                            drop(guard.unlock());
                        }
                    }
                });
            }
        }
    });
    let [a, b] = clients.map(|client| client.mutex("a").unwrap());
    let guard = a.lock().unwrap();
    assert!(b.try_lock_for(seconds(1)).unwrap().is_none());
    nodes[0].server.kill();
    let waiter = thread::spawn(move || {
        let guard = b.lock().unwrap();
        (Instant::now(), guard.fencing_token())
    });
    while next(&guard) != GuardEvent::Lost {}
    let lost = Instant::now();
    let (taken, token) = waiter.join().unwrap();
    assert!(lost < taken, "taken {:?} too early", lost - taken);
    assert!(guard.fencing_token() < token);
}

#[test]
#[ignore = "needs MariaDB, Galera and rsync"]
fn on_the_nodes_of_a_cluster_each_slot_is_done_once() {
    let Some(nodes) = pair() else { return };
    let clients = nodes.each_ref().map(|node| client(&node.url(), seconds(6)));
    let done = Mutex::new(HashMap::<String, u32>::new());
    let count = |slot: &str| *done.lock().unwrap().entry(slot.to_owned()).or_default() += 1;
    thread::scope(|scope| {
        for client in &clients {
            for _ in 0..2 {
                scope.spawn(|| {
                    let job = client.job("nightly").unwrap();
                    for slot in (0..GRANTS / 4).map(|slot| format!("{slot:06}")) {
                        let ran = job.once(&slot, |run| Ok::<_, ()>(run.attempt()));
                        match ran {
                            Ok(Once::Done(1)) => count(&slot),
                            Ok(Once::DoneBefore(_)) => {}
                            other => panic!("{slot}: {other:?}"),
                        }
                    }
                });
            }
        }
    });
    let done = done.into_inner().unwrap();
    assert!(done.values().all(|times| *times == 1), "{done:?}");
    assert_eq!(done.len(), GRANTS / 4);
}

#[test]
#[ignore = "needs MariaDB, Galera and rsync"]
fn a_client_that_is_led_to_a_node_that_lags_loses_nothing() {
    let Some([first, second]) = pair() else {
        return;
    };
    let proxy = Proxy::new(&first.server);
    let client = client(&first.url_through(&proxy), seconds(20));
    let (mutex, job) = (client.mutex("a").unwrap(), client.job("b").unwrap());
    let lead_to = |node: &Database| {
        proxy.lead_to(&node.server);
        proxy.cut();
    };
    // As during a backup, the second node carries nothing out that the first one commits.
    let lag = || {
        lead_to(&first);
        // This opens the connection again, so that what follows is never in doubt.
        mutex.lock().unwrap().unlock().unwrap();
        first.wait_for_rows(0);
        let mut backup = second.conn();
        let stages = ["START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT"];
        let stages = stages.map(|stage| format!("BACKUP STAGE {stage}"));
        backup.query_drop(stages.join("; ")).unwrap();
        let end = "DO SLEEP(2); BACKUP STAGE END";
        thread::spawn(move || backup.query_drop(end).unwrap())
    };

    let backup = lag();
    let guard = mutex.lock().unwrap();
    lead_to(&second);
    eventually("it is verified", || match guard.verify() {
        Err(error) if error.is_lost() => panic!("{error}"),
        verified => verified.is_ok(),
    });
    backup.join().unwrap();
    guard.unlock().unwrap();

    let backup = lag();
    let guard = mutex.lock().unwrap();
    lead_to(&second);
    guard.unlock().unwrap();
    backup.join().unwrap();
    first.wait_for_rows(0);

    let backup = lag();
    let ran = job.once("a", |_| {
        lead_to(&second);
        Ok::<_, ()>(())
    });
    assert!(matches!(ran, Ok(Once::Done(()))), "{ran:?}");
    backup.join().unwrap();
}
