//! The requests of a call for a permit besides those of its two acquisitions, and the answers to them.

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Core;
use super::ask::{Outcome, Ticket};
use super::asked::Alarm;
use super::calls::Purpose;
use super::line::Line;
use super::permit_call::{Batch, Call, Place, Replies};
use super::turns::code_of;
use zklock_core::acquisition::may_read_less;
use zklock_core::answer::{Answered, BREATHER, Failure};
use zklock_core::dialect::Sharing;
use zklock_core::directories;
use zklock_core::path::node_in;
use zklock_core::permit_attempt::{Action, Event, Refusal, inspected, written};
use zklock_jute::{ErrorCode, Reply, Request, failure};

impl Core {
    /// Asks what this action needs to know, or makes what it needs.
    pub(super) fn begin_batch(&mut self, ticket: Ticket, action: Action) {
        let Some(call) = self.permits.calls.get_mut(&ticket) else {
            return;
        };
        let settings = &self.link.settings;
        if let Some(read) = call.read.take().filter(|_| action == Action::Look) {
            return self.looked(ticket, (read, false));
        }
        let layout = call.layout(settings.dialect);
        let number = call.asks.permits.to_string();
        let place = call.place.as_ref().map_or("", |place| &place.node);
        let requests = match &action {
            Action::Look => layout.looks(false).0,
            Action::LookAgain => return self.look_again(ticket),
            Action::Make => {
                let [_, lasting] = layout.lasting(number.as_bytes());
                lasting.creates(&call.seats.path, settings.dialect, &settings.acl)
            }
            Action::Read(others) => vec![Request::get(&node_in(&call.seats.path, &others.oldest))],
            Action::Await(others) => {
                let last = node_in(&call.seats.path, &others.last);
                vec![Request::get(&last).and_watch()]
            }
            Action::Write(_, version, _) => {
                let line = (place, self.link.transacts());
                vec![layout.write((&number, *version), line, &settings.acl)]
            }
            Action::Inspect(_) => vec![Request::exists(place)],
            Action::Line | Action::Permit(_) | Action::Check | Action::Finish(_) => return,
        };
        if matches!(action, Action::Read(_) | Action::Await(_)) {
            call.is_taken = true;
        }
        self.post(ticket, requests, false);
    }

    /// Looks at a server that has caught up. A node that an earlier call of this client has left would look like
    /// another's permit.
    fn look_again(&mut self, ticket: Ticket) {
        let Some(call) = self.permits.calls.get_mut(&ticket) else {
            return;
        };
        call.is_taken = true;
        let dir = Arc::clone(&call.seats.path);
        let requests = call.layout(self.link.settings.dialect).looks(true).0;
        match self
            .releases
            .awaited_until((&dir, Sharing::Alone), self.link.now)
        {
            Some(until) => drop(self.alarms.insert((until, Alarm::Step(ticket)))),
            None => self.post(ticket, requests, true),
        }
    }

    fn post(&mut self, ticket: Ticket, requests: Vec<Request>, catches_up: bool) {
        self.permits.batches += 1;
        let number = self.permits.batches;
        if let Some(call) = self.permits.calls.get_mut(&ticket) {
            call.batch = Some(Batch {
                number,
                requests,
                answers: Vec::new(),
                is_sent: false,
                catches_up,
                watches: false,
            });
        }
        self.send_batch(ticket);
    }

    /// Sends the requests of a call that are not sent yet, if there is a connection.
    fn send_batch(&mut self, ticket: Ticket) {
        let call = self.permits.calls.get_mut(&ticket);
        let batch = call.and_then(|call| call.batch.as_mut());
        let connected = self.link.is_connected();
        if let Some(batch) = batch.filter(|batch| !batch.is_sent && connected) {
            batch.is_sent = true;
            batch.answers.clear();
            for request in &batch.requests {
                let purpose = Purpose::Permit(ticket, batch.number);
                self.link.send(request.clone(), purpose);
            }
        }
    }

    /// Does what a call has put off.
    pub(super) fn resume(&mut self, ticket: Ticket) {
        let Some(call) = self.permits.calls.get(&ticket) else {
            return;
        };
        let ids = [call.line.clone(), call.seats.clone()];
        self.send_batch(ticket);
        for id in ids {
            let acquires = self.lines.get_mut(&id).and_then(Line::acquires);
            if acquires.is_some_and(|acquires| acquires.ticket == ticket) {
                self.advance(&id);
            }
        }
        self.drive(ticket);
    }

    /// Resumes all calls, now that there is a connection. Watches went with the one before.
    pub(super) fn resume_calls(&mut self) {
        let calls: Vec<_> = self.permits.calls.keys().copied().collect();
        for ticket in calls {
            let call = self.permits.calls.get(&ticket);
            match call.is_some_and(Call::awaits) {
                true => self.permit_event(ticket, Event::Woken),
                false => self.resume(ticket),
            }
        }
    }

    /// Resumes the calls that wait until this client has deleted what it has left in this directory.
    pub(super) fn resume_calls_in(&mut self, dir: &str) {
        let calls = self.permits.calls.iter();
        let waits = calls.filter(|(_, call)| *call.seats.path == *dir && call.batch.is_none());
        let waits: Vec<_> = waits.map(|(ticket, _)| *ticket).collect();
        for ticket in waits {
            self.drive(ticket);
        }
    }

    /// Takes in the event of a watched node.
    pub(super) fn happened_to_permit(&mut self, path: &str) {
        let calls = self.permits.calls.iter();
        let awaits = calls.filter(|(_, call)| call.awaits_node(path));
        let awaits: Vec<_> = awaits.map(|(ticket, _)| *ticket).collect();
        for ticket in awaits {
            self.permit_event(ticket, Event::Woken);
        }
    }

    /// Takes in an answer to one of a call's requests.
    pub(super) fn permit_answered(&mut self, (ticket, number): (Ticket, u64), answered: Answered) {
        let Some(call) = self.permits.calls.get_mut(&ticket) else {
            return;
        };
        let makes = call.machine.action() == Action::Make;
        let batch = call.batch.as_mut().filter(|batch| batch.number == number);
        let Some(batch) = batch else { return };
        batch.answers.push(answered);
        if batch.answers.len() < batch.requests.len() {
            return;
        }
        if makes {
            let made = directories::trouble_with(&batch.answers);
            return match made {
                Some(Failure::Refused(code)) => self.end_call(ticket, Outcome::Refused(code)),
                _ => self.permit_event(ticket, Event::IsMade),
            };
        }
        let unanswered = |answer: &Answered| match answer {
            Err(failure) => failure.is_repeated(true),
            Ok(_) => false,
        };
        if batch.answers.iter().any(unanswered) {
            batch.is_sent = false;
            if self.link.is_connected() {
                let at = self.link.now + BREATHER;
                self.alarms.insert((at, Alarm::Step(ticket)));
            }
            return;
        }
        let answers = core::mem::take(&mut batch.answers).into_iter();
        let catches_up = batch.catches_up;
        let replies = answers.map(|answer| answer.map_err(code_of)).collect();
        self.all_answered(ticket, (replies, catches_up));
    }

    fn all_answered(&mut self, ticket: Ticket, (mut replies, catches_up): (Replies, bool)) {
        let Some(call) = self.permits.calls.get_mut(&ticket) else {
            return;
        };
        let lasts = |place: &Place| place.session == self.link.session;
        let lasts = call.place.as_ref().is_some_and(lasts);
        let action = call.machine.action();
        if let Action::Look | Action::LookAgain = action {
            return self.looked(ticket, (replies, catches_up));
        }
        let answer = match replies.pop() {
            Some(Ok(Reply::Multi(results))) => failure(&results).map_or(Ok(()), Err),
            Some(Ok(_)) => Ok(()),
            Some(Err(code)) => Err(code),
            None => return,
        };
        let event = match (action, answer) {
            (Action::Read(_), Ok(())) => Ok(Event::IsThere),
            (Action::Read(_), Err(ErrorCode::NO_NODE)) => Ok(Event::NoNode),
            (Action::Await(_), Ok(())) => {
                if let Some(batch) = &mut call.batch {
                    batch.watches = true;
                }
                return self.look_at_places();
            }
            (Action::Await(_), Err(ErrorCode::NO_NODE)) => Ok(Event::Woken),
            (Action::Write(..), answer) => written(answer),
            (Action::Inspect(_), answer) => Ok(inspected(answer, lasts)),
            (_, Err(code)) => Err(code),
            (_, Ok(())) => return,
        };
        match event {
            Ok(event) => self.permit_event(ticket, event),
            Err(code) => self.end_call(ticket, Outcome::Refused(code)),
        }
    }

    /// Takes in a look. If the server may not have heard of what the holder before has left, it is asked again when
    /// it has caught up.
    fn looked(&mut self, ticket: Ticket, (mut replies, catches_up): (Replies, bool)) {
        let Some(call) = self.permits.calls.get(&ticket) else {
            return;
        };
        let layout = call.layout(self.link.settings.dialect);
        let here = self.link.is_connected().then_some(self.link.connects);
        let waited = call.place.as_ref().and_then(|place| place.waited);
        if !catches_up && may_read_less(waited, here) {
            let requests = layout.looks(true).0;
            return self.post(ticket, requests, true);
        }
        let (_, before) = layout.looks(catches_up);
        let event = layout.looked(replies.split_off(before.min(replies.len())));
        match event {
            Ok(look) => self.permit_event(ticket, Event::Looked(look)),
            Err(Refusal { code, .. }) => self.end_call(ticket, Outcome::Refused(code)),
        }
    }
}
