//! The peers: other libraries in separate processes, controlled by lines of text.
//!
//! ```text
//! to the peer           from the peer
//!                       ready LIBRARY=VERSION..
//! ID lock KIND PATH     ID held NODE            (- where the library hides it)
//!                       ID late                 if the kind has a limit, which has passed
//! ID downgrade          ID held NODE
//! ID release            ID released
//! ID revoke NODE        ID done
//! ID contenders PATH    ID contenders DATA<tab>DATA..
//!                       ID error TEXT           instead of any of these
//!                       ID revoked              unasked, to who holds
//! ```
//!
//! An ID names a contender, which does one thing after the other.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Sender, unbounded};
use parking_lot::Mutex;

use super::contender::{Contender, Said};
use super::libraries::{self, Library};
use crate::support::leash::Leashed;
use crate::support::zookeeper::ZooKeeper;

/// How long the sessions of all contenders last after their death.
pub(crate) const SESSION: Duration = Duration::from_secs(6);

/// How long a peer may take to start and connect.
const START: Duration = Duration::from_secs(60);

/// Returns the server that all contenders use.
pub(crate) fn server() -> &'static ZooKeeper {
    static SERVER: OnceLock<ZooKeeper> = OnceLock::new();
    SERVER.get_or_init(|| {
        // kazoo's semaphore counts empty containers, and so waits until they are deleted.
        let builder = ZooKeeper::builder().container_check(Duration::from_secs(3));
        // The sessions of a slow test last longer than those of the other tests.
        let builder = builder.line("maxSessionTimeout=60000");
        builder.fsync(false).start()
    })
}

type Ears = Arc<Mutex<HashMap<String, Sender<Said>>>>;

/// A process that runs another library; killed when dropped.
#[derive(Debug)]
pub(crate) struct Peer {
    process: Leashed,
    input: Arc<Mutex<ChildStdin>>,
    ears: Ears,
    contenders: AtomicUsize,
    versions: String,
}

impl Peer {
    /// Returns the peer that the tests share, or nothing if its library is not available.
    pub(crate) fn shared(library: Library) -> Option<&'static Self> {
        static SHARED: [OnceLock<Option<Peer>>; 3] = [const { OnceLock::new() }; 3];
        SHARED[library as usize]
            .get_or_init(|| Self::start(library, &server().hosts()))
            .as_ref()
    }

    /// Starts a process with a session of its own.
    pub(crate) fn start(library: Library, hosts: &str) -> Option<Self> {
        Self::start_with(library, hosts, SESSION)
    }

    /// Like [`start`](Self::start), with a session that lasts this long after its death.
    pub(crate) fn start_with(library: Library, hosts: &str, session: Duration) -> Option<Self> {
        let mut command = libraries::command(library)?;
        command
            .args([hosts, &session.as_millis().to_string()])
            .args(libraries::packaged(library))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(libraries::log(library));
        let mut process = Leashed::spawn(&mut command, None).expect("starting a peer");
        let input = process.child().stdin.take().expect("a peer's input");
        let output = process.child().stdout.take().expect("a peer's output");
        let (greet, greeting) = unbounded();
        let ears = Ears::default();
        let all = Arc::clone(&ears);
        thread::spawn(move || listen(output, &greet, &all));
        let versions = greeting
            .recv_timeout(START)
            .unwrap_or_else(|_| panic!("no peer: see {}", libraries::log_path(library).display()));
        Some(Self {
            process,
            input: Arc::new(Mutex::new(input)),
            ears,
            contenders: AtomicUsize::new(0),
            versions,
        })
    }

    /// Returns `LIBRARY=VERSION`, separated by spaces.
    pub(crate) fn versions(&self) -> &str {
        &self.versions
    }

    /// Starts one more contender.
    pub(crate) fn contender(&self) -> Contender {
        let name = self.contenders.fetch_add(1, Ordering::Relaxed).to_string();
        let (say, said) = unbounded();
        self.ears.lock().insert(name.clone(), say);
        let input = Arc::clone(&self.input);
        let tell = move |text: &str| {
            // A peer that was killed receives nothing, as its test expects.
            drop(writeln!(input.lock(), "{name} {text}"));
        };
        Contender::new(Box::new(tell), said)
    }

    /// Kills the process with SIGKILL; its session lasts until it expires.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }
}

fn listen(output: ChildStdout, greet: &Sender<String>, ears: &Ears) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let (name, text) = line.split_once(' ').unwrap_or((&line, ""));
        if name == "ready" {
            drop(greet.send(text.to_owned()));
        } else if let Some(ear) = ears.lock().get(name) {
            drop(ear.send(Said::parse(text)));
        }
    }
    // The contenders of a dead process fall silent.
    ears.lock().clear();
}
