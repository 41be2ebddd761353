//! Follows the ensemble from server to server, if the user asked for that.
//!
//! On every connection the client reads the members from `/zookeeper/config`, with a watch. No
//! caller waits for the answer.

use std::mem;

use super::members::Members;
use super::shared::{Shared, State};
use crate::system::contained;
use zklock_core::connection::link::MEMBERS;
use zklock_jute::{ErrorCode, Event, OpCode, Reply};

/// How much of an unreadable configuration is logged.
const LONGEST: usize = 200;

impl Shared {
    /// Asks a server that has just given a session for the members, if they are to be followed.
    pub(super) fn arrived(&self, state: &mut State) {
        if !self.config.follow_reconfiguration {
            return;
        }
        if let Some(target) = &state.target {
            state.list.is_served_by(target);
        }
        state.link.ask_for_members();
    }

    /// Asks for the members again if this event is a change of the configuration.
    pub(super) fn hear_of_members(&self, event: &Event) {
        if self.config.follow_reconfiguration && event.path == MEMBERS {
            let mut state = self.state.lock();
            state.link.ask_for_members();
            self.flush(state);
        }
    }

    /// Handles the answer with the members. If the answer is unusable, the list stays as it is.
    pub(super) fn members_came(&self, code: ErrorCode, body: &[u8]) {
        let members = match code {
            ErrorCode::OK => self.read(body),
            ErrorCode::NO_NODE => Err("there is none".to_owned()),
            code => Err(code.to_string()),
        };
        match members {
            Ok(members) => self.follow(&members),
            Err(why) => self.complain(why.chars().take(LONGEST).collect()),
        }
    }

    fn read(&self, body: &[u8]) -> Result<Members, String> {
        match Reply::decode(OpCode::GET_DATA, body) {
            Ok(Reply::Data { data, .. }) => Members::parse(&data, self.config.tls.is_some()),
            _ => Err("the answer cannot be read".to_owned()),
        }
    }

    fn follow(&self, members: &Members) {
        let mut state = self.state.lock();
        state.complaint.clear();
        let State { list, target, .. } = &mut *state;
        let target = target.as_ref();
        let is_new = target.is_some_and(|target| list.follow(members, target));
        drop(state);
        if is_new {
            let servers: Vec<_> = members.servers.iter().map(ToString::to_string).collect();
            contained(|| log::info!("the servers of the ensemble are {}", servers.join(", ")));
        }
    }

    /// Logs a complaint, unless it is the same as the last one.
    fn complain(&self, why: String) {
        let before = mem::replace(&mut self.state.lock().complaint, why.clone());
        if before != why {
            contained(|| {
                log::warn!("cannot follow the ensemble's configuration in {MEMBERS}: {why}");
            });
        }
    }
}

#[cfg(test)]
mod tests;
