//! The thread that keeps what guards and attempts have entrusted to it.
//!
//! It sleeps while there is nothing to keep. It never waits for an answer: requests are
//! sent, and answers come through channels.

use std::mem;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, after, bounded, never, select};
use parking_lot::Mutex;

use super::heart::Heart;
use super::hub::Hub;
use super::leftovers::Leftovers;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Keeper {
    thread: Mutex<Option<JoinHandle<()>>>,
    stop: Sender<()>,
    stopped: Receiver<()>,
}

impl Keeper {
    /// Starts the thread. It looks whenever `woken` is filled.
    pub(crate) fn start(
        mut heart: Heart,
        leftovers: Arc<Leftovers>,
        hub: &Arc<Hub>,
        woken: Receiver<()>,
    ) -> std::io::Result<Self> {
        let (stop, stopping) = bounded::<()>(1);
        let (ended, stopped) = bounded::<()>(0);
        let changes = hub.changes();
        let run = move || {
            // Dropped when the thread is through, which is what `stopped` waits for.
            let _ended = ended;
            keep(
                &mut heart,
                &leftovers,
                changes.receiver(),
                &woken,
                &stopping,
            );
        };
        let thread = thread::Builder::new()
            .name("zklock-keeper".to_owned())
            .spawn(run)?;
        Ok(Self {
            thread: Mutex::new(Some(thread)),
            stop,
            stopped,
        })
    }

    /// Ends the thread, waiting for it no longer than `limit`.
    pub(crate) fn stop(&self, limit: Duration) {
        let _ = self.stop.try_send(());
        let _ = self.stopped.recv_timeout(limit);
        if let Some(thread) = self.thread.lock().take_if(|thread| thread.is_finished()) {
            let _ = thread.join();
        }
    }

    /// Lets go of a thread that is not of this process.
    pub(crate) fn forget(&mut self) {
        mem::forget(self.thread.get_mut().take());
        mem::forget((self.stop.clone(), self.stopped.clone()));
    }
}

fn keep(
    heart: &mut Heart,
    leftovers: &Arc<Leftovers>,
    changes: &Receiver<()>,
    woken: &Receiver<()>,
    stopping: &Receiver<()>,
) {
    loop {
        heart.awake();
        let pause = heart.look();
        let retry = leftovers.push();
        let retry = retry.map(|time| time.saturating_duration_since(Instant::now()));
        let pause = [pause, retry].into_iter().flatten().min();
        let timer = pause.map_or_else(never, after);
        let fired = heart.fired().clone();
        let (beats, read) = (heart.beats().clone(), heart.reads().clone());
        select! {
            recv(stopping) -> _ => return,
            recv(woken) -> _ => {}
            recv(changes) -> _ => {}
            recv(timer) -> _ => {}
            recv(fired) -> fired => if let Ok(fired) = fired { heart.touched(fired) },
            recv(beats) -> beat => if let Ok((beat, answers)) = beat { heart.beaten(beat, &answers) },
            recv(read) -> read => if let Ok((id, answered)) = read { heart.read(id, &answered) },
        }
        heart.take_in_what_came();
    }
}
