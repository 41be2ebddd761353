//! Turns: an input goes into the core, and the shell does what the core says.
//!
//! A thread that wants something leaves it in the inbox and tries to get the core. If another thread has the core,
//! that thread takes the want in: it looks into the inbox once more after it has released the core. So no thread
//! ever waits for the core, which on a machine with few processors costs more than the core's work.
//!
//! The thread that queues bytes writes them, unless another thread is writing: then that thread does.

use std::io::Write;
use std::mem;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;
use zklock_jute::{Request, xid};
use zklock_play::{Core, LOST, Notice, Outcome, Time};

use crate::client::{Input, Shared, State, now};
use crate::sleeper::Sleeper;

impl Shared {
    /// Gives the core an input, or leaves it for the thread that has the core.
    pub(super) fn put(&self, input: Input) {
        self.inbox.lock().push(input);
        if let Some(state) = self.state.try_lock() {
            self.carry_out(state);
        }
    }

    /// Takes a turn for a thread that may wait for the core.
    pub(super) fn turn<T>(&self, input: impl FnOnce(&mut Core, Time) -> T) -> T {
        let mut state = self.state.lock();
        let result = input(&mut state.core, now());
        self.carry_out(state);
        result
    }

    /// Takes in what other threads have left meanwhile, and does what the core says. Every thread that locks the
    /// state ends with this.
    pub(super) fn carry_out<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        loop {
            let inputs = mem::take(&mut *self.inbox.lock());
            for input in inputs {
                state.take_in(input);
            }
            let wakes = state.take_out();
            let next = state.core.next_tick().unwrap_or(Time::MAX);
            if next < state.armed {
                state.armed = next;
                self.ring();
            }
            self.flush(state);
            for (sleeper, outcome) in wakes {
                sleeper.wake(outcome);
            }
            // A thread that came since then has found the core taken.
            if self.inbox.lock().is_empty() {
                return;
            }
            match self.state.try_lock() {
                Some(again) => state = again,
                None => return,
            }
        }
    }

    /// Writes the queued bytes, unless another thread is writing.
    fn flush(&self, mut state: MutexGuard<'_, State>) {
        let (Some(stream), false) = (state.stream.clone(), state.out.is_empty()) else {
            return;
        };
        let connection = state.connection;
        let Some(mut buffer) = state.writer.take() else {
            return;
        };
        while !state.out.is_empty() {
            mem::swap(&mut state.out, &mut buffer);
            let written = MutexGuard::unlocked(&mut state, || (&*stream).write_all(&buffer));
            if state.connection != connection {
                return;
            }
            if written.is_err() {
                let _ = stream.shutdown(Shutdown::Both);
            }
            buffer.clear();
        }
        state.writer = Some(buffer);
    }

    /// Makes the clock look again.
    pub(super) fn ring(&self) {
        *self.rung.lock() = true;
        self.clock.notify_one();
    }

    /// Ticks whenever the core wants it.
    pub(super) fn ticks(&self) {
        while self.closes_by().is_none() {
            let mut state = self.state.lock();
            let now = now();
            if state.core.next_tick().is_some_and(|at| at <= now) {
                state.core.tick(now);
            }
            let next = state.core.next_tick().unwrap_or(Time::MAX);
            state.armed = next;
            self.carry_out(state);
            let mut rung = self.rung.lock();
            if !mem::take(&mut *rung) {
                let pause = next.saturating_sub(now).min(Duration::from_secs(60));
                self.clock.wait_for(&mut rung, pause);
                *rung = false;
            }
        }
    }
}

impl State {
    fn take_in(&mut self, input: Input) {
        match input {
            Input::Ask(ask, thread, sleeper) => {
                let ticket = self.core.ask(now(), thread, ask);
                if !self.core.is_in_line(ticket) {
                    sleeper.may_read();
                }
                self.sleepers.insert(ticket, sleeper);
            }
            Input::Release(guard) => {
                self.guards.remove(&guard);
                self.core.release(now(), guard);
            }
        }
    }

    /// Takes out of the core what must be done, and does it; returns which sleepers to wake.
    fn take_out(&mut self) -> Vec<(Arc<Sleeper>, Outcome)> {
        while let Some(request) = self.core.next_request() {
            match request {
                Request::Ping => request.encode(xid::PING, &mut self.out),
                _ => {
                    self.xid = self.xid.checked_add(1).unwrap_or(1);
                    self.open.push_back(request.op());
                    request.encode(self.xid, &mut self.out);
                }
            }
        }
        if self.core.hangs_up() {
            if let Some(stream) = &self.stream {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        let mut wakes = Vec::new();
        while let Some((ticket, outcome)) = self.core.next_wake() {
            let Some(sleeper) = self.sleepers.remove(&ticket) else {
                continue;
            };
            if let Outcome::Held(grant) = &outcome {
                sleeper.tell(grant.trust);
                self.guards.insert(grant.guard, sleeper.clone());
            }
            wakes.push((sleeper, outcome));
        }
        while let Some((guard, notice)) = self.core.next_notice() {
            match (self.guards.get(&guard), notice) {
                (Some(trust), Notice::Trust(validity)) => trust.tell(validity),
                (Some(trust), Notice::Lost(_)) => trust.tell(LOST),
                _ => {}
            }
        }
        wakes
    }

    /// Sets the connection, or notes that there is none any more.
    pub(super) fn attach(&mut self, stream: Option<Arc<TcpStream>>) {
        self.writer = stream.is_some().then(Vec::new);
        self.stream = stream;
        self.connection += 1;
        self.out.clear();
        self.open.clear();
    }
}
