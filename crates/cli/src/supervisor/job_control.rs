//! The command's part in the terminal and in the jobs of a shell.

use std::mem;

use crossbeam_channel::{Receiver, never};
use nix::sys::signal::Signal;

use super::Supervisor;
use crate::exit::Ending;
use crate::helper::trust::since_boot;
use crate::helper::wire::{Kind, Message};
use crate::signals::Stop;
use crate::stderr::say;
use crate::terminal::has_job_control;
use crate::terminal_listener::TerminalListener;

/// The signals that end programs and that a terminal sends for a key.
const TYPED: [Signal; 2] = [Signal::SIGINT, Signal::SIGQUIT];

impl Supervisor<'_> {
    /// Handles a stopped command: stops every process that it has started, and then this process,
    /// so that the shell takes over.
    pub(super) fn stopped(&mut self, signal: i32) {
        let asked = mem::take(&mut self.passed_stop);
        let is = |one: Signal| one as i32 == signal;
        let wants_terminal = is(Signal::SIGTTIN) || is(Signal::SIGTTOU);
        // The command may have got the terminal while it was being stopped for it.
        let group = self.child.group;
        let terminal = self.terminal;
        if wants_terminal && (terminal.is_ours() || terminal.is_with(group)) {
            self.give_terminal();
            self.child.ask(Kind::Continue);
            return;
        }
        self.own_stop = match (asked, wants_terminal) {
            // This process got SIGTSTP, and so did its group if it was typed.
            (true, false) => Stop::Alone,
            (false, true) => Stop::ForTerminal,
            _ => Stop::Group,
        };
        if wants_terminal && !terminal.is_there() {
            say("the command wants the terminal of another process namespace, and has stopped");
        }
        // A signal that was sent only to the command does not cost it its lock.
        if asked || terminal.is_there() && !is(Signal::SIGSTOP) {
            self.child.ask(Kind::Suspend);
        }
    }

    /// Handles that everything has stopped: stops this process, and continues the command with it,
    /// unless the lock is lost by then.
    pub(super) fn suspended(&mut self, failure: &str) {
        let own_stop = mem::take(&mut self.own_stop);
        // Without this process, the lock would be lost while other processes go on.
        if !failure.is_empty() {
            say(&format!(
                "cannot stop what the command has started, it goes on: {failure}"
            ));
        } else if has_job_control() {
            // If the lock survives the stop, the keeper is to know.
            self.tell_trust(since_boot(), self.order.lock.valid_for());
            // This process's group must get what the terminal has sent to the command's group
            // alone: a script in it waits for this process.
            self.signals.stop(own_stop);
        }
        self.look_at_lock();
        // A command that reads from the terminal without having it stops again, and gets the terminal then.
        if self.terminal.is_all_ours() {
            self.give_terminal();
        }
        self.child.ask(Kind::Continue);
    }

    pub(super) fn give_terminal(&mut self) {
        if self.listener.is_none() {
            self.listener = TerminalListener::start(self.child.group)
                .inspect_err(|error| log::info!("cannot listen to the terminal: {error}"))
                .ok();
        }
        self.had_terminal = true;
        self.terminal.give(self.child.group);
    }

    pub(super) fn heard(&self) -> Receiver<Message> {
        let listener = self.listener.as_ref();
        listener.map_or_else(never, |listener| listener.heard.clone())
    }

    /// Also sends a signal of the terminal to this process's own group. After Ctrl-Z, the command
    /// reports that it has stopped, unless it has ended before.
    pub(super) fn tell_foreground(&mut self, signal: i32) {
        let Ok(signal) = Signal::try_from(signal) else {
            return;
        };
        if signal == Signal::SIGTSTP {
            if self.child.ending.is_some() {
                self.child.ask(Kind::Suspend);
            }
            return;
        }
        self.signals.tell_group(signal);
        self.by_signal = true;
        self.end_what_is_left(signal);
        if signal == Signal::SIGHUP {
            // The terminal is gone, so no shell continues what is stopped.
            self.child.ask(Kind::Continue);
        }
    }

    /// Ends what the command has left, once that was reported: what a script starts in the background ignores
    /// these signals.
    pub(super) fn end_what_is_left(&mut self, signal: Signal) {
        if TYPED.contains(&signal) && self.has_left {
            self.child.signal(Signal::SIGTERM);
        }
    }

    pub(super) fn hear_the_rest(&mut self) {
        let typed = TYPED.map(|one| one as i32);
        match (self.listener.take(), self.child.ending) {
            (Some(listener), _) => {
                let rest = listener.end().into_iter();
                rest.for_each(|heard| self.tell_foreground(heard.number));
            }
            // Without a listener, the signal can be seen in how the command ended.
            (None, Some(Ending::Signal(signal)))
                if self.had_terminal && typed.contains(&signal) =>
            {
                self.tell_foreground(signal);
            }
            _ => {}
        }
    }
}
