#!/usr/bin/env python3
"""Breaks the client in one place at a time, and counts the seeds until the simulation sees it.

Each mutant is a small replacement in one file of a crate. It is compiled in a scratch folder,
which keeps its target folder from mutant to mutant, and plays seeds until one fails. Every
old text must occur exactly once in its file, so that the table cannot rot unseen.

    tests/sim/mutants.py --list
    tests/sim/mutants.py --only slot-wakes-nobody --only early-answers-dropped
    tests/sim/mutants.py --seeds 20000 --seconds 600 --markdown table.md
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The manifest names targets in all of these.
COPIED = ["crates", "src", "Cargo.toml", "Cargo.lock", "benches", "examples", "tests"]
UNMUTATED = "unmutated"

# Name, what is broken, file, old text, new text; and, where one does not follow from these,
# a text that has both, for `--together`.
MUTANTS = [
    # Which thread reads the socket.
    (
        "io-not-woken",
        "a reader that leaves does not wake the I/O thread, which sleeps",
        "src/transport/native/who_reads.rs",
        "        if (state.asleep && state.returning == 0) || state.end.is_some() {",
        "        if state.end.is_some() {",
    ),
    (
        "io-not-called-back",
        "a thread that has what it waited for leaves the I/O thread asleep",
        "src/transport/native/who_reads.rs",
        "        state.returning -= 1;\n        if state.free.is_some() {",
        "        state.returning -= 1;\n        if state.end.is_some() {",
        "        state.returning -= 1;\n        if !{mutant} && state.free.is_some() || {mutant} && state.end.is_some() {{",
    ),
    (
        "errand-forgotten",
        "what the I/O thread is to do soon is not done if it sleeps",
        "src/transport/native/who_reads.rs",
        "        state.errand = Some(errand);\n"
        "        if state.asleep {\n            self.io.notify_one();\n        }\n",
        "        state.errand = Some(errand);\n",
    ),
    (
        "io-sleeps-unseen",
        "the I/O thread does not say that it sleeps until it is woken",
        "src/transport/native/who_reads.rs",
        "            state.asleep = true;\n",
        "",
    ),
    (
        "follower-not-called",
        "a follower that is to read is never called",
        "src/transport/native/who_reads.rs",
        "            thread.unpark();\n",
        "            drop(thread);\n",
    ),
    (
        "leader-reads-on",
        "a leader does not look whether its own answer has come",
        "src/transport/native/who_reads.rs",
        "            while !over() {\n                if let Err(end) = reader.turn(until) {",
        "            while until.is_none_or(|until| clock::now() < until) {\n"
        "                if let Err(end) = reader.turn(until) {",
    ),
    # The mailbox.
    (
        "slot-wakes-nobody",
        "whoever puts an answer into a mailbox does not wake its thread",
        "src/transport/mod.rs",
        "            reader.unpark();\n",
        "",
    ),
    (
        "slot-wakes-too-early",
        "a thread is woken before its answer is in the mailbox",
        "src/transport/mod.rs",
        "        if self.to.try_send(letter).is_err() {\n"
        "            return;\n"
        "        }\n"
        "        // The reader may be the calling thread, while it reads for others.\n"
        "        let me = || thread::current().id();\n"
        "        if let Some(reader) = self.reader.as_ref().filter(|reader| reader.id() != me()) {\n"
        "            reader.unpark();\n"
        "        }\n",
        "        let me = || thread::current().id();\n"
        "        if let Some(reader) = self.reader.as_ref().filter(|reader| reader.id() != me()) {\n"
        "            reader.unpark();\n"
        "        }\n"
        "        let _ = self.to.try_send(letter);\n",
    ),
    (
        "mailbox-waits-unseeing",
        "a thread that reads for all does not look into its own mailbox",
        "src/transport/mod.rs",
        "&|| !letters.is_empty()",
        "&|| false",
        "&|| !{mutant} && !letters.is_empty()",
    ),
    # What arrives.
    (
        "reply-before-event",
        "the watch events of a batch are handled after the replies behind them",
        "src/transport/native/receive.rs",
        "        while let Some(frame) = self.inbox.frame().map_err(End::Broken)? {\n"
        "            match frame {\n"
        "                Frame::Whole(frame) => self.connection.frame(frame)?,\n"
        "                Frame::TooLong { head, length } => {\n"
        "                    self.connection.too_long(head, length, limit)?;\n"
        "                }\n"
        "            }\n"
        "            acted = true;\n"
        "        }\n",
        "        let mut late: Vec<Vec<u8>> = Vec::new();\n"
        "        while let Some(frame) = self.inbox.frame().map_err(End::Broken)? {\n"
        "            match frame {\n"
        "                Frame::Whole(frame) if frame.starts_with(&zklock_jute::xid::EVENT.to_be_bytes()) => {\n"
        "                    late.push(frame.to_vec());\n"
        "                }\n"
        "                Frame::Whole(frame) => self.connection.frame(frame)?,\n"
        "                Frame::TooLong { head, length } => {\n"
        "                    self.connection.too_long(head, length, limit)?;\n"
        "                }\n"
        "            }\n"
        "            acted = true;\n"
        "        }\n"
        "        for frame in late {\n"
        "            self.connection.frame(&frame)?;\n"
        "        }\n",
    ),
    (
        "touch-at-its-answer",
        "a message counts as heard of from its answer instead of its sending",
        "src/transport/native/receive.rs",
        "self.shared.status.answered(pending.queued, self.heard);",
        "self.shared.status.answered(self.heard, self.heard);",
    ),
    (
        "no-pings",
        "a connection that is idle sends no pings",
        "crates/core/src/connection/link/arrivals.rs",
        "        self.queue.ping_after(self.pause_between_pings(), now);\n",
        "",
    ),
    # Requests on their way.
    (
        "writer-not-back",
        "a writer whose time is over keeps the outbox",
        "src/transport/native/shared.rs",
        "                state.put_writer(outbox);\n"
        "                // The rest leaves with the next request, or the threads that wait for\n"
        "                // answers write it.\n",
        "                drop(outbox);\n",
    ),
    (
        "lost-as-not-sent",
        "a request whose reply was lost counts as not sent",
        "crates/core/src/connection/link/request_queue.rs",
        "            None if pending.start < handed => Failure::Lost,\n",
        "",
        "            None if !{mutant} && pending.start < handed => Failure::Lost,\n",
    ),
    (
        "close-forgets-callers",
        "a close does not answer the open requests",
        "src/transport/native/shared.rs",
        "        for answer in open {\n            answer(Err(Failure::Closed));\n        }\n",
        "        drop(open);\n",
    ),
    # The I/O thread.
    (
        "watches-not-set-again",
        "a new connection does not set the watches again",
        "crates/core/src/connection/link.rs",
        "in self.watches.lists(self.last_zxid, root) {",
        "in self.watches.lists(self.last_zxid, root).into_iter().take(0) {",
        "in self.watches.lists(self.last_zxid, root).into_iter()"
        ".take(if {mutant} {{ 0 }} else {{ usize::MAX }}) {{",
    ),
    (
        "open-requests-forgotten",
        "the open requests of a connection that broke are not answered",
        "src/transport/native/io.rs",
        "            answer(Err(failure));\n",
        "            drop((answer, failure));\n",
    ),
    # The status.
    (
        "connects-not-counted",
        "a new connection looks like the one before",
        "src/transport/status.rs",
        "            snapshot.connects += 1;\n",
        "            snapshot.connects = 1;\n",
    ),
    (
        "look-then-subscribe",
        "a change of the status between a look and the subscription is missed",
        "src/session/caller.rs",
        "                self.changes();\n                continue;\n",
        "                self.changes();\n",
    ),
    (
        "guards-outlive-a-close",
        "guards are not told at once that their session is over",
        "src/transport/session_state.rs",
        "        self.over.settle(why);\n",
        "        let _ = why;\n",
    ),
    (
        "handshake-of-due",
        "a session that may have been due counts as resumed at once",
        "crates/core/src/lifetime.rs",
        "        let ended = at + ended_within(self.timeout);\n",
        "        let ended = Duration::ZERO;\n",
        "        let ended = if {mutant} {{ Duration::ZERO }} else {{ at + ended_within(self.timeout) }};\n",
    ),
    # What is late without a reason, or costs more than it must.
    (
        "late-grant-in-one-minimum",
        "whether to grant asks how long the guard is trusted, not how long the session lasts",
        "crates/core/src/validity.rs",
        "        next + took.max(timeout / 8) <= self.session_lasts(timeout)\n",
        "        next + took.max(timeout / 8) <= self.until(timeout)\n",
    ),
    (
        "late-pause-for-a-better-proof",
        "a thread that has a proof pauses until a better one can be had, whether it needs it or not",
        "crates/core/src/proof.rs",
        "        let provable_at = lifetime.provable_at(now).filter(|time| now < *time);\n",
        "        let provable_at = self.stamp.and_then(|stamp| lifetime.better_at(stamp));\n"
        "        let provable_at = provable_at.filter(|time| now < *time);\n",
        "        let provable_at = match {mutant} {{\n"
        "            true => self.stamp.and_then(|stamp| lifetime.better_at(stamp)),\n"
        "            false => lifetime.provable_at(now),\n"
        "        }}\n"
        "        .filter(|time| now < *time);\n",
    ),
    (
        "late-young-for-a-moment",
        "a proof is too old for a grant after T/60",
        "crates/core/src/validity.rs",
        "        let is_young = now < self.sent + young;\n",
        "        let is_young = now < self.sent + young / 10;\n",
        "        let is_young = now < self.sent + young / if {mutant} {{ 10 }} else {{ 1 }};\n",
    ),
    (
        "late-handshake-never-counts",
        "after every reset a lock waits until the leader must have heard of the session",
        "crates/core/src/lifetime.rs",
        "        let counts_at = if lasts(self.heard_of) {\n",
        "        let counts_at = if false {\n",
        "        let counts_at = if !{mutant} && lasts(self.heard_of) {{\n",
    ),
    (
        "late-proof-after-a-pause",
        "a thread pauses before it asks for a proof",
        "src/session/confirm_grant.rs",
        "            let Ok(answers) = caller.prove(nodes, limit) else {\n",
        "            let _ = caller.breathe(limit);\n"
        "            let Ok(answers) = caller.prove(nodes, limit) else {\n",
        "            if {mutant} {{ let _ = caller.breathe(limit); }}\n"
        "            let Ok(answers) = caller.prove(nodes, limit) else {{\n",
    ),
    (
        "late-proof-twice",
        "a proof is asked for twice",
        "crates/core/src/proof.rs",
        "        self.stamp = Some(stamp);\n",
        "        self.stamp = (self.proofs > 0).then_some(stamp);\n",
    ),
    (
        "late-proof-for-every-grant",
        "the creation of the node does not count as a proof",
        "crates/core/src/proof.rs",
        "        self.stamp.filter(here)\n",
        "        self.stamp.filter(here).filter(|_| 0 < self.proofs)\n",
        "        self.stamp.filter(here).filter(|_| !{mutant} || 0 < self.proofs)\n",
    ),
    (
        "costly-proof-in-line",
        "the first one in line has its node confirmed eight times as often",
        "crates/core/src/proof.rs",
        "stamp.sent + timeout / 6 - before)",
        "stamp.sent + (timeout / 6 - before) / 8)",
        "stamp.sent + (timeout / 6 - before) / if {mutant} {{ 8 }} else {{ 1 }})",
    ),
    (
        "late-proof-after-listing",
        "a proof that is due leaves when the listing is there",
        "crates/core/src/acquisition/sends.rs",
        "            if mem::take(&mut self.has_moved) {",
        "            if mem::take(&mut self.has_moved) && self.path.is_empty() {",
        "            if mem::take(&mut self.has_moved) && !{mutant} {{",
    ),
    (
        "late-listing-not-pipelined",
        "the queue is listed after the creation is answered",
        "crates/core/src/acquisition/sends.rs",
        "        } else if !self.attempt.expects_nobody() {",
        "        } else if self.path.is_empty() {",
        "        }} else if !{mutant} && !self.attempt.expects_nobody() {{",
    ),
    (
        "late-listing-forgotten",
        "a listing that came with the creation is asked for again",
        "crates/core/src/acquisition/sends.rs",
        "        if !self.is_on_its_way(|step| *step == Step::List) {\n            self.list_too(wire);\n            if",
        "        if self.flight.len() < 3 {\n            self.list_too(wire);\n            if",
        "        if {mutant} && self.flight.len() < 3 || !self.is_on_its_way(|step| *step == Step::List) {{\n"
        "            self.list_too(wire);\n            if",
    ),
    (
        "late-woken-to-list",
        "a waiter that nobody is ahead of lists the queue",
        "crates/core/src/acquisition/progress.rs",
        "                true => Event::Deleted,\n",
        "                true => Event::Woken,\n",
        "                true if {mutant} => Event::Woken,\n                true => Event::Deleted,\n",
    ),
    (
        "late-beyond-unheard",
        "a waiter does not list the queue while the nearest node holds, but when its turn has come",
        "crates/core/src/acquisition/progress.rs",
        "            true if self.watches.is_seen => Event::BeyondDeleted,\n",
        "            true if self.watches.is_seen => return None,\n",
        "            true if {mutant} && self.watches.is_seen => return None,\n"
        "            true if self.watches.is_seen => Event::BeyondDeleted,\n",
    ),
    (
        "costly-heartbeat",
        "a lock is confirmed twice as often",
        "crates/core/src/validity.rs",
        "        let regular = self.sent + timeout / PROVEN_EVERY;\n",
        "        let regular = self.sent + timeout / PROVEN_EVERY / 2;\n",
        "        let regular = self.sent + timeout / PROVEN_EVERY / if {mutant} {{ 2 }} else {{ 1 }};\n",
    ),
    (
        "late-limit-rounded-up",
        "a limit ends at the next whole millisecond, and one more",
        "src/time/limit.rs",
        "            match wait_any(&all, until) {\n",
        "            match wait_any(&all, until.map(|until| until + Duration::from_millis(1))) {\n",
        "            match wait_any(&all, until.map(|until| until + Duration::from_millis(u64::from({mutant})))) {{\n",
    ),
    # The heartbeat and the leases.
    (
        "proof-at-its-answer",
        "a check counts from its answer instead of its sending",
        "src/session/leases.rs",
        "                        lease.confirm(*stamp);\n",
        "                        let late = clock::since_boot().saturating_sub(stamp.sent);\n"
        "                        let (sent, touched) = (stamp.sent + late, stamp.touched + late);\n"
        "                        lease.confirm(Stamp { sent, touched });\n",
        "                        let late = clock::since_boot().saturating_sub(stamp.sent) * u32::from({mutant});\n"
        "                        let (sent, touched) = (stamp.sent + late, stamp.touched + late);\n"
        "                        lease.confirm(Stamp {{ sent, touched }});\n",
    ),
    (
        "heartbeat-late",
        "the background thread sleeps until the last thing is due, not the first",
        "crates/core/src/renewals.rs",
        "        Some(pauses.min().unwrap_or(look.timeout / 6))\n",
        "        Some(pauses.max().unwrap_or(look.timeout / 6))\n",
        "        let pauses: Vec<_> = pauses.collect();\n"
        "        let pause = if {mutant} {{ pauses.into_iter().max() }} else {{ pauses.into_iter().min() }};\n"
        "        Some(pause.unwrap_or(look.timeout / 6))\n",
    ),
    (
        "heartbeat-not-armed",
        "a lock that is granted does not wake the background thread in its long sleep",
        "src/session/leases.rs",
        "        self.next_look(None);\n",
        "",
    ),
    (
        "lease-begins-unnoticed",
        "the background thread is not told of a lock that is granted",
        "src/session/leases.rs",
        "            let _ = self.wake.try_send(());\n",
        "",
    ),
    (
        "handed-on-after-suspect",
        "a lock that is suspect is handed on as if it were held",
        "src/session/lease.rs",
        "        (free && self.state() == GuardState::Held).then(|| Self::of(self.life.clone()))\n",
        "        (free && self.check().is_ok()).then(|| {\n"
        "            let sent = since_boot();\n"
        "            self.confirm(Stamp { sent, touched: sent });\n"
        "            Self::of(self.life.clone())\n"
        "        })\n",
    ),
    (
        "shared-after-loss",
        "a thread enters a lock again that it has lost",
        "src/reentrant_mutex.rs",
        "            held.raw.check()?;\n",
        "",
    ),
    # The cleaner.
    (
        "cleanup-dropped",
        "a deletion whose answer was lost with the connection is not repeated",
        "src/session/cleaner.rs",
        "        if answered == Err(Failure::Closed) {\n",
        "        if matches!(answered, Err(Failure::Closed | Failure::Lost)) {\n",
        "        if answered == Err(Failure::Closed)\n"
        "            || (answered == Err(Failure::Lost) && {mutant}) {{\n",
    ),
    (
        "cleanup-stays-under-way",
        "a deletion that was not sent counts as under way for ever",
        "crates/core/src/deletions/deletion.rs",
        "        self.turn = Turn::Due;\n",
        "",
    ),
    (
        "cleanup-asked-twice",
        "two requests of one cleanup are under way, and one's answer is taken for the other's",
        "crates/core/src/deletions/deletion.rs",
        "        if self.turn == Turn::Asked || self.is_done() {\n",
        "        if self.is_done() {\n",
        "        if !{mutant} && self.turn == Turn::Asked || self.is_done() {{\n",
    ),
    (
        "ticket-answered-twice",
        "the thread that waits for a release hears of one node twice",
        "src/session/cleaner.rs",
        "        let told = self.waiters.drain(..);\n",
        "        let told = self.waiters.clone().into_iter();\n",
        "        let kept = if {mutant} {{ self.waiters.clone() }} else {{ Vec::new() }};\n"
        "        let told = mem::replace(&mut self.waiters, kept).into_iter();\n",
    ),
    # A calling thread.
    (
        "early-answers-dropped",
        "an answer that comes while another one is waited for is dropped",
        "src/session/caller.rs",
        "            let letter = self.transport.receive(&self.answers, limit)?;\n"
        "            self.keep(letter);\n",
        "            let letter = self.transport.receive(&self.answers, limit)?;\n"
        "            self.keep(letter);\n"
        "            self.early.retain(|(early, _)| *early == call_id);\n",
    ),
    (
        "limit-begins-anew",
        "the limit of a call begins anew when it waits for a connection",
        "src/session/caller.rs",
        "            match limit.wait_any_for(pause, &[&changes]) {\n",
        "            let left = |until: std::time::Instant| {\n"
        "                until.saturating_duration_since(crate::system::clock::now()) + limit.spent()\n"
        "            };\n"
        "            let anew = limit.deadline().map(left).map(crate::time::limit::from_now);\n"
        "            let limit = &Limit::new(anew, None);\n"
        "            match limit.wait_any_for(pause, &[&changes]) {\n",
        "            let left = |until: std::time::Instant| {{\n"
        "                until.saturating_duration_since(crate::system::clock::now()) + limit.spent()\n"
        "            }};\n"
        "            let anew = limit.deadline().map(left).map(crate::time::limit::from_now);\n"
        "            let anew = &Limit::new(anew, None);\n"
        "            let limit = if {mutant} {{ anew }} else {{ limit }};\n"
        "            match limit.wait_any_for(pause, &[&changes]) {{\n",
    ),
    # The line of threads.
    (
        "turn-lost-in-a-panic",
        "a thread that panics does not call the next one in line",
        "src/local/turnstile.rs",
        "        if self.turnstile.process.is_another() {\n",
        "        if self.turnstile.process.is_another() || thread::panicking() {\n",
    ),
    (
        "turn-lost-at-the-limit",
        "a turn that comes just when the limit is reached is lost",
        "src/local/turnstile.rs",
        "        if let Ok(handed) = called.try_recv() {\n",
        "        if let Ok(handed) = called.try_recv()\n            && closed\n        {\n",
        "        if let Ok(handed) = called.try_recv()\n            && (closed || !{mutant})\n        {{\n",
    ),
    (
        "heir-has-left",
        "a lock stays in the line of threads when its heir has left",
        "src/local/turnstile.rs",
        "            false => self.handed.take(),\n",
        "            false => None,\n",
        "            false if {mutant} => None,\n            false => self.handed.take(),\n",
    ),
    (
        "close-forgets-the-line",
        "a close does not send those away who wait in line",
        "src/local/turnstile.rs",
        "            line.waiting.clear();\n",
        "            line.streak = 0;\n",
    ),
    (
        "handed-on-and-given-up",
        "a lock that was handed on is given up, too",
        "src/lock/raw_guard/release.rs",
        "            self.watched = None;\n",
        "",
    ),
    # A waiting thread.
    (
        "looks-then-listens",
        "a change of the connection between a look and the subscription is missed",
        "src/lock/driver/wait.rs",
        "        if quiet && self.listen() {\n",
        "        if quiet && self.listen() && self.queue.path.is_empty() {\n",
        "        if quiet && self.listen() && !{mutant} {{\n",
    ),
    (
        "waits-without-listening",
        "a waiting thread does not hear of changes of the connection",
        "src/lock/driver/wait.rs",
        "        if self.listening.is_some() {\n            return false;",
        "        if self.listening.is_none() {\n            return false;",
        "        if self.listening.is_some() || {mutant} {{\n            return false;",
    ),
    (
        "gone-while-watched",
        "a node that went before it was watched is waited for",
        "crates/core/src/acquisition/answers.rs",
        "        is_its_turn.then_some(Event::NoNode)\n",
        "        is_its_turn.then_some(Event::Watching)\n",
        "        is_its_turn.then_some(if {mutant} {{ Event::Watching }} else {{ Event::NoNode }})\n",
    ),
    (
        "heard-early-forgotten",
        "what is heard while an answer is waited for is forgotten",
        "crates/core/src/acquisition.rs",
        "        self.events.push_back((name.into(), kind));",
        "        if self.is_waiting() {\n            self.events.push_back((name.into(), kind));\n        }",
        "        if self.is_waiting() || !{mutant} {{\n            self.events.push_back((name.into(), kind));\n        }}",
    ),
    (
        "create-at-its-answer",
        "the creation of a node counts as a proof from its answer on",
        "crates/core/src/acquisition/answers.rs",
        "GrantProof::answered(stamp, wire.now())",
        "GrantProof::answered({ let _ = stamp; wire.stamp() }, wire.now())",
    ),
    (
        "another-session-adopted",
        "a node that was created in another session is taken for a node of this one",
        "crates/core/src/attempt.rs",
        "        if self.session.is_some_and(|session| session != origin.owner) {\n",
        "        if false {\n",
    ),
    (
        "grant-proof-at-its-answer",
        "the proof of the first one in line counts from its answer on",
        "crates/core/src/acquisition/answers.rs",
        "                if self.proof.confirmed(stamp, counts, wire.now()) {",
        "                if self.proof.confirmed(wire.stamp(), counts, wire.now()) {",
        "                if self.proof.confirmed(if {mutant} {{ wire.stamp() }} else {{ stamp }}, counts, wire.now()) {{",
    ),
    (
        "answers-of-another-session",
        "what was asked in the session before is taken for news of this one",
        "crates/core/src/acquisition.rs",
        "        let answered = match is_create || wire.is_same_session() {",
        "        let answered = match is_create || !is_create {",
        "        let answered = match {mutant} || is_create || wire.is_same_session() {{",
    ),
    # The grant.
    (
        "grant-at-its-answer",
        "the proof of a grant counts from its answer instead of its sending",
        "src/session/confirm_grant.rs",
        "            match judge(self.transport.transacts(), &answers) {\n",
        "            let stamp = self.status.stamp();\n"
        "            match judge(self.transport.transacts(), &answers) {\n",
        "            let stamp = if {mutant} {{ self.status.stamp() }} else {{ stamp }};\n"
        "            match judge(self.transport.transacts(), &answers) {{\n",
    ),
    (
        "grant-on-an-old-proof",
        "a lock is granted on a proof of any age",
        "crates/core/src/proof.rs",
        "        if stamp.is_some_and(|stamp| lifetime.supports_a_grant(stamp, asked, now)) {\n",
        "        if self.stamp.is_some() {\n",
        "        if {mutant} && self.stamp.is_some()"
        " || stamp.is_some_and(|stamp| lifetime.supports_a_grant(stamp, asked, now)) {{\n",
    ),
    # Jobs: the seeds that are 11 beyond a multiple of 16.
    (
        "job-any-version",
        "a run is begun on whatever the journal has become",
        "src/job/driver.rs",
        "            Request::set(path, data, version),",
        "            Request::set(path, data, -1),",
        "            Request::set(path, data, if {mutant} {{ -1 }} else {{ version }}),",
    ),
    (
        "job-without-its-node",
        "a run is begun, whether its node is there or not",
        "src/job/driver.rs",
        "            Request::check(grant.raw.node()),",
        "            Request::check(path),",
        "            Request::check(if {mutant} {{ path }} else {{ grant.raw.node() }}),",
    ),
    (
        "job-takes-any-run",
        "a holder takes any run for its own",
        "crates/core/src/job.rs",
        "        if running.is_some_and(|run| self.is_ours(run, token)) {\n            return State::Run",
        "        if running.is_some() {\n            return State::Run",
        "        if running.is_some_and(|run| {mutant} || self.is_ours(run, token)) {{\n"
        "            return State::Run",
    ),
    (
        "job-slot-below-again",
        "a slot below the last one that is done is due",
        "crates/core/src/journal/marks.rs",
        "is_some_and(|highest| slot <= highest)",
        "is_some_and(|_| false)",
        "is_some_and(|highest| slot <= highest && !{mutant})",
    ),
    (
        "job-counts-nothing",
        "an attempt is not counted when it begins",
        "crates/core/src/journal.rs",
        "        self.attempts.insert(run.slot.clone(), run.attempt);\n",
        "",
    ),
    (
        "job-forgets-the-dead",
        "a run that nobody ended is forgotten",
        "crates/core/src/journal.rs",
        "            self.history.push(self.failed.replace(run));\n            self.trim();\n",
        "            drop(run);\n            self.trim();\n",
    ),
    (
        "job-gone-is-recorded",
        "a lost answer to the end counts as an end",
        "src/job/driver.rs",
        "            Ok(Some(false)) => Event::Gone,\n",
        "            Ok(Some(false)) => Event::Recorded,\n",
        "            Ok(Some(false)) if !{mutant} => Event::Gone,\n            Ok(Some(false)) => Event::Recorded,\n",
    ),
    (
        "job-late-is-gone",
        "what the end is, is read while it may still come",
        "src/job/driver.rs",
        "            Ok(None) => Event::Cancel,\n",
        "            Ok(None) => Event::Gone,\n",
        "            Ok(None) if {mutant} => Event::Gone,\n"
        "            Ok(None) => Event::Cancel,\n",
    ),
    (
        "job-in-another-session",
        "a run is begun on what was read in another session than its lock's",
        "src/job/driver.rs",
        "        if self.grant.is_some() && !self.is_same_session() && answered.is_ok() {",
        "        if false {",
    ),
    (
        "job-old-attempts",
        "attempts are counted in whatever journal a server shows",
        "crates/core/src/job.rs",
        "            return match now {\n",
        "            return match now.or(Some(0)) {\n",
        "            return match now.or({mutant}.then_some(0)) {{\n",
    ),
    (
        "job-panic-unwritten",
        "a panic is not written down as a failure",
        "src/job/driver.rs",
        "        if let Some((data, version)) = panicked {",
        "        if let Some((data, version)) = panicked.filter(|_| false) {",
        "        if let Some((data, version)) = panicked.filter(|_| !{mutant}) {{",
    ),
    (
        "job-lists-without-limit",
        "a call that does not wait lists the line without its limit",
        "src/job/driver.rs",
        "        let limit = || self.request.limit.clone();\n",
        "        let limit = Session::query_limit;\n",
        "        let limit = || match {mutant} {{\n"
        "            true => Session::query_limit(),\n"
        "            false => self.request.limit.clone(),\n"
        "        }};\n",
    ),
    (
        "job-cursor-without-mark",
        "a run that failed leaves its state for the next one, too",
        "crates/core/src/journal.rs",
        "            Outcome::Failed | Outcome::Unknown => self.history.push(self.failed.replace(run)),\n",
        "            Outcome::Failed | Outcome::Unknown => {\n"
        "                self.state = state.or(self.state);\n"
        "                self.history.push(self.failed.replace(run));\n            }\n",
        "            Outcome::Failed | Outcome::Unknown => {{\n"
        "                if {mutant} {{\n                    self.state = state.or(self.state);\n"
        "                }}\n                self.history.push(self.failed.replace(run));\n            }}\n",
    ),
    (
        "job-mark-without-cursor",
        "a run that is done by itself leaves no state for the next one",
        "crates/core/src/journal.rs",
        "                self.state = state.or(self.state);\n",
        "                self.state = state.filter(|_| !by_itself).or(self.state);\n",
    ),
    # Creates that leave with the release of the thread before.
    (
        "early-create-left",
        "the create of a thread that gave up, sent by another, is left in the queue",
        "src/lock/driver/wired.rs",
        "            cleaner.add(&self.dir, sent.session, vec![node]);",
        "            drop((cleaner, sent.session, vec![node]));",
        "            if !{mutant} {{\n"
        "                cleaner.add(&self.dir, sent.session, vec![node]);\n"
        "            }}",
    ),
    (
        "early-create-answer-left",
        "what a create has left that nobody waits for any more is not cleaned up",
        "src/session/early_create.rs",
        "                false => drop(delete_and_create::orphan(created, &early.prefix).map(left)),",
        "                false => drop((delete_and_create::orphan(created, &early.prefix), left)),",
        "                false => drop(delete_and_create::orphan(created, &early.prefix).filter(|_| !{mutant}).map(left)),",
    ),
    (
        "early-create-looked-for-too-soon",
        "a create that another thread may not have sent yet is looked for at once",
        "src/lock/driver/wired.rs",
        "if let Some(sent) = self.create.give_up() {",
        "if let Some(sent) = self.create.settle() {",
        "if let Some(sent) = if {mutant} {{ self.create.settle() }} else {{ self.create.give_up() }} {{",
    ),
    (
        "early-create-lost-is-unsent",
        "a transaction whose reply was lost counts as not sent for the create",
        "crates/core/src/delete_and_create.rs",
        "        Err(failure) => return (Err(failure), Err(failure)),",
        "        Err(failure) => return (Err(failure), Err(Failure::NotSent)),",
        "        Err(failure) if {mutant} => return (Err(failure), Err(Failure::NotSent)),\n"
        "        Err(failure) => return (Err(failure), Err(failure)),",
    ),
    (
        "early-create-proves-later",
        "a create sent by another thread counts as a proof of when it is read",
        "src/lock/driver/wired.rs",
        "then_some((self, sent.stamp))",
        "then(|| (self.session.status.stamp(), self)).map(|(now, early)| (early, now))",
        "then(|| (self.session.status.stamp(), self))\n"
        "            .map(|(now, early)| (early, if {mutant} {{ now }} else {{ sent.stamp }}))",
    ),
    # Standby: the seeds that are 3 beyond a multiple of 16.
    (
        "standby-deaf-in-its-pause",
        "the pause between two terms does not hear of a client that is closed",
        "src/standby.rs",
        "            if caller.rest(pause, &limit).is_err() {",
        "            drop(caller);\n            if limit.wait_any_for(Some(pause), &[]).is_err() {",
        "            if {mutant} && limit.wait_any_for(Some(pause), &[]).is_err() {{\n"
        "                return Ok(());\n            }}\n"
        "            if !{mutant} && caller.rest(pause, &limit).is_err() {{",
    ),
    (
        "standby-gives-up",
        "who was deleted from the line gives up",
        "src/standby.rs",
        "                Err(Error::Evicted { node }) => {\n",
        "                Err(Error::Evicted { node }) if node.is_empty() => {\n",
        "                Err(Error::Evicted {{ node }}) if !{mutant} => {{\n",
    ),
    (
        "standby-ends-early",
        "the second term ends the call",
        "src/standby.rs",
        "            if done.is_break() || limit.is_over() {",
        "            if done.is_break() || limit.is_over() || number == 2 {",
        "            if done.is_break() || limit.is_over() || {mutant} && number == 2 {{",
    ),
    (
        "standby-waits-past-its-cancel",
        "a wait in the line is not cancelled",
        "src/standby.rs",
        "            if let Some(cancel) = cancel {\n",
        "            if let Some(cancel) = cancel.filter(|_| false) {\n",
        "            if let Some(cancel) = cancel.filter(|_| !{mutant}) {{\n",
    ),
    (
        "standby-counts-from-zero",
        "a term after the first one has its number",
        "src/standby.rs",
        "            number += 1;",
        "            number = 1;",
        "            number += 1;\n            if {mutant} {{\n                number = 1;\n            }}",
    ),
    # What outlives a process, and what is divided: the seeds that are 1, 12 and 14 beyond a multiple
    # of 16.
    (
        "hold-by-own-clock",
        "a hold is removed when it is over by the clock of the waiter's machine",
        "crates/core/src/acquisition/holds.rs",
        "        let time = self.holds.clock.time(wire.now());",
        "        let time = wire.probable_time();",
        "        let time = if {mutant} {{ wire.probable_time() }} else {{ self.holds.clock.time(wire.now()) }};",
    ),
    (
        "hold-looked-at-once",
        "a waiter does not look again when a hold is over",
        "crates/core/src/acquisition/holds.rs",
        "            self.holds.again = Some(self.holds.again.map_or(at, |again| again.min(at)));\n",
        "            let _ = at;\n",
    ),
    (
        "hold-first-alone",
        "a waiter looks at the first hold ahead alone",
        "crates/core/src/acquisition/holds.rs",
        "        let asked: Vec<_> = ahead.iter().map(seen).collect();",
        "        let asked: Vec<_> = ahead.iter().map(seen).take(1).collect();",
        "        let asked: Vec<_> = ahead.iter().map(seen).take(if {mutant} {{ 1 }} else {{ 99 }}).collect();",
    ),
    (
        "hold-unannounced",
        "a hold takes the place of a node that was not written before",
        "src/lock/hold.rs",
        "            .filter(passes_on)\n",
        "            .filter(|_| false)\n",
        "            .filter(|name| !{mutant} && passes_on(name))\n",
    ),
    (
        "hold-beside-its-lock",
        "the transaction that makes a hold does not delete the lock's node",
        "src/lock/hold.rs",
        "        let ops = [Some(create), write, Some(delete)];",
        "        let ops = [Some(create), write, Some(delete).filter(|_| false)];",
        "        let ops = [Some(create), write, Some(delete).filter(|_| !{mutant})];",
    ),
    (
        "pause-made-twice",
        "a pause whose answer was lost is made again, without a look",
        "src/lock/hold.rs",
        "                    if let Some(name) = mine.ok().as_deref().and_then(<[_]>::first) {",
        "                    if let Some(name) = mine.ok().as_deref().and_then(|mine| mine.get(9)) {",
        "                    let nth = if {mutant} {{ 9 }} else {{ 0 }};\n"
        "                    if let Some(name) = mine.ok().as_deref().and_then(|mine| mine.get(nth)) {{",
    ),
    (
        "number-any-version",
        "a number is claimed whatever others have claimed since the look",
        "src/semaphore/number.rs",
        "            Request::set(leases, self.data.clone(), version),",
        "            Request::set(leases, self.data.clone(), version.min(-1)),",
        "            Request::set(leases, self.data.clone(), if {mutant} {{ -1 }} else {{ version }}),",
    ),
    (
        "number-lost-is-claimed",
        "a claim whose answer was lost counts",
        "crates/core/src/permit_number.rs",
        "            (State::Claim(..), Event::Changed | Event::ReplyLost) => State::Look,",
        "            (State::Claim(number, _), Event::ReplyLost) => State::Finish(Outcome::Held(number)),\n"
        "            (State::Claim(..), Event::Changed) => State::Look,",
        "            (State::Claim(number, _), Event::ReplyLost) if {mutant} => {{\n"
        "                State::Finish(Outcome::Held(number))\n            }}\n"
        "            (State::Claim(..), Event::Changed | Event::ReplyLost) => State::Look,",
    ),
    (
        "number-not-given-up",
        "a permit is released without its number",
        "src/lock/raw_guard/release.rs",
        "        let Some(claim) = self.lease.claim() else {",
        "        let Some(claim) = self.lease.claim().filter(|_| false) else {",
        "        let Some(claim) = self.lease.claim().filter(|_| !{mutant}) else {{",
    ),
    (
        "shards-not-locked",
        "each process has locks of its own for the shards",
        "src/shards.rs",
        '        let standby = Standby::new(locks, &format!("{path}/{shard}"))?;',
        "        let mine = crate::system::process::id();\n"
        '        let standby = Standby::new(locks, &format!("{path}/{shard}-{mine}"))?;',
        '        let mine = if {mutant} {{ format!("-{{}}", crate::system::process::id()) }} else {{ String::new() }};\n'
        '        let standby = Standby::new(locks, &format!("{{path}}/{{shard}}{{mine}}"))?;',
    ),
    (
        "shards-kept",
        "a shard that has gone to another member is kept",
        "src/shards.rs",
        "            if !self.owned.contains(shard) {",
        "            if self.owned.is_empty() {",
    ),
    (
        "shards-of-the-first-look",
        "a member does not hear of those that come later",
        "src/shards.rs",
        "                    self.owned = shards_of(&members, &mine, self.shards.count);",
        "                    if self.owned.is_empty() {\n"
        "                        self.owned = shards_of(&members, &mine, self.shards.count);\n"
        "                    }",
        "                    if !{mutant} || self.owned.is_empty() {{\n"
        "                        self.owned = shards_of(&members, &mine, self.shards.count);\n"
        "                    }}",
    ),
    # A lock that goes to another process.
    (
        "mark-not-read-back",
        "the answer to the mark's write tells whose the lock is",
        "src/lock/hand_over.rs",
        "                    Ok(_) | Err(ErrorCode::BAD_VERSION | ErrorCode::NO_NODE),\n"
        "                    Ok(Reply::Data { data, stat }),\n"
        "                ],\n"
        "            ) => {\n"
        "                self.is_ours(stat)?;\n",
        "                    written @ (Ok(_) | Err(ErrorCode::BAD_VERSION | ErrorCode::NO_NODE)),\n"
        "                    Ok(Reply::Data { data, stat }),\n"
        "                ],\n"
        "            ) => {\n"
        "                self.is_ours(stat)?;\n"
        "                if written.is_ok() {\n"
        "                    return Ok(true);\n"
        "                }\n",
        "                    written @ (Ok(_) | Err(ErrorCode::BAD_VERSION | ErrorCode::NO_NODE)),\n"
        "                    Ok(Reply::Data {{ data, stat }}),\n"
        "                ],\n"
        "            ) => {{\n"
        "                self.is_ours(stat)?;\n"
        "                if {mutant} && written.is_ok() {{\n"
        "                    return Ok(true);\n"
        "                }}\n",
    ),
    (
        "numbers-begin-anew",
        "the requests of each connection of a session begin with the same number",
        "crates/core/src/connection/link/request_queue.rs",
        "            last_xid,\n            sent:",
        "            last_xid: last_xid & 0,\n            sent:",
        "            last_xid: if {mutant} {{ 0 }} else {{ last_xid }},\n            sent:",
    ),
    # Creates that are carried out late.
    (
        "late-create-not-looked-for",
        "a create that was looked for and not found is not looked for again",
        "crates/core/src/deletions/leftover.rs",
        "        (now < until).then_some(look)\n",
        "        (Duration::MAX < until).then_some(look)\n",
        "        (now < until && !{mutant}).then_some(look)\n",
    ),
    (
        "late-create-by-the-same-name",
        "a create that was not found is sent again by the same name",
        "crates/core/src/attempt.rs",
        "            self.orphans.push(Orphan::Prefix(asked));\n",
        "            self.prefix.clone_from(&asked);\n",
        "            if {mutant} {{\n"
        "                self.prefix.clone_from(&asked);\n"
        "            }} else {{\n"
        "                self.orphans.push(Orphan::Prefix(asked));\n"
        "            }}\n",
    ),
    # Several locks, some of which are read, and several permits.
    (
        "several-wait-as-readers",
        "each of several locks is waited for as if it was to be read",
        "src/lock/multi.rs",
        "    Queue::of(&part.path, part.role)\n",
        "    Queue::of(&part.path, Role::Read)\n",
    ),
    (
        "several-named-as-readers",
        "the nodes of several locks are those of readers",
        "crates/core/src/multi.rs",
        "        let prefixes = roles.iter().map(|role| prefix(dialect, *role, id));\n",
        "        let prefixes = roles.iter().map(|_| prefix(dialect, Role::Read, id));\n",
        "        let role = |role: &Role| if {mutant} {{ Role::Read }} else {{ *role }};\n"
        "        let prefixes = roles.iter().map(|one| prefix(dialect, role(one), id));\n",
    ),
    (
        "seats-joined-in-part",
        "the guard of several permits has the last one's node alone",
        "src/lock/join_guards.rs",
        "        let nodes = all.iter().flat_map(|raw| raw.nodes().to_vec()).collect();\n",
        "        let nodes = all.iter().skip(1).flat_map(|raw| raw.nodes().to_vec()).collect();\n",
        "        let some = all.iter().skip(usize::from({mutant}));\n"
        "        let nodes = some.flat_map(|raw| raw.nodes().to_vec()).collect();\n",
    ),
    (
        "seats-kept",
        "the permits of a call that queues again are kept",
        "src/semaphore/driver.rs",
        "        self.held.clear();\n",
        "        mem::take(&mut self.held).into_iter().for_each(RawGuard::hand_over);\n",
    ),
]


def main():
    args = arguments()
    check_table()
    chosen = [mutant for mutant in MUTANTS if not args.only or mutant[0] in args.only]
    several = [name for name in args.only if "+" in name]
    if several and not args.together:
        sys.exit("several mutants in one take --together")
    chosen += [(name, "all of these", None, None, None) for name in several]
    named = {part for name in args.only for part in name.split("+")}
    unknown = named - {mutant[0] for mutant in MUTANTS} - {UNMUTATED}
    if unknown:
        sys.exit(f"no such mutant: {', '.join(sorted(unknown))}")
    if UNMUTATED in args.only:
        chosen.insert(0, (UNMUTATED, "the client that ships", None, None, None))
    if args.list:
        for name, what, file, *_ in chosen:
            print(f"{name:26} {(file or '').removeprefix('src/'):32} {what}")
        return
    rows = []
    for mutant in chosen:
        rows.append((mutant, examine(mutant, args)))
        name, outcome = mutant[0], rows[-1][1]
        print(f"{name}: {outcome.said()}", flush=True)
        if args.markdown:
            Path(args.markdown).write_text(markdown(rows))
    print("\n" + markdown(rows))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--list", action="store_true", help="list the mutants, and end")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME",
        help=f"only this mutant; may be repeated; `{UNMUTATED}` is the client as it is, "
        "and A+B is two in one",
    )
    parser.add_argument("--seeds", type=int, default=20000, help="at most so many seeds each")
    parser.add_argument("--seconds", type=int, default=1800, help="at most so long each")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--every", type=int, default=1, help="only every so manyth seed")
    parser.add_argument(
        "--together", action="store_true",
        help="compile all mutants into one program, which an environment variable tells apart",
    )
    parser.add_argument("--markdown", metavar="FILE", help="write the table there, as it grows")
    parser.add_argument(
        "--scratch", type=Path, default=ROOT / "target" / "mutants",
        help="where the mutants are compiled",
    )
    return parser.parse_args()


def check_table():
    """Ends the program if the table does not fit the sources."""
    wrong = []
    names = [mutant[0] for mutant in MUTANTS]
    wrong += [f"{name}: not the only one of this name" for name in names if names.count(name) > 1]
    for name, _, file, old, new, *_ in MUTANTS:
        count = (ROOT / file).read_text().count(old)
        if count != 1:
            wrong.append(f"{name}: its old text occurs {count} times in {file}")
        if old == new:
            wrong.append(f"{name}: changes nothing")
    if wrong:
        sys.exit("\n".join(wrong))


class Outcome:
    def __init__(self, played, seed=None, violation="", took=0.0):
        self.played, self.seed, self.violation, self.took = played, seed, violation, took

    def said(self):
        if self.seed is None:
            return f"not caught in {self.played} seeds ({self.took:.0f} s) {self.violation}".strip()
        return f"caught by seed {self.seed}, the {self.played}. ({self.took:.0f} s): {self.violation}"


def examine(mutant, args):
    name = mutant[0]
    if args.together:
        copy(args.scratch, all_in_one())
    else:
        copy(args.scratch, {mutant[2]: [mutant[3:5]]})
    program, complaint = build(args.scratch)
    if program is None:
        print(complaint, file=sys.stderr)
        return Outcome("any", violation="as it does not compile")
    began = time.monotonic()
    played = 0
    # In portions, so that it is known how many seeds were played when the time runs out.
    while played < args.seeds:
        left = args.seconds - (time.monotonic() - began)
        portion = min(PORTION, args.seeds - played)
        first = args.first + played * args.every
        seed, story = play(program, name, first, portion, args.every, args.scratch, left)
        took = time.monotonic() - began
        if seed is not None:
            played = (seed - args.first) // args.every + 1
            return Outcome(played, seed, story, took)
        if story is not None:
            return Outcome(played, violation=story, took=took)
        played += portion
    return Outcome(played, took=took)


PORTION = 1000


def play(program, name, first, seeds, every, scratch, seconds):
    """Plays a few seeds; the one that failed, if any, and why it goes no further, if so."""
    if seconds <= 0:
        return None, "before the time was over"
    command = [
        str(program), "--first", str(first), "--seeds", str(seeds), "--every", str(every),
        "--unshrunk",
    ]
    # A group of its own, so that nothing of it is left at the limit.
    playing = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        errors="replace", start_new_session=True, cwd=scratch,
        env=dict(os.environ, ZKLOCK_MUTANT=name),
    )
    try:
        said, _ = playing.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None, "before the time was over"
    finally:
        if playing.poll() is None:
            os.killpg(playing.pid, signal.SIGKILL)
            playing.communicate()
    failed = re.search(r"^seed (\d+) fails:$", said, re.M)
    if failed:
        return int(failed[1]), violation(said[failed.end():])
    if playing.returncode != 0:
        return None, f"as the program ended with {playing.returncode}"
    return None, None


def all_in_one():
    """The changes that make one program of all mutants; a variable says which one it is.

    Where one old text is a part of another, the longer one is replaced first, and what takes its
    place has the shorter one.
    """
    changes = {}
    for name, _, file, old, new, *both in sorted(MUTANTS, key=lambda mutant: -len(mutant[3])):
        is_it = f'crate::is_mutant("{name}")'
        text = both[0].format(mutant=is_it) if both else switched(is_it, old, new)
        changes.setdefault(file, []).append((old, text))
    for file, replaced in changes.items():
        content = mutated((ROOT / file).read_bytes(), replaced)
        lost = [name for name, _, of, *_ in MUTANTS if of == file and f'"{name}"'.encode() not in content]
        if lost:
            sys.exit(f"one replacement hides another: {', '.join(lost)} in {file}")
    for crate in ["src", "crates/core/src"]:
        changes[f"{crate}/lib.rs"] = [(None, IS_MUTANT)]
    return changes


def switched(is_it, old, new):
    condition = re.compile(r"( *(?:while|if) )([^\n]*)( \{(?:\n.*)?)", re.S)
    before, after = condition.fullmatch(old), condition.fullmatch(new)
    if before and after and before[3] == after[3]:
        return f"{before[1]}(if {is_it} {{ {after[2]} }} else {{ {before[2]} }}){before[3]}"
    return f"if {is_it} {{\n{new}}} else {{\n{old}}}\n"


# The core has no `std` of its own.
IS_MUTANT = """
extern crate std as all;
pub(crate) fn is_mutant(name: &str) -> bool {
    static CHOSEN: all::sync::OnceLock<all::string::String> = all::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| all::env::var("ZKLOCK_MUTANT").unwrap_or_default());
    chosen.split('+').any(|one| one == name)
}
"""


def mutated(content, changes):
    for old, new in changes:
        content = content.replace(old.encode(), new.encode()) if old else content + new.encode()
    return content


def copy(scratch, changes):
    """Brings the scratch folder up to date; what has not changed is not touched."""
    wanted = {}
    for top in COPIED:
        top = ROOT / top
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                wanted[path.relative_to(ROOT)] = path
    for relative, path in wanted.items():
        content = mutated(path.read_bytes(), changes.get(str(relative), []))
        target = scratch / relative
        if not target.is_file() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            shutil.copymode(path, target)
    for top in COPIED:
        for path in (scratch / top).rglob("*"):
            if path.is_file() and path.relative_to(scratch) not in wanted:
                path.unlink()


def build(scratch):
    env = dict(os.environ, CARGO_INCREMENTAL="1", CARGO_PROFILE_DEV_DEBUG="0")
    env.pop("CARGO_TARGET_DIR", None)
    built = subprocess.run(
        ["cargo", "build", "--quiet"], cwd=scratch / "tests" / "sim", env=env,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    if built.returncode != 0:
        return None, built.stdout
    return scratch / "target" / "sim" / "debug" / "zklock-sim", ""


def violation(told):
    """The first words of the story, which follow the plan."""
    _, _, story = told.partition("\n}\n")
    lines = [line.strip() for line in story.splitlines() if line.strip()]
    first = lines[0] if lines else "?"
    return re.sub(r"_c_[0-9a-f-]{36}", "_c_..", first)[:140]


def markdown(rows):
    lines = ["| Mutant | What is broken | Seeds | Caught by |", "|---|---|---:|---|"]
    for (name, what, *_), outcome in rows:
        if outcome.seed is None:
            seeds, seen = "-", f"not in {outcome.played} {outcome.violation}".strip()
        else:
            seeds, seen = outcome.played, outcome.violation
        seen = str(seen).replace("|", "\\|")
        lines.append(f"| `{name}` | {what} | {seeds} | {seen} |")
    caught = sum(outcome.seed is not None for _, outcome in rows)
    return "\n".join([*lines, "", f"{caught} of {len(rows)} are caught."]) + "\n"


if __name__ == "__main__":
    main()
