//! The detection of a machine that has stood still, which makes good servers look silent.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use parking_lot::Mutex;

/// How often a thread reads the clock.
const BEAT: Duration = Duration::from_millis(50);

/// How late the thread is if the machine has stood still.
const LONG: Duration = Duration::from_secs(1);

/// A thread that reads the clock until this is dropped.
pub(crate) struct Stalls {
    seen: Arc<Mutex<Seen>>,
    _end: Sender<()>,
}

struct Seen {
    beat: Instant,
    stall: Option<Instant>,
}

impl Seen {
    fn look(&mut self) {
        let now = Instant::now();
        if LONG <= now - self.beat {
            self.stall = Some(now);
        }
        self.beat = now;
    }
}

impl Stalls {
    pub(crate) fn watch() -> Self {
        let (_end, ended) = bounded(0);
        let seen = Arc::new(Mutex::new(Seen {
            beat: Instant::now(),
            stall: None,
        }));
        let look = seen.clone();
        thread::spawn(move || {
            while ended.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                look.lock().look();
            }
        });
        Self { seen, _end }
    }

    /// Returns whether the machine has stood still since that moment.
    pub(crate) fn since(&self, moment: Instant) -> bool {
        let mut seen = self.seen.lock();
        seen.look();
        seen.stall.is_some_and(|stall| moment <= stall)
    }
}
