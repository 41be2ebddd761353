//! A real ZooKeeper server, from Debian's package `zookeeper`.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

pub use super::folder::Folder;
use super::leash::Leashed;
use super::raw::Raw;
use super::{free_port, netns, within};

/// The server's jar, one of slf4j's back ends for its log, and the jars for TLS that the manifest
/// does not name; the manifest names the rest.
const DEBIAN: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar:\
    /usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar";

/// The variable that names the jars on other systems.
const CLASSPATH: &str = "ZKLOCK_TEST_CLASSPATH";

/// The variable that names an archive of the classes that a server loads: a start takes a quarter
/// less of the processors with it. Java ignores an archive that does not fit.
pub const ARCHIVE: &str = "ZKLOCK_TEST_ARCHIVE";

/// How long a server may take to start, on a machine with other things to do.
const START: Duration = Duration::from_secs(180);

/// A server in a process of its own, which ends when this is dropped.
#[derive(Debug)]
pub struct ZooKeeper {
    builder: Builder,
    port: u16,
    folder: Folder,
    process: Mutex<Option<Leashed>>,
}

impl ZooKeeper {
    /// Starts a server with ticks of 500 ms, so that sessions may time out after 1 s.
    pub fn start() -> Self {
        Self::builder().start()
    }

    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns the server that the tests of one binary share; leave it running. The parent of all
    /// `fresh_path`s exists, so that no test makes it its own by an access list.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<ZooKeeper> = OnceLock::new();
        SHARED.get_or_init(|| {
            let server = Self::builder().fsync(false).start();
            Raw::connect(&server.hosts()).create_all("/tests");
            server
        })
    }

    /// Returns the address that clients connect to.
    pub fn hosts(&self) -> String {
        format!("{}:{}", self.builder.address, self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&self) {
        if let Some(mut process) = self.process().take() {
            process.kill();
        }
    }

    /// Starts the server again, on the same port and with the same data.
    pub fn restart(&self) {
        self.kill();
        self.spawn();
        if let Err(log) = self.wait_until_ready() {
            panic!("ZooKeeper did not come back:\n{log}");
        }
    }

    /// Starts the server again with this line in its configuration, before all others like it.
    pub fn restart_with(&self, line: &str) {
        self.configure(line);
        self.restart();
    }

    /// Adds a line to the configuration, which applies from the next start on.
    pub fn configure(&self, line: &str) {
        let config = self.folder.path("zoo.cfg");
        let mut text = fs::read_to_string(&config).expect("reading the configuration");
        // Of two lines for the same thing the last one counts.
        text.push_str(line);
        text.push('\n');
        fs::write(&config, text).expect("writing the configuration");
    }

    /// Starts the server again, on the same port, but without any data.
    pub fn restart_empty(&self) {
        self.kill();
        let data = self.folder.path("data");
        fs::remove_dir_all(&data).expect("removing the server's data");
        fs::create_dir_all(&data).expect("making the server's data folder");
        self.restart();
    }

    /// Asks the process to end, with SIGTERM, and waits until it has ended.
    pub fn terminate(&self) {
        self.signal("TERM");
        super::eventually("the server has ended", || self.has_ended());
    }

    /// Stops the process with SIGSTOP: connections stay open, nothing is answered.
    pub fn pause(&self) {
        if let Some(process) = &*self.process() {
            process.pause();
        }
    }

    /// Continues a paused server.
    pub fn resume(&self) {
        // If the server has ended, the call that needs it reports that.
        if self.is_running() {
            self.signal("CONT");
        }
    }

    fn signal(&self, name: &str) {
        if let Some(process) = &*self.process() {
            process.signal(name);
        }
    }

    /// Returns the answer to one of ZooKeeper's four letter words.
    pub fn four_letter(&self, word: &str) -> io::Result<String> {
        let address = SocketAddr::from((self.builder.address, self.port));
        let mut socket = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        socket.write_all(word.as_bytes())?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Returns a number from the table of `mntr`, such as `zk_watch_count`.
    pub fn monitor(&self, name: &str) -> Option<i64> {
        let table = self.four_letter("mntr").ok()?;
        table.lines().find_map(|line| {
            let (key, value) = line.split_once('\t')?;
            (key == name).then(|| value.trim().parse().ok())?
        })
    }

    /// Starts a server in `folder` without waiting for it; see [`Builder`].
    pub(crate) fn launch(builder: Builder, port: u16, folder: Folder) -> Self {
        let server = Self {
            builder,
            port,
            folder,
            process: Mutex::new(None),
        };
        server.write_config();
        server.spawn();
        server
    }

    pub(crate) fn spawn(&self) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.path("log"))
            .expect("opening the server's log");
        let mut java = match &self.builder.namespace {
            Some(namespace) => netns::command(namespace, "java"),
            None => Command::new("java"),
        };
        java.envs(self.builder.environment.iter().cloned());
        java.args(["-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .args(["-XX:-UsePerfData", "-Dzookeeper.admin.enableServer=false"])
            .arg("-Dzookeeper.4lw.commands.whitelist=*")
            .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
            .args(&self.builder.options)
            .args(from_the_archive())
            .arg("-cp")
            .arg(env::var(CLASSPATH).unwrap_or_else(|_| DEBIAN.to_owned()))
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(self.folder.path("zoo.cfg"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("sharing the server's log"))
            .stderr(log);
        let process = Leashed::spawn(&mut java, Some(&self.folder.0))
            .expect("starting java: install default-jre-headless and zookeeper");
        *self.process() = Some(process);
    }

    /// Returns the log if the server has ended, as it does if its port was taken.
    #[track_caller]
    pub(crate) fn wait_until_ready(&self) -> Result<(), String> {
        let ready = within(START, || self.has_ended() || self.is_ready());
        assert!(ready, "ZooKeeper is not ready in time:\n{}", self.log());
        match self.has_ended() {
            true => Err(self.log()),
            false => Ok(()),
        }
    }

    /// Returns the whole log of the server, over all its restarts.
    pub fn whole_log(&self) -> String {
        let log = fs::read(self.folder.path("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Returns the beginning of the log, where the first trouble is.
    fn log(&self) -> String {
        let log = self.whole_log();
        let lines: Vec<_> = log.lines().take(40).collect();
        lines.join("\n")
    }

    fn is_ready(&self) -> bool {
        // Another server may have taken this port: look for this server's own folder.
        let ours = self.folder.0.to_string_lossy();
        let config = self.four_letter("conf").unwrap_or_default();
        config.contains(&*ours) && self.four_letter("srvr").is_ok_and(|s| s.contains("Mode:"))
    }

    pub(crate) fn is_running(&self) -> bool {
        !self.has_ended()
    }

    fn has_ended(&self) -> bool {
        self.process()
            .as_mut()
            .is_none_or(|process| process.ended().is_some())
    }

    fn process(&self) -> MutexGuard<'_, Option<Leashed>> {
        // A test that panicked while it held this lock must still stop its server.
        self.process
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns the folder of the server's transaction logs.
    pub fn logs(&self) -> PathBuf {
        self.folder.path("data/version-2")
    }

    fn write_config(&self) {
        let Self { builder, port, .. } = self;
        let text = format!(
            "tickTime={}\ndataDir={}\nclientPort={port}\nclientPortAddress={}\n\
             maxClientCnxns=0\ninitLimit=20\nsyncLimit=10\n{}\n",
            builder.tick.as_millis(),
            self.folder.path("data").display(),
            builder.address,
            builder.lines.join("\n"),
        );
        fs::create_dir_all(self.folder.path("data")).expect("making the server's data folder");
        fs::write(self.folder.path("zoo.cfg"), text).expect("writing the server's configuration");
    }
}

impl Drop for ZooKeeper {
    fn drop(&mut self) {
        // Before the folder goes, so that the server never writes into a missing folder.
        self.kill();
    }
}

/// Returns the options with which Java takes the classes from the archive, if there is one.
fn from_the_archive() -> Vec<String> {
    let archive = env::var(ARCHIVE).unwrap_or_default();
    if !Path::new(&archive).is_file() {
        return Vec::new();
    }
    let archive = format!("-XX:SharedArchiveFile={archive}");
    // Java says nothing about an archive that does not fit.
    [&archive, "-Xshare:auto", "-Xlog:cds*=off"]
        .map(str::to_owned)
        .into()
}

/// The settings with which a server is started.
#[derive(Clone, Debug)]
pub struct Builder {
    tick: Duration,
    lines: Vec<String>,
    options: Vec<String>,
    environment: Vec<(String, String)>,
    address: Ipv4Addr,
    namespace: Option<String>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            tick: Duration::from_millis(500),
            lines: Vec::new(),
            options: Vec::new(),
            environment: Vec::new(),
            address: Ipv4Addr::LOCALHOST,
            namespace: None,
        }
    }
}

impl Builder {
    /// Sets the server's unit of time; a session lasts 2 to 20 of them.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Sets whether every commit waits for the disk, as it does by default.
    pub fn fsync(self, fsync: bool) -> Self {
        if fsync {
            return self;
        }
        self.property("zookeeper.forceSync", "no")
    }

    /// Sets how often the server looks for empty containers, and how many it deletes then.
    pub fn container_check(self, every: Duration) -> Self {
        self.property(
            "znode.container.checkIntervalMs",
            &every.as_millis().to_string(),
        )
        .property("znode.container.maxPerMinute", "100000")
    }

    /// Runs the server in a network namespace, where it has this address.
    pub(crate) fn inside(mut self, namespace: String, address: Ipv4Addr) -> Self {
        self.namespace = Some(namespace);
        self.address = address;
        self
    }

    /// Adds a line to the server's configuration file.
    pub fn line(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    pub(crate) fn has_line(&self, line: &str) -> bool {
        self.lines.iter().any(|known| known == line)
    }

    /// Sets a Java system property.
    pub fn property(self, name: &str, value: &str) -> Self {
        self.option(format!("-D{name}={value}"))
    }

    /// Adds an option of the Java virtual machine.
    pub fn option(mut self, option: String) -> Self {
        self.options.push(option);
        self
    }

    /// Sets environment variables of the server's process.
    pub fn environment(mut self, variables: Vec<(String, String)>) -> Self {
        self.environment = variables;
        self
    }

    pub fn start(self) -> ZooKeeper {
        let mut log = String::new();
        // Between the choice of a port and its use, another process may take it.
        for _ in 0..5 {
            let server = ZooKeeper::launch(self.clone(), free_port(), Folder::new());
            match server.wait_until_ready() {
                Ok(()) => return server,
                Err(said) => log = said,
            }
        }
        panic!("ZooKeeper does not start:\n{log}");
    }
}
