//! A MariaDB that the tests start themselves.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;
use mysql::{Conn, Opts, OptsBuilder, Pool, PoolConstraints, PoolOpts};
use rustix::fs::{FlockOperation, flock};

use crate::proxy::Proxy;
use crate::support::{eventually, free_port, run};

/// A logger that shows the library's log, if `ZKLOCK_TEST_LOG` is set.
struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let now = Instant::now();
        eprintln!("{now:?} {} {}", record.target(), record.args());
    }

    fn flush(&self) {}
}

fn log_if_asked() {
    if std::env::var_os("ZKLOCK_TEST_LOG").is_some() && log::set_logger(&Logger).is_ok() {
        log::set_max_level(log::LevelFilter::Debug);
    }
}

/// A process that is killed on drop.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server with its own data folder and port.
pub(crate) struct Server {
    folder: PathBuf,
    pub(crate) port: u16,
    /// Additional variables in the server's environment.
    environment: Vec<(&'static str, PathBuf)>,
    process: Mutex<Option<Killed>>,
}

static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
static DATABASES: AtomicU32 = AtomicU32::new(0);

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Returns the server that tests share, which runs as long as some use it.
    pub(crate) fn shared() -> Arc<Self> {
        log_if_asked();
        let mut shared = locked(&SHARED);
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Self::start(&[]));
            *shared = Arc::downgrade(&server);
            server
        })
    }

    pub(crate) fn start(options: &[&str]) -> Self {
        let server = Self::prepare(Vec::new());
        server.resume(options);
        server
    }

    /// Returns a server with data and these variables, not started yet.
    pub(crate) fn prepare(environment: Vec<(&'static str, PathBuf)>) -> Self {
        let port = free_port();
        // Other namespaces have the same ports.
        let name = format!("mariadb-{}-{port}", process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        Self::prepare_in(folder, port, environment)
    }

    /// As [`prepare`](Self::prepare), for a server that another user runs: the compiled programs
    /// may be below a folder that only root can enter, such as its home.
    pub(crate) fn prepare_for_another_user() -> Self {
        let port = free_port();
        let folder = std::env::temp_dir().join(format!("zklock-mariadb-{port}"));
        Self::prepare_in(folder, port, Vec::new())
    }

    pub(crate) fn prepare_in(
        folder: PathBuf,
        port: u16,
        environment: Vec<(&'static str, PathBuf)>,
    ) -> Self {
        copy_template(&folder);
        Self {
            folder,
            port,
            environment,
            process: Mutex::new(None),
        }
    }

    /// Kills the server as a crash would.
    pub(crate) fn kill(&self) {
        *locked(&self.process) = None;
    }

    /// Starts the server again with its data.
    pub(crate) fn resume(&self, options: &[&str]) {
        let process = mariadb(&self.folder)
            .arg(format!("--socket={}/socket", self.folder.display()))
            .arg(format!("--port={}", self.port))
            .arg("--bind-address=127.0.0.1")
            // If two users are given, the first one counts.
            .args(options)
            .arg(format!("--user={}", user()))
            .envs(self.environment.iter().cloned())
            .spawn()
            .expect("mariadbd starts");
        *locked(&self.process) = Some(Killed(process));
        let deadline = Instant::now() + Duration::from_secs(60);
        while let Err(error) = Conn::new(opts(&self.url("root", ""))) {
            let log = || std::fs::read_to_string(self.folder.join("error.log"));
            assert!(
                Instant::now() < deadline,
                "MariaDB does not come up: {error}; {:?}",
                log()
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn root(&self) -> Conn {
        Conn::new(opts(&self.url("root", ""))).expect("a connection")
    }

    /// Gives the data to the user of MariaDB's package; returns the option for it.
    ///
    /// Copying data between the nodes of a cluster does not work as root.
    pub(crate) fn give_up_root(&self) -> String {
        let user = user();
        if user != "root" {
            return format!("--user={user}");
        }
        run(Command::new("chown")
            .args(["-R", "mysql"])
            .arg(&self.folder));
        "--user=mysql".to_owned()
    }

    fn url(&self, user: &str, database: &str) -> String {
        let port = self.port;
        // The default must be given, so that other options can follow it.
        format!("mysql://{user}@127.0.0.1:{port}/{database}?stmt_cache_size=32")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn mariadb(folder: &Path) -> Command {
    let mut command = Command::new("mariadbd");
    command
        .arg("--no-defaults")
        .arg(format!("--datadir={}", folder.display()))
        .arg(format!("--pid-file={}/pid", folder.display()))
        .arg(format!("--log-error={}/error.log", folder.display()))
        // A server that starts deletes the temporary tables of other servers in the same folder.
        .arg(format!("--tmpdir={}", folder.display()))
        .args(["--innodb-log-file-size=8M", "--skip-name-resolve"])
        // The tests run side by side, each with its own clients.
        .arg("--max-connections=1000")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Returns the user of this process; MariaDB needs an option if that is root.
fn user() -> String {
    let user = Command::new("id").arg("-un").output().expect("id");
    String::from_utf8_lossy(&user.stdout).trim().to_owned()
}

/// Copies a data folder: creating one takes seconds, so one is created once.
fn copy_template(to: &Path) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // A test in a namespace of its own is a process of its own.
    let lock = File::create(folder.join("mariadb-template.lock")).expect("a lock file");
    flock(&lock, FlockOperation::LockExclusive).expect("the only one");
    let template = folder.join("mariadb-template");
    let done = template.join("installed");
    if !done.exists() {
        let _ = std::fs::remove_dir_all(&template);
        let status = Command::new("mariadb-install-db")
            .args(["--no-defaults", "--skip-test-db"])
            .arg(format!("--user={}", user()))
            .arg("--auth-root-authentication-method=normal")
            .arg("--innodb-log-file-size=8M")
            .arg(format!("--datadir={}", template.display()))
            .arg(format!("--tmpdir={}", template.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(status.expect("mariadb-install-db").success());
        std::fs::write(done, "").expect("a mark");
    }
    let status = Command::new("cp").arg("-r").arg(&template).arg(to).status();
    assert!(status.expect("cp").success());
}

/// Returns the options for a test's own connections, which stay with the address, as the library's
/// do.
pub(crate) fn opts(url: &str) -> Opts {
    let opts = Opts::from_url(url).expect("a good URL");
    OptsBuilder::from_opts(opts).prefer_socket(false).into()
}

/// A database of one test, with the tables in it.
pub(crate) struct Database {
    pub(crate) server: Arc<Server>,
    pub(crate) name: String,
}

impl Database {
    pub(crate) fn new() -> Self {
        Self::new_on(Server::shared())
    }

    /// Returns a database with the tables on a server that no other test uses.
    pub(crate) fn new_alone() -> Self {
        Self::new_on(Arc::new(Server::start(&[])))
    }

    pub(crate) fn new_on(server: Arc<Server>) -> Self {
        let database = Self::empty_on(server);
        let made = database.conn().query_drop(zklock::mysql::CREATE_TABLE);
        made.expect("tables");
        database
    }

    /// Returns the same database on a copy of its server.
    pub(crate) fn on(&self, server: Arc<Server>) -> Self {
        let name = self.name.clone();
        Self { server, name }
    }

    pub(crate) fn empty_on(server: Arc<Server>) -> Self {
        let name = format!("t{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        let mut conn = Conn::new(opts(&server.url("root", ""))).expect("a connection");
        conn.query_drop(format!("CREATE DATABASE {name}"))
            .expect("a database");
        Self { server, name }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url("root", &self.name)
    }

    pub(crate) fn url_of(&self, user: &str) -> String {
        self.server.url(user, &self.name)
    }

    pub(crate) fn url_through(&self, proxy: &Proxy) -> String {
        self.url_by(proxy.port)
    }

    /// Returns the URL of a relay at this port.
    pub(crate) fn url_by(&self, port: u16) -> String {
        self.url()
            .replace(&self.server.port.to_string(), &port.to_string())
    }

    /// Returns a connection like that of another program.
    pub(crate) fn conn(&self) -> Conn {
        Conn::new(opts(&self.url())).expect("a connection")
    }

    /// Returns a pool without timeouts, whose sessions run a statement first.
    pub(crate) fn pool(url: &str, init: &str) -> Pool {
        let constraints = PoolConstraints::new(0, 10).expect("good constraints");
        let opts = OptsBuilder::from_opts(opts(url))
            .init(vec![init.to_owned()])
            .pool_opts(PoolOpts::new().with_constraints(constraints));
        Pool::new(opts).expect("a pool")
    }

    /// Returns the number of rows, if the table exists.
    pub(crate) fn try_rows(&self) -> Option<u64> {
        let mut conn = Conn::new(opts(&self.url())).ok()?;
        conn.query_first("SELECT COUNT(*) FROM database_lock")
            .ok()?
    }

    pub(crate) fn rows(&self) -> u64 {
        let rows = self
            .conn()
            .query_first("SELECT COUNT(*) FROM database_lock");
        rows.expect("an answer").expect("a row")
    }

    /// Waits until this many rows are left.
    pub(crate) fn wait_for_rows(&self, rows: u64) {
        eventually("the rows are as expected", || self.rows() == rows);
    }
}

/// Returns how many connections there are to the database of this one, itself included.
pub(crate) fn connections(conn: &mut Conn) -> u64 {
    let all = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE()";
    conn.query_first(all).unwrap().expect("a count")
}
