//! One run: a cluster in a box, client processes, a store, and the verbs that break them.
//!
//! Where network namespaces are available, each server and each client process has its own, and
//! links can be cut one by one. Elsewhere all processes share the loopback interface, and the
//! faults are those of processes alone.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::checker::{Rules, Summary, check};
use crate::history::{self, Entry, Journal, NOBODY, Process, What};
use crate::judge::judge;
use crate::ops::TIMEOUT;
use crate::store;
use crate::stuck::describe;
use crate::support::ensemble::Ensemble;
use crate::support::netns::{self, Network};
use crate::support::raw::Raw;
use crate::support::worker::{self, Worker};
use crate::support::zookeeper::{Builder, Folder, ZooKeeper};
use crate::support::{eventually, within};
use crate::witness::Witness;
use crate::workload::{
    QUIT, REST, RESTING, ROOT, STOP, THREADS, Task, worker_that_takes_locks_of_every_kind,
};

/// The number of servers, which are the first members of a network.
pub(crate) const SERVERS: usize = 3;

/// How long the processes may take to end after everything has been mended.
const DRAIN: Duration = Duration::from_secs(90);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) name: String,
    pub(crate) ensemble: Ensemble,
    pub(crate) timeout: Duration,
    pub(crate) seed: u64,
    pub(crate) faults: usize,
    pub(crate) journal: Arc<Journal>,
    /// The variables that client processes find in their environment.
    pub(crate) environment: Vec<(String, String)>,
    clients: BTreeMap<usize, Client>,
    witness: Option<Witness>,
    folder: Folder,
    /// The network, which is dropped last, when nobody uses it any more.
    pub(crate) network: Option<Network>,
}

#[derive(Debug)]
struct Client {
    worker: Worker,
    who: Process,
    paused: bool,
    work: Work,
}

/// The work of a client process, and of any process that replaces it.
#[derive(Clone, Debug)]
struct Work {
    start: fn(Command, &str) -> Worker,
    more: Vec<String>,
}

impl Run {
    /// Starts an ensemble with ticks of 500 ms, for sessions that last this long.
    pub(crate) fn start(name: &str, timeout: Duration, network: Option<Network>) -> Self {
        let builder = ZooKeeper::builder().fsync(false);
        Self::start_with(name, timeout, network, &builder)
    }

    pub(crate) fn start_with(
        name: &str,
        timeout: Duration,
        network: Option<Network>,
        builder: &Builder,
    ) -> Self {
        // A leader with a gap in its log would otherwise pass the gap on: ZOOKEEPER-2846.
        let builder = &builder
            .clone()
            .property("zookeeper.snapshotSizeFactor", "-1");
        let ensemble = match &network {
            Some(network) => Ensemble::start_inside(network, builder),
            None => Ensemble::start_with(builder),
        };
        let folder = Folder::new();
        fs::create_dir_all(folder.path(".")).expect("a folder for history");
        let journal = Arc::new(Journal::open(&folder.path("chaos.history"), NOBODY));
        let stores = Arc::new(Journal::open(&folder.path("store.history"), NOBODY));
        store::open(&folder.path("store"), stores);
        let seed = number("ZKLOCK_CHAOS_SEED").unwrap_or_else(|| fastrand::u64(..1_000_000));
        println!("{name}: seed {seed}");
        Self {
            name: name.to_owned(),
            ensemble,
            network,
            timeout,
            seed,
            faults: 0,
            journal,
            environment: Vec::new(),
            clients: BTreeMap::new(),
            witness: None,
            folder,
        }
    }

    /// Starts to watch whether the servers lose committed data.
    pub(crate) fn is_witnessed(&mut self) {
        self.witness = Some(Witness::start(self.ensemble.hosts()));
    }

    /// Returns what the servers themselves have done wrong, after all is mended.
    pub(crate) fn unsound(&self) -> Option<String> {
        let lost = || self.witness.as_ref()?.lost();
        self.divergence().or_else(lost)
    }

    /// Starts this many client processes and waits until they are connected.
    pub(crate) fn staff(&mut self, clients: usize) {
        for slot in 0..clients {
            self.hire(
                Process { slot, life: 0 },
                worker_that_takes_locks_of_every_kind,
                &[],
            );
        }
        for client in self.clients.values() {
            client.worker.expect("ready");
        }
    }

    /// Starts a client process: this worker, which receives its task and these words.
    pub(crate) fn hire<W: Fn()>(&mut self, who: Process, _: W, more: &[&str]) {
        let work = Work {
            start: Worker::start::<W>,
            more: more.iter().map(|word| (*word).to_owned()).collect(),
        };
        self.employ(who, work);
    }

    fn employ(&mut self, who: Process, work: Work) {
        let mut input = self.task(who).to_input();
        for word in &work.more {
            input = format!("{input} {word}");
        }
        let mut command = worker::itself();
        if let Some(network) = &self.network {
            let binary = command.get_program().to_str().expect("a name in UTF-8");
            command = netns::command(network.namespace(self.member(who.slot)), binary);
        }
        command.envs(self.environment.iter().cloned());
        let client = Client {
            worker: (work.start)(command, &input),
            who,
            paused: false,
            work,
        };
        self.clients.insert(who.slot, client);
    }

    pub(crate) fn worker(&self, slot: usize) -> &Worker {
        &self.clients[&slot].worker
    }

    /// Returns the path of a file that the processes of this run share.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path(name)
    }

    /// Creates a file that processes of this run wait for.
    pub(crate) fn signal(&self, name: &str) {
        File::create(self.file(name)).expect("making a file");
    }

    /// Returns what all processes have written so far.
    pub(crate) fn history(&self) -> Vec<Entry> {
        history::read(&self.file(""))
    }

    pub(crate) fn task(&self, who: Process) -> Task {
        Task {
            hosts: self.ensemble.hosts(),
            timeout: self.timeout,
            who,
            folder: self.folder.path(""),
            seed: self.seed ^ ((who.slot as u64) << 32) ^ ((who.life as u64) << 40),
        }
    }

    /// Returns the place of a client process in the network.
    pub(crate) fn member(&self, slot: usize) -> usize {
        SERVERS + slot
    }

    pub(crate) fn slots(&self) -> Vec<usize> {
        self.clients.keys().copied().collect()
    }

    /// Counts a fault and records it.
    pub(crate) fn fault(&mut self, text: &str) {
        self.faults += 1;
        println!("{}: {:>3} {text}", self.name, self.faults);
        let text = text.to_owned();
        self.journal.note(0, What::Fault { text });
    }

    pub(crate) fn pause_client(&mut self, slot: usize) {
        let Some(client) = self.clients.get_mut(&slot) else {
            return;
        };
        client.worker.pause();
        client.paused = true;
        self.journal.note_of(client.who, 0, What::Paused);
    }

    pub(crate) fn resume_client(&mut self, slot: usize) {
        let Some(client) = self.clients.get_mut(&slot) else {
            return;
        };
        if client.paused {
            client.paused = false;
            client.worker.resume();
            self.journal.note_of(client.who, 0, What::Resumed);
        }
    }

    /// Kills a client process; another one takes its place and does the same work.
    pub(crate) fn replace_client(&mut self, slot: usize) {
        let Some(client) = self.clients.get_mut(&slot) else {
            return;
        };
        client.worker.kill();
        let who = client.who;
        self.journal.note_of(who, 0, What::Died);
        let (work, life) = (client.work.clone(), who.life + 1);
        self.employ(Process { slot, life }, work);
    }

    /// Like [`heal`](Self::heal), but waits until all servers serve.
    pub(crate) fn make_whole(&mut self) {
        self.heal();
        eventually("all servers serve", || {
            (0..SERVERS).all(|i| {
                let said = self.ensemble.server(i).four_letter("srvr");
                said.is_ok_and(|said| said.contains("Mode:"))
            })
        });
    }

    /// Mends everything, and waits until the ensemble has a leader.
    pub(crate) fn heal(&mut self) {
        self.mend();
        self.ensemble.wait_for_leader();
        self.journal.note(0, What::Healed);
    }

    /// Mends everything that is broken, without waiting for the effect.
    pub(crate) fn mend(&mut self) {
        if let Some(network) = &self.network {
            network.heal();
        }
        for i in 0..SERVERS {
            self.ensemble.resume(i);
            if !self.ensemble.is_running(i) {
                self.ensemble.restart_without_waiting(i);
            }
        }
        for slot in self.slots() {
            self.resume_client(slot);
        }
    }

    /// Lets all processes end.
    pub(crate) fn end(&mut self) {
        self.heal();
        self.signal(STOP);
        // A client that waits behind a node that exists on only one replica waits for ever.
        if self.hear_all("idle") || self.divergence().is_none() {
            // The sessions are still alive: their end would hide the nodes that were left behind.
            self.look_for_leftovers();
            self.signal(QUIT);
            self.hear_all("bye");
        }
        if let Some(text) = self.unsound() {
            row(&format!(
                "{}: THE SERVERS' DATA DIVERGED, {text}",
                self.name
            ));
            self.journal.note(0, What::Diverged { text });
        }
    }

    /// Mends everything, waits until all threads rest, and returns what `look` finds.
    ///
    /// A thread that does not rest fails the run: its call hangs. Returns nothing if the servers'
    /// data diverged, and still differs or keeps a thread from resting.
    #[track_caller]
    pub(crate) fn at_rest<T>(&mut self, look: impl FnOnce(&Self) -> T) -> Option<T> {
        self.make_whole();
        self.signal(REST);
        let rests = (0..THREADS).all(|_| self.hear_all(RESTING));
        let unsound = match self.divergence() {
            None => {
                assert!(rests, "{}: a call hangs\n{}", self.name, describe(self));
                false
            }
            Some(_) => !rests || self.differs(),
        };
        if unsound {
            println!("{}", describe(self));
        }
        let seen = (!unsound).then(|| look(self));
        fs::remove_file(self.file(REST)).expect("ending the rest");
        seen
    }

    /// Returns whether all processes have written this line in time.
    fn hear_all(&self, line: &str) -> bool {
        let deadline = Instant::now() + DRAIN;
        let mut heard = true;
        for client in self.clients.values() {
            let mut lines = std::iter::from_fn(|| {
                let lines = client.worker.lines();
                lines.recv_deadline(deadline).ok()
            });
            if !lines.any(|said| said == line) {
                println!("{} of {} does not come to {line:?}", client.who, self.name);
                heard = false;
            }
        }
        heard
    }

    fn look_for_leftovers(&self) {
        let hosts = self
            .ensemble
            .server(self.ensemble.wait_for_leader())
            .hosts();
        let mut raw = Raw::connect(&hosts);
        let mut left = Vec::new();
        // The nodes of killed processes are deleted when their sessions end.
        within(2 * self.timeout + Duration::from_secs(5), || {
            left.clear();
            ephemeral_nodes(&mut raw, ROOT, &mut left);
            left.is_empty()
        });
        for node in left {
            self.journal.note(0, What::Leftover { node });
        }
    }

    pub(crate) fn rules(&self) -> Rules {
        Rules::for_sessions_of(self.timeout)
    }

    /// Judges the history; keeps it if it shows a violation.
    #[track_caller]
    pub(crate) fn judge(&self) -> Summary {
        let entries = self.history();
        if let Some(folder) = env::var_os("ZKLOCK_CHAOS_HISTORIES") {
            let name = format!("{}-{}", self.name.replace([' ', ',', '/'], "-"), self.seed);
            write(&Path::new(&folder).join(name), &entries);
        }
        let judged = check(&entries, &self.rules()).map_err(|story| story.to_string());
        match judged.and_then(|summary| judge(&entries).map(|()| summary)) {
            Ok(summary) => {
                for entry in &entries {
                    if matches!(&entry.what, What::Refused { why } if why != TIMEOUT) {
                        println!("{}: {entry}", self.name);
                    }
                }
                tell(&self.name, &summary, self.seed);
                summary
            }
            Err(story) => {
                let kept = env::temp_dir().join(format!("zklock-chaos-{}", self.seed));
                write(&kept, &entries);
                panic!(
                    "{}: seed {}, history in {}\n{story}",
                    self.name,
                    self.seed,
                    kept.display()
                );
            }
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // A paused process would not notice that it must end.
        for i in 0..SERVERS {
            self.ensemble.resume(i);
        }
    }
}

fn write(path: &Path, entries: &[Entry]) {
    let text: String = entries.iter().map(|entry| format!("{entry}\n")).collect();
    fs::write(path, text).expect("keeping a history");
}

/// Prints a line for the table of `tests/chaos.sh`.
fn tell(name: &str, summary: &Summary, seed: u64) {
    let Summary {
        faults,
        requests,
        grants,
        timeouts,
        errors,
        suspected,
        lost,
        written,
        refused_writes,
        paused,
        died,
        longest_wait,
    } = summary;
    row(&format!(
        "{name}: {faults} faults ({paused} pauses, {died} client deaths); {requests} requests: \
         {grants} grants, {timeouts} timeouts, {errors} errors; {suspected} suspicions, \
         {lost} lost; {written} writes, {refused_writes} refused; longest wait {:.1} s; seed {seed}",
        longest_wait.as_secs_f64(),
    ));
}

/// Prints a line for the table of `tests/chaos.sh`.
pub(crate) fn row(text: &str) {
    // The text begins a new line, because the harness may have begun one.
    println!("\nCHAOS {text}");
}

/// Returns a number from the environment, as `tests/chaos.sh` sets it.
pub(crate) fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

/// Collects the nodes below `path` that belong to a session.
fn ephemeral_nodes(raw: &mut Raw, path: &str, found: &mut Vec<String>) {
    for name in raw.children(path).unwrap_or_default() {
        let node = format!("{path}/{name}");
        if raw.stat(&node).is_some_and(|stat| stat.owner != 0) {
            found.push(node);
        } else {
            ephemeral_nodes(raw, &node, found);
        }
    }
}

/// Waits for this many milliseconds.
pub(crate) fn wait(millis: u64) {
    thread::sleep(Duration::from_millis(millis));
}
