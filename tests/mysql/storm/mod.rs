//! Clients that share names and connections while the server, the network and the rows break.
//!
//! Each thread writes a history, which the checker of the chaos tests judges.

mod judge;
mod trouble;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use mysql::prelude::Queryable;
use mysql::{Conn, OptsBuilder, Pool, PoolConstraints, PoolOpts};
use zklock::mysql::{CREATE_TABLE, Client};

use self::judge::{judge, most_connections, write};
use crate::bounds::MOST;

use crate::database::{Database, Server, opts};
use crate::history::{Journal, NOBODY};
use crate::relay::{CUTS, Relay};
use crate::support::Ends;
use crate::support::zookeeper::Folder;

const CLIENTS: usize = 4;
const THREADS: usize = 6;
const NAMES: usize = 8;
const T: Duration = Duration::from_secs(2);

/// The state that the threads of a run share.
struct Storm {
    database: Database,
    folder: Folder,
    /// How many acquisitions there must be, and how many there were.
    wanted: u64,
    acquired: AtomicU64,
    is_over: AtomicBool,
}

impl Storm {
    fn new(wanted: u64) -> Self {
        let database = Database::empty_on(Arc::new(Server::start(trouble::OPTIONS)));
        let mut root = database.conn();
        root.query_drop(CREATE_TABLE).unwrap();
        let app = "CREATE TABLE app (client INT, number INT, PRIMARY KEY (client, number))";
        root.query_drop(app).unwrap();
        for client in 0..CLIENTS {
            let user = user(client);
            // These users cannot write while the server is read-only.
            let grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON *.* TO";
            let create = format!("CREATE USER {user}@'%'; {grant} {user}@'%'");
            root.query_drop(create).unwrap();
        }
        Self {
            database,
            folder: Folder::new(),
            wanted,
            acquired: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn has_enough(&self) -> bool {
        self.wanted <= self.acquired.load(Ordering::Relaxed)
    }

    /// Returns a connection of another program, if the server is up.
    fn conn(&self) -> Option<Conn> {
        let opts = OptsBuilder::from_opts(opts(&self.database.url()));
        let opts = opts.init(vec![
            "SET innodb_lock_wait_timeout = 1, lock_wait_timeout = 2",
        ]);
        Conn::new(opts).ok()
    }

    fn journal(&self, name: &str) -> Journal {
        Journal::open(&self.folder.path(format!("{name}.history")), NOBODY)
    }
}

fn user(client: usize) -> String {
    format!("client{client}")
}

/// The way of one client to the server.
enum Way {
    Url(String),
    /// A pool that an application also uses.
    Pool(Pool),
}

impl Way {
    fn new(storm: &Storm, client: usize, relay: &Relay) -> Self {
        let port = storm.database.server.port.to_string();
        let url = storm.database.url_of(&user(client));
        let url = url.replace(&port, &relay.port.to_string());
        if client % 2 == 0 {
            return Self::Url(url);
        }
        let pool = PoolOpts::new()
            .with_reset_connection(client % 4 == 1)
            .with_constraints(PoolConstraints::new(0, 30).unwrap());
        let limit = Some(Duration::from_secs(2));
        let opts = OptsBuilder::from_opts(opts(&url))
            .tcp_connect_timeout(limit)
            .read_timeout(limit)
            .write_timeout(limit)
            .pool_opts(pool);
        Self::Pool(Pool::new(opts).unwrap())
    }

    fn connect(&self) -> zklock::Result<Client> {
        let builder = match self {
            Self::Url(url) => Client::builder(url),
            Self::Pool(pool) => Client::builder_from_pool(pool.clone()),
        };
        builder
            .lease(T)
            .poll_interval(Duration::from_millis(1), Duration::from_millis(30))
            .connect()
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn all_is_kept_whatever_is_cut_killed_stalled_locked_or_restarted() {
    // A longer run has more.
    let wanted = std::env::var("ZKLOCK_TEST_ACQUISITIONS");
    let wanted = wanted.map_or(200, |wanted| wanted.parse().expect("a number"));
    let storm = &Storm::new(wanted);
    let cut = |_| (fastrand::u16(..) < 400).then(|| CUTS[fastrand::usize(..3)]);
    let relays = &[(); CLIENTS].map(|()| Relay::new(storm.database.server.port, cut));
    let (written, connections) = thread::scope(|scope| {
        scope.spawn(|| trouble::lock_and_kill(storm));
        scope.spawn(|| trouble::change_the_server(storm));
        scope.spawn(|| trouble::stall(storm, relays));
        let connections = scope.spawn(|| most_connections(storm, relays));
        let ends = Ends(&storm.is_over);
        let written: Vec<_> = thread::scope(|scope| {
            let ways = (0..CLIENTS).map(|client| Way::new(storm, client, &relays[client]));
            let ways: Vec<_> = ways.collect();
            let mut writers = Vec::new();
            for (client, way) in ways.into_iter().enumerate() {
                if let Way::Pool(pool) = &way {
                    let pool = pool.clone();
                    writers.push(scope.spawn(move || write(storm, client, &pool)));
                }
                scope.spawn(move || work::lives(storm, client, &way));
            }
            let written = writers.into_iter().map(|writer| writer.join().unwrap());
            written.collect()
        });
        drop(ends);
        (written, connections.join().unwrap())
    });
    let summary = judge(storm, &written);
    println!("{summary:?}\nconnections {connections:?}");
    for (client, most) in connections.into_iter().enumerate() {
        // In a pool, two lives of a client and the application can meet.
        let bound = if client % 2 == 0 { MOST } else { 2 * MOST + 1 };
        assert!(most <= bound, "client {client} had {most} connections");
    }
}
