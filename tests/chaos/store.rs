//! The store that the locks protect, which refuses a token lower than one it has seen.
//!
//! The store listens on a Unix socket, which can be reached from every network namespace, and
//! records each write that it is asked for.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::history::{Journal, Process, What};

#[derive(Debug)]
struct Store {
    newest: Mutex<HashMap<String, i64>>,
    journal: Arc<Journal>,
}

/// Opens a store at `path`, which lives as long as this process.
pub(crate) fn open(path: &Path, journal: Arc<Journal>) {
    let listener = UnixListener::bind(path).expect("opening the store");
    let store = Arc::new(Store {
        newest: Mutex::default(),
        journal,
    });
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let store = store.clone();
            thread::spawn(move || store.serve(&client));
        }
    });
}

impl Store {
    /// Serves one client until it is gone.
    fn serve(&self, client: &UnixStream) -> io::Result<()> {
        let mut answers = client;
        for line in BufReader::new(client).lines() {
            let line = line?;
            let words: Vec<_> = line.split(' ').collect();
            let [slot, life, op, path, token] = words[..] else {
                continue;
            };
            let who = Process {
                slot: slot.parse().expect("a slot"),
                life: life.parse().expect("a life"),
            };
            let (op, token) = (op.parse().expect("an op"), token.parse().expect("a token"));
            let accepted = self.write(who, op, path, token);
            answers.write_all(if accepted { b"accepted\n" } else { b"stale\n" })?;
        }
        Ok(())
    }

    fn write(&self, who: Process, op: usize, path: &str, token: i64) -> bool {
        let mut newest = self.newest.lock().expect("the store");
        let newest = newest.entry(path.to_owned()).or_insert(token);
        let accepted = *newest <= token;
        *newest = token.max(*newest);
        // The write is recorded before the next one is considered.
        let what = What::Write {
            path: path.to_owned(),
            token,
            accepted,
        };
        self.journal.note_of(who, op, what);
        accepted
    }
}

/// A client's connection to the store.
#[derive(Debug)]
pub(crate) struct Writer {
    store: BufReader<UnixStream>,
    who: Process,
}

impl Writer {
    pub(crate) fn open(path: &Path, who: Process) -> Self {
        let store = UnixStream::connect(path).expect("reaching the store");
        let store = BufReader::new(store);
        Self { store, who }
    }

    /// Writes under a token; returns whether the store accepted the write.
    pub(crate) fn write(&mut self, op: usize, path: &str, token: i64) -> bool {
        let Process { slot, life } = self.who;
        let line = format!("{slot} {life} {op} {path} {token}\n");
        let sent = self.store.get_mut().write_all(line.as_bytes());
        sent.expect("asking the store");
        let mut said = String::new();
        self.store.read_line(&mut said).expect("hearing the store");
        said.trim() == "accepted"
    }
}
