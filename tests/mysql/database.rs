//! A MariaDB of the tests' own, and a proxy in front of it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;
use mysql::{Conn, Opts, OptsBuilder, Pool, PoolConstraints, PoolOpts};

use crate::support::{eventually, free_port, run};

/// Shows what the library logs, if `ZKLOCK_TEST_LOG` is set.
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

/// Kills a process when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server with a data folder and a port of its own.
pub(crate) struct Server {
    folder: PathBuf,
    pub(crate) port: u16,
    /// What is in its environment besides.
    environment: Vec<(&'static str, PathBuf)>,
    process: Mutex<Option<Killed>>,
}

static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
static DATABASES: AtomicU32 = AtomicU32::new(0);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// The server that tests share while there are some that use it.
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

    /// A server with data, and this in its environment, that has not started yet.
    pub(crate) fn prepare(environment: Vec<(&'static str, PathBuf)>) -> Self {
        let port = free_port();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mariadb-{port}"));
        Self::prepare_in(folder, port, environment)
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

    /// Kills the server as a crash does.
    pub(crate) fn kill(&self) {
        *locked(&self.process) = None;
    }

    /// Starts it again over its data.
    pub(crate) fn resume(&self, options: &[&str]) {
        let process = mariadb(&self.folder)
            .arg(format!("--socket={}/socket", self.folder.display()))
            .arg(format!("--port={}", self.port))
            .arg("--bind-address=127.0.0.1")
            // Of two users the first one counts.
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

    /// Hands the data over to the user of MariaDB's package; returns the option for it.
    ///
    /// What copies data between the nodes of a cluster does not work as root.
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
        format!("mysql://{user}@127.0.0.1:{port}/{database}?prefer_socket=false")
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
        .args(["--innodb-log-file-size=8M", "--skip-name-resolve"])
        // The tests run side by side, each with clients of its own.
        .arg("--max-connections=1000")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Who we are; MariaDB wants to hear it if that is root.
fn user() -> String {
    let user = Command::new("id").arg("-un").output().expect("id");
    String::from_utf8_lossy(&user.stdout).trim().to_owned()
}

/// Making a data folder takes seconds, so it is made once and copied.
fn copy_template(to: &Path) {
    static INSTALL: Mutex<()> = Mutex::new(());
    let _one = locked(&INSTALL);
    let template = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mariadb-template");
    let done = template.join("installed");
    if !done.exists() {
        let _ = std::fs::remove_dir_all(&template);
        let status = Command::new("mariadb-install-db")
            .args(["--no-defaults", "--skip-test-db"])
            .arg(format!("--user={}", user()))
            .arg("--auth-root-authentication-method=normal")
            .arg("--innodb-log-file-size=8M")
            .arg(format!("--datadir={}", template.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(status.expect("mariadb-install-db").success());
        std::fs::write(done, "").expect("a mark");
    }
    let status = Command::new("cp").arg("-r").arg(&template).arg(to).status();
    assert!(status.expect("cp").success());
}

pub(crate) fn opts(url: &str) -> Opts {
    Opts::from_url(url).expect("a good URL")
}

/// A database of one test, with the tables in it.
pub(crate) struct Database {
    pub(crate) server: Arc<Server>,
    pub(crate) name: String,
}

impl Database {
    pub(crate) fn new() -> Self {
        let database = Self::empty_on(Server::shared());
        database
            .conn()
            .query_drop(zklock::mysql::CREATE_TABLE)
            .expect("tables");
        database
    }

    /// The same database on a copy of its server.
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

    /// The URL of something on this port that passes on what it gets.
    pub(crate) fn url_by(&self, port: u16) -> String {
        self.url()
            .replace(&self.server.port.to_string(), &port.to_string())
    }

    /// A connection as some other program has it.
    pub(crate) fn conn(&self) -> Conn {
        Conn::new(opts(&self.url())).expect("a connection")
    }

    /// A pool without timeouts, whose sessions run a statement first.
    pub(crate) fn pool(url: &str, init: &str) -> Pool {
        let constraints = PoolConstraints::new(0, 10).expect("good constraints");
        let opts = OptsBuilder::from_opts(opts(url))
            .init(vec![init.to_owned()])
            .pool_opts(PoolOpts::new().with_constraints(constraints));
        Pool::new(opts).expect("a pool")
    }

    /// The number of rows, if the table is there.
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

    /// Waits for deletions that are under way.
    pub(crate) fn wait_for_rows(&self, rows: u64) {
        eventually("the rows are as expected", || self.rows() == rows);
    }
}

/// Passes bytes on, or doesn't.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    rules: Arc<Mutex<Rules>>,
}

#[derive(Default)]
struct Rules {
    /// The port of the server.
    to: u16,
    blackhole: bool,
    closed: bool,
    /// After this text the answer is swallowed, and the connection cut.
    swallow_after: Option<&'static str>,
    /// A statement with this text is answered with this error, and not passed on.
    refuse: Option<(&'static str, u16)>,
    /// A statement with this text is held back.
    hold: Option<&'static str>,
    /// What follows a statement with this text on its connection is held back.
    hold_after: Option<&'static str>,
    holding: bool,
    open: Vec<TcpStream>,
}

impl Proxy {
    pub(crate) fn new(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let rules = Arc::new(Mutex::new(Rules::default()));
        locked(&rules).to = server.port;
        let shared = rules.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if locked(&shared).closed {
                    break;
                }
                let to = locked(&shared).to;
                // A server that is down is a connection that ends at once.
                if let Ok(server) = TcpStream::connect(("127.0.0.1", to)) {
                    connect(&client, &server, &shared);
                }
            }
        });
        Self { port, rules }
    }

    /// From now on new connections lead to this server.
    pub(crate) fn lead_to(&self, server: &Server) {
        locked(&self.rules).to = server.port;
    }

    /// From now on nothing gets through; or it does again, with what was sent meanwhile.
    pub(crate) fn blackhole(&self, on: bool) {
        locked(&self.rules).blackhole = on;
    }

    /// Cuts all connections.
    pub(crate) fn cut(&self) {
        for stream in locked(&self.rules).open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// The next statement with this text is carried out, and its answer lost.
    pub(crate) fn swallow_answer_to(&self, text: &'static str) {
        locked(&self.rules).swallow_after = Some(text);
    }

    /// The next statement with this text is answered with an error of this code, as by a proxy.
    pub(crate) fn refuse(&self, text: &'static str, code: u16) {
        locked(&self.rules).refuse = Some((text, code));
    }

    pub(crate) fn has_refused(&self) -> bool {
        locked(&self.rules).refuse.is_none()
    }

    /// The next statement with this text waits for [`release`](Self::release).
    pub(crate) fn hold(&self, text: &'static str) {
        locked(&self.rules).hold = Some(text);
    }

    /// What follows the next statement with this text on its connection waits for
    /// [`release`](Self::release).
    pub(crate) fn hold_after(&self, text: &'static str) {
        locked(&self.rules).hold_after = Some(text);
    }

    pub(crate) fn is_holding(&self) -> bool {
        locked(&self.rules).holding
    }

    pub(crate) fn release(&self) {
        let mut rules = locked(&self.rules);
        (rules.hold, rules.hold_after, rules.holding) = (None, None, false);
    }

    pub(crate) fn has_swallowed(&self) -> bool {
        locked(&self.rules).swallow_after.is_none()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        locked(&self.rules).closed = true;
        self.blackhole(false);
        self.release();
        self.cut();
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn connect(client: &TcpStream, server: &TcpStream, rules: &Arc<Mutex<Rules>>) {
    let copy = |stream: &TcpStream| stream.try_clone().expect("a copy");
    for stream in [client, server] {
        stream.set_nodelay(true).expect("no delay");
        locked(rules).open.push(copy(stream));
    }
    let swallow = Arc::new(Mutex::new(false));
    for (from, to, is_request) in [(client, server, true), (server, client, false)] {
        let (from, to, rules, swallow) = (copy(from), copy(to), rules.clone(), swallow.clone());
        thread::spawn(move || pump(from, to, is_request, &rules, &swallow));
    }
}

fn pump(
    mut from: TcpStream,
    mut to: TcpStream,
    is_request: bool,
    rules: &Mutex<Rules>,
    swallow: &Mutex<bool>,
) {
    let mut buffer = [0; 65536];
    let mut hold_next = false;
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let bytes = &buffer[..length];
        let sent = String::from_utf8_lossy(bytes);
        let is_in = |text: Option<&str>| is_request && text.is_some_and(|text| sent.contains(text));
        {
            let mut rules = locked(rules);
            if is_in(rules.hold) {
                (rules.hold, hold_next) = (None, true);
            }
            rules.holding |= hold_next;
        }
        while hold_next && locked(rules).holding {
            thread::sleep(Duration::from_millis(5));
        }
        hold_next = false;
        let refused = locked(rules).refuse.take_if(|(text, _)| is_in(Some(text)));
        if let Some((_, code)) = refused {
            if from.write_all(&error_packet(code)).is_err() {
                break;
            }
            continue;
        }
        // As in TCP, what was sent arrives when the network is back.
        while locked(rules).blackhole {
            thread::sleep(Duration::from_millis(5));
        }
        {
            let mut rules = locked(rules);
            if is_in(rules.swallow_after) {
                rules.swallow_after = None;
                *locked(swallow) = true;
            }
            if is_in(rules.hold_after) {
                (rules.hold_after, hold_next) = (None, true);
            }
        }
        if !is_request && *locked(swallow) {
            break;
        }
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// The answer to the first packet of a request.
fn error_packet(code: u16) -> Vec<u8> {
    let text = b"#HY000refused by the test";
    let length = u8::try_from(3 + text.len()).expect("a short text");
    let [low, high] = code.to_le_bytes();
    [&[length, 0, 0, 1, 0xff, low, high], &text[..]].concat()
}
