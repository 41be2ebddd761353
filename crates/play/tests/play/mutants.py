#!/usr/bin/env python3
"""Breaks the core in one place at a time, and counts the seeds until the play sees it.

Each mutant is a small replacement in one file of `crates/core` or of the client in `crates/play`,
compiled in a scratch folder that has only the crates it needs. Every old text must occur exactly once
in its file, so that the table cannot rot unseen.

    crates/play/tests/play/mutants.py --list
    crates/play/tests/play/mutants.py --only no-watch --seeds 20000
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
# Name, what is broken, crate and file, old text, new text.
MUTANTS = [
    # An attempt.
    (
        "no-watch",
        "a waiter sleeps without a watch on the nearest node",
        "core/acquisition/sends.rs",
        "Request::get(&node_in(path, name)).and_watch()",
        "Request::get(&node_in(path, name))",
    ),
    (
        "own-not-watched",
        "a waiter does not watch its own node",
        "core/acquisition/sends.rs",
        "            false => Request::get(&node).and_watch(),",
        "            false => Request::get(&node),",
    ),
    (
        "grants-unproved",
        "a lock is granted whatever its proof is worth",
        "core/acquisition/sends.rs",
        "            Action::Prove(_) if self.is_proven(wire) => {",
        "            Action::Prove(_) => {",
    ),
    (
        "lost-create-repeated",
        "a create whose answer was lost is sent again, without a look for its node",
        "core/acquisition/answers.rs",
        "            (Step::Create(_), Ok(_) | Err(Failure::Lost)) => Event::ReplyLost,",
        "            (Step::Create(_), Ok(_) | Err(Failure::Lost)) => return Ok(None),",
    ),
    (
        "found-without-sync",
        "a node that may have been created is looked for at a server that lags",
        "core/acquisition/sends.rs",
        "            Action::Sync | Action::CatchUp => self.sync(wire),",
        "            Action::CatchUp => self.sync(wire),\n            Action::Sync => {\n                self.attempt.handle(Event::Synced);\n                return true;\n            }",
    ),
    (
        "listing-older-than-create",
        "a listing counts that was sent before the create",
        "core/acquisition/sends.rs",
        "        self.note_create(call, stamp);\n        self.forget_listings();\n",
        "        self.note_create(call, stamp);\n",
    ),
    (
        "lists-twice",
        "a listing is sent although one is on its way",
        "core/acquisition/sends.rs",
        "        if !self.is_on_its_way(|step| *step == Step::List) {\n            self.list_too(wire);\n            if",
        "        if self.flight.len() < 3 {\n            self.list_too(wire);\n            if",
    ),
    (
        "events-lost-unless-asleep",
        "an event that comes before the attempt waits is forgotten",
        "core/acquisition.rs",
        "        self.events.push_back((name.into(), kind));",
        "        if self.attempt.blocked().is_some() {\n            self.events.push_back((name.into(), kind));\n        }",
    ),
    (
        "any-event-is-a-deletion",
        "a change of the nearest node is taken for its deletion",
        "core/acquisition/progress.rs",
        "        let gone = kind == EventKind::Deleted;",
        "        let gone = kind != EventKind::Created;",
    ),
    (
        "own-event-ignored",
        "the event of one's own node changes nothing",
        "core/acquisition/progress.rs",
        "            // A server that closes our session sends this first: the listing tells.\n            return Some(Event::Woken);",
        "            return None;",
    ),
    (
        "own-watch-spent",
        "the watch on one's own node counts as set after it has fired",
        "core/acquisition.rs",
        "Some(name) {\n            self.watches.own = false;\n",
        "Some(name) {\n",
    ),
    (
        "ancestor-thrown-away",
        "an ancestor whose create was thrown away is not counted",
        "core/directories.rs",
        "    let refusals = answers.iter().map(|answer| match answer {",
        "    let counted = |answer: &&Answered| !matches!(answer, Err(Failure::NotSent));\n    let refusals = answers.iter().filter(counted).map(|answer| match answer {",
    ),
    (
        "thrown-away-for-good",
        "a verification that was thrown away is not sent again",
        "play/dispatch.rs",
        "                    None => self.send_again(),",
        "                    None => {}",
    ),
    (
        "create-proves-at-its-answer",
        "a create counts as a proof from its answer on",
        "core/acquisition/answers.rs",
        "                if let Some(event) = self.said(step, answered, wire)? {",
        "                let sent = wire.now();\n                let step = match step {\n"
        "                    Step::Create(stamp) => Step::Create(Stamp { sent, ..stamp }),\n"
        "                    step => step,\n                };\n"
        "                if let Some(event) = self.said(step, answered, wire)? {",
    ),
    (
        "proof-at-its-answer",
        "the proof of a grant counts from its answer on",
        "core/acquisition/answers.rs",
        "                if self.proof.confirmed(stamp, counts, wire.now()) {",
        "                if self.proof.confirmed(wire.stamp(), counts, wire.now()) {",
    ),
    (
        "sleeps-through-reconnects",
        "a waiter does not look again after a reconnect",
        "core/acquisition.rs",
        "            true => self.attempt.handle(Event::Woken),",
        "            true => {}",
    ),
    (
        "adopts-across-sessions",
        "an attempt goes on in another session",
        "core/acquisition.rs",
        "            false => self.restart(wire),",
        "            false => self.attempt.handle(Event::Woken),",
    ),
    (
        "evicted-at-once",
        "a node that went with its session counts as deleted by somebody",
        "core/acquisition/progress.rs",
        "                    if !self.is_evicted && !self.is_cancelled =>",
        "                    if self.is_evicted && !self.is_cancelled =>",
    ),
    (
        "proof-grows-old",
        "the next in line does not keep its proof young",
        "core/acquisition/progress.rs",
        "        if self.is_next() && wire.transacts() {",
        "        if self.is_next() && self.path.is_empty() && wire.transacts() {",
    ),
    (
        "outlasts-an-eighth",
        "a session need not last for another proof that takes as long as the last",
        "core/validity.rs",
        "        next + took.max(timeout / 8) <= self",
        "        let _ = took;\n        next + timeout / 8 <= self",
    ),
    (
        "outlasts-two-proofs",
        "a session must last for an eighth of its timeout longer than another proof takes",
        "core/validity.rs",
        "        next + took.max(timeout / 8) <= self",
        "        next + took + timeout / 8 <= self",
    ),
    (
        "held-back-for-longer",
        "after a reconnect a lock waits one and a half times as long for the leader to have heard of it",
        "core/proof.rs",
        "            Some(time) if stamp.is_some() => Next::Pause(time - now),",
        "            Some(time) if stamp.is_some() => Next::Pause((time - now) * 3 / 2),",
    ),
    (
        "proof-after-listing",
        "the proof leaves when the listing is there",
        "core/acquisition/sends.rs",
        "            if mem::take(&mut self.has_moved) {",
        "            if mem::take(&mut self.has_moved) && self.path.is_empty() {",
    ),
    (
        "watches-after-look",
        "the watches leave when the look at a node is answered that came with a release",
        "core/acquisition/sends.rs",
        "            Some(Place::Blocked(blocked)) => self.watch(&blocked, name, wire),",
        "            Some(Place::Blocked(blocked)) if blocked.nearest.is_empty() => self.watch(&blocked, name, wire),",
    ),
    # Threads.
    (
        "next-not-called",
        "a thread that gives up does not call the next one in line",
        "play/turns.rs",
        "        self.wake(acquires.ticket, outcome);\n        self.next_turn(id, None);",
        "        self.wake(acquires.ticket, outcome);",
    ),
    (
        "gave-up-and-waits",
        "a thread that has given up stays in line",
        "play/turns.rs",
        "                line.waiting.retain(|waiter| waiter.ticket != ticket);",
        "                let _ = line;",
    ),
    (
        "tries-wait",
        "a thread that only tries waits in line",
        "play/turns.rs",
        "        let tries = |waiter: &&Waiter| waiter.patience == Patience::Tries;",
        "        let tries = |waiter: &&Waiter| waiter.ticket.0 == 0;",
    ),
    (
        "orphans-left",
        "what an attempt leaves is not deleted",
        "play/turns.rs",
        "        for orphan in acquires.acquisition.orphans() {\n"
        "            self.releases.delete(&id.path, orphan, &mut self.link);",
        "        for orphan in acquires.acquisition.orphans() {\n"
        "            let _ = orphan;",
    ),
    (
        "limit-forgotten",
        "an ask has no limit",
        "play/dispatch.rs",
        "            self.alarms.insert((until, Alarm::Limit(ticket)));",
        "",
    ),
    (
        "step-put-off-for-ever",
        "what an attempt puts off is never done",
        "play/turns.rs",
        "            self.alarms.insert((at, Alarm::Step(*ticket)));",
        "            let _ = at;",
    ),
    (
        "release-alone",
        "a release does not take the next thread's create along",
        "play/turns.rs",
        "told.filter(|_| held), writes), held && has_waited);",
        "told.filter(|_| held), writes), has_waited && self.lines.is_empty());",
    ),
    (
        "handed-on-in-doubt",
        "a lock is handed to the next thread although it is suspect",
        "play/leases.rs",
        "        let stamp = lease.stamp.filter(|_| held && is_free)?;",
        "        let _ = held;\n        let stamp = lease.stamp.filter(|_| is_free)?;",
    ),
    # Releases.
    (
        "deletion-given-up",
        "a deletion that was not answered is not repeated",
        "play/releases.rs",
        "                self.send_due(link);\n                let told = Some(",
        "                self.deletions.take(id);\n                let told = Some(",
    ),
    (
        "not-sent-when-back",
        "what is to be deleted is not sent when there is a connection again",
        "play/lib.rs",
        "        self.releases.send_due(&mut self.link);\n        self.leases.connected();",
        "        self.leases.connected();",
    ),
    (
        "abandoned-create-left",
        "the node of a create is left whose thread has given up",
        "play/dispatch.rs",
        "            false => self.releases.created(creation, answered, &mut self.link),",
        "            false => {}",
    ),
    (
        "abandoned-create-lost",
        "the same, if the answer was lost",
        "core/delete_and_create.rs",
        "        Ok(_) | Err(Failure::Lost) => Some(Orphan::Prefix(prefix.to_owned())),",
        "        Ok(_) => Some(Orphan::Prefix(prefix.to_owned())),",
    ),
    (
        "lost-is-unsent",
        "a transaction whose answer was lost counts as not sent for the create",
        "core/delete_and_create.rs",
        "        Err(failure) => return (Err(failure), Err(failure)),",
        "        Err(failure) => return (Err(failure), Err(Failure::NotSent)),",
    ),
    # Writes.
    (
        "commit-unguarded",
        "a write under a lock is carried out whether its node stands or not",
        "core/guarded_write.rs",
        "    let checks = nodes.iter().map(|node| Request::check(node.as_ref()));",
        "    let checks = nodes.iter().map(|_| Request::check(\"/w\"));",
    ),
    (
        "commit-repeated",
        "a write under a lock whose answer was lost is sent again",
        "play/writes.rs",
        "                None => return self.wake(commit.ticket, Outcome::InDoubt),",
        "                None => return self.unsent.push(commit),",
    ),
    (
        "commit-confident",
        "a write under a lock counts as done when its time is over",
        "play/writes.rs",
        "            return Outcome::InDoubt;",
        "            return Outcome::Committed;",
    ),
    (
        "commit-in-anothers-name",
        "a lock is handed on although a write in its former holder's name may still be carried out",
        "play/leases.rs",
        "!lease.is_revoked && lease.unanswered == 0;",
        "!lease.is_revoked;",
    ),
    (
        "farewell-handed-on",
        "a lock is handed on, and what was to be written with its release is not",
        "play/turns.rs",
        "        if held && ops.is_empty() && self.hand_on(",
        "        if held && self.hand_on(",
    ),
    (
        "farewell-when-lost",
        "who has lost its lock writes with its release all the same",
        "play/turns.rs",
        "            false => Default::default(),\n        };\n        self.leave",
        "            false => (ops, word),\n        };\n        self.leave",
    ),
    (
        "farewell-presumed",
        "what was to be written with a release whose answer was lost counts as written",
        "play/releases.rs",
        "                    Ended::Presumed if told.writes => Outcome::InDoubt,",
        "                    Ended::Presumed if told.writes => Outcome::Released,",
    ),
    (
        "farewell-refused-unseen",
        "what the servers did not write with a release counts as in doubt",
        "play/releases.rs",
        "told.take_if(|told| refused && told.writes);",
        "told.take_if(|told| refused && !told.writes);",
    ),
    (
        "farewell-followed-blindly",
        "the next thread takes it that the node is gone whose release may be refused",
        "play/turns.rs",
        "            line.last = None;\n        }\n        let id",
        "            let _ = line;\n        }\n        let id",
    ),
    # The word of a release.
    (
        "note-over-anything",
        "a note replaces what another program keeps in the directory",
        "play/orderly.rs",
        "                let is_free = Note::replaceable(data, stat.version, true).is_some();",
        "                let is_free = !data.is_empty() || stat.version == 0;",
    ),
    (
        "note-over-any-version",
        "a note replaces what came since the directory was read",
        "play/orderly.rs",
        "            version: word.replaces?,",
        "            version: word.replaces.map(|_| -1)?,",
    ),
    (
        "word-of-nobody",
        "those ahead count as released in order if there is any note",
        "play/orderly.rs",
        "note.is_some_and(|note| seen.released(&note));",
        "note.is_some_and(|note| note != Note::default());",
    ),
    (
        "word-unheard",
        "a holder is not told how those ahead left",
        "core/acquisition/answers.rs",
        "            seen.look(self.contest, &names, self.attempt.node());",
        "            let _ = seen;",
    ),
    (
        "word-left-behind",
        "a read that is under way is lost when the lock is handed on",
        "play/orderly.rs",
        "            word.guard = to;",
        "            word.guard = to;\n            word.replaces = None;",
    ),
    # Holds.
    (
        "hold-removed-early",
        "a hold is removed a moment before its end",
        "core/acquisition/holds.rs",
        "            if end <= time {",
        "            if end <= time + core::time::Duration::from_millis(20) {",
    ),
    (
        "hold-clock-from-nowhere",
        "the servers' time is counted from an older moment than the one at which it was shown",
        "core/hold.rs",
        "        self.known = Some((shown.max(self.time(now)), now));",
        "        let at = self.known.map_or(now, |(_, at)| at);\n        self.known = Some((shown.max(self.time(now)), at));",
    ),
    (
        "hold-looked-at-once",
        "a waiter does not look again when a hold is over",
        "core/acquisition/holds.rs",
        "            self.holds.again = Some(self.holds.again.map_or(at, |again| again.min(at)));",
        "            let _ = at;",
    ),
    (
        "hold-forgotten-in-a-break",
        "when to look again at a hold is forgotten when the connection breaks",
        "core/acquisition/holds.rs",
        "        self.holds.removes.clear();\n",
        "        self.holds.removes.clear();\n        self.holds.again = None;\n",
    ),
    (
        "hold-watched-before-it-is-read",
        "the watches leave before the holds are read, and a node that is gone is taken for our own",
        "core/acquisition/sends.rs",
        "waits && !names.iter().any(may_be_hold);",
        "waits;\n        let _ = may_be_hold;",
    ),
    # Leases.
    (
        "lease-not-renewed",
        "the locks that are held are not proven anew",
        "play/leases.rs",
        "        self.check(&checks, link);\n",
        "        let _ = checks;\n",
    ),
    (
        "check-at-its-answer",
        "a check counts from its answer on",
        "play/leases.rs",
        "                    lease.confirm(stamp, link);",
        "                    let _ = stamp;\n                    lease.confirm(link.stamp(), link);",
    ),
    (
        "confirmed-when-lost",
        "an answer is taken in before it is seen that the lock's time is over",
        "play/dispatch.rs",
        "        self.link.now = self.link.now.max(now);\n        self.leases.look_if_due(&mut self.link);",
        "        self.link.now = self.link.now.max(now);",
    ),
    (
        "leases-not-told",
        "guards are not told of a session that has ended",
        "play/leases.rs",
        "            over: link.ended(self.session).is_some(),\n",
        "            over: false,\n",
    ),
    (
        "own-deletion-ignored",
        "a holder is not told that its node is deleted",
        "play/leases.rs",
        "                self.lose(id, Loss::NodeGone, link);\n                self.asks_why(id, link);\n",
        "",
    ),
    (
        "verify-forgotten",
        "a check that a thread asked for is not repeated on the next connection",
        "play/leases.rs",
        "        if matches!(is_proof, Proof::Hidden(_) | Proof::Unanswered) {\n            self.unsent.push((ticket, guard));",
        "        if matches!(is_proof, Proof::Hidden(_) | Proof::Unanswered) {",
    ),
    # The link.
    (
        "shorter-unknown",
        "a connect request whose answer is lost is thought to change nothing",
        "play/link.rs",
        "            self.lifetime.greets(self.now, None);\n",
        "",
    ),
    (
        "longest-timeout",
        "a session lasts as long as the last server said",
        "play/link.rs",
        "            true => self.lifetime.greeted(timeout, asked, self.now),",
        "            true => self.lifetime = Lifetime::new(timeout, asked, self.now),",
    ),
    (
        "no-pings",
        "an idle connection sends no pings",
        "core/connection/link/arrivals.rs",
        "            true => self.timeout / self.idle_pings,",
        "            true => self.timeout * self.idle_pings,",
    ),
    (
        "due-for-ever",
        "the core wants to be ticked, and does nothing then",
        "core/connection/link/arrivals.rs",
        "        self.queue.ping_after(self.pause_between_pings(), now);\n",
        "",
    ),
    (
        "never-leaves",
        "a server that answers nothing, or nothing but pings, is never left",
        "core/connection/link/arrivals.rs",
        "        let by_promptness = self.promptness.leaves_at(asked);",
        "        let by_promptness = None;",
    ),
    (
        "unsent-is-lost",
        "requests that were written count as not sent when the connection breaks",
        "core/connection/link/request_queue.rs",
        "                    None if pending.start < handed => Failure::Lost,",
        "                    None if pending.start < handed => Failure::NotSent,",
    ),
    (
        "touch-at-its-answer",
        "a message counts from its answer on",
        "play/link.rs",
        "            Received::Reply(pending) => self.lifetime.answered(pending.queued, self.now),",
        "            Received::Reply(_) => self.lifetime.answered(self.now, self.now),",
    ),
    # Slow servers.
    (
        "commit-like-a-read",
        "a server is left although its disk writes only a little longer than a read may take",
        "core/connection/promptness.rs",
        "const COMMIT: u32 = 6;",
        "const COMMIT: u32 = READ;",
    ),
    (
        "read-tells-of-commits",
        "a prompt read counts as evidence that commits are prompt",
        "core/connection/promptness.rs",
        "            self.commits = self.commits.max(commits);",
        "            self.commits = commits;",
    ),
    # What is told.
    (
        "line-not-told",
        "a thread in line is not told that one before it has left",
        "play/dispatch.rs",
        "            self.news.stir(line);\n",
        "            let _ = line;\n",
    ),
    (
        "queue-not-told",
        "a thread is not told whom it waits for in the queue",
        "play/turns.rs",
        "        self.news.stir(id);\n",
        "",
    ),
    (
        "told-without-data",
        "a thread is told of the nearest node without what its watch has read",
        "core/acquisition/answers.rs",
        "                    self.found = (data, stat);\n",
        "                    let _ = (data, stat);\n",
    ),
    (
        "told-what-it-knows",
        "a thread is told the same again",
        "play/news.rs",
        "        let Some(told) = self.told.get_mut(&ticket).filter(is_new) else {",
        "        let Some(told) = self.told.get_mut(&ticket) else {",
    ),
    # Readers and writers.
    (
        "readers-wait-for-readers",
        "readers wait for each other",
        "core/dialect.rs",
        "        (self, other) != (Self::WithReaders, Self::WithReaders)",
        "        (self, other) != (Self::WithReaders, Self::WithReaders) || self == other",
    ),
    (
        "writer-passes-readers",
        "a writer does not wait for the readers ahead",
        "core/queue.rs",
        "entry.sharing.conflicts(self.role.sharing());",
        "entry.sharing == crate::dialect::Sharing::Alone;",
    ),
    (
        "readers-stay-proven",
        "readers that wait have their nodes confirmed meanwhile",
        "core/acquisition/progress.rs",
        "(blocked.last && role != Role::Read) || may_be_next",
        "blocked.last || may_be_next",
    ),
    (
        "writer-lists-again",
        "a writer lists the queue when the reader ahead is gone",
        "core/dialect.rs",
        "Self::CuratorRead | Self::KazooRead | Self::RecipeRead => true,",
        "Self::CuratorRead | Self::KazooRead | Self::RecipeRead => false,",
    ),
    (
        "all-hold",
        "every nearest node is said to hold the lock",
        "play/news.rs",
        "blocked.holds,",
        "true,",
    ),
    (
        "telling-costs",
        "for who wants to know whom it waits for, the server is asked for something",
        "play/tells_news.rs",
        "            self.news.stir(&line);\n        }\n        self.settle();",
        "            self.news.stir(&line);\n            if self.link.is_connected() {\n"
        "                self.link.calls.ping(self.link.now);\n            }\n        }\n        self.settle();",
    ),
    (
        "expiry-is-silence",
        "a lock that was lost with its session is said not to be confirmed",
        "play/leases.rs",
        "        self.lost(ended.unwrap_or(Loss::NotConfirmed));",
        "        let _ = ended;\n        self.lost(Loss::NotConfirmed);",
    ),
    (
        "last-reason",
        "the last reason of a loss counts, not the first",
        "play/loss.rs",
        "        if self.loss.is_none_or(|earlier| why.explains(earlier)) {",
        "        if self.loss.is_none_or(|earlier| why.explains(earlier) || true) {",
    ),
    (
        "not-asked-why",
        "nobody asks whether a node was deleted or went with its session",
        "play/leases.rs",
        "            link.send(renewals::ask_why(&lease.node), Purpose::Watch(id));\n",
        "            let _ = lease;\n",
    ),
    (
        "losses-twice",
        "a loss is counted again when its reason is known",
        "play/leases.rs",
        "    lease.loss.is_some() && !lease.is_place && !matches!(told, Notice::Lost(_))",
        "    lease.loss.is_some() && !lease.is_place && notice != told",
    ),
    (
        "expiries-uncounted",
        "a session that a server says has expired is not counted",
        "play/link.rs",
        "        self.expiries += u64::from(self.session != 0);\n        self.connection.expire();",
        "        self.connection.expire();",
    ),
    (
        "try-in-a-hurry",
        "a try does not wait for what its client has left",
        "core/deletions/leftover.rs",
        "        (now < until).then_some(until)\n",
        "        (until < now).then_some(until)\n",
    ),
    (
        "try-not-called",
        "a try that waits for a deletion is not told of its end",
        "play/dispatch.rs",
        "                self.advance(&line);\n            }\n        }\n    }\n\n    /// Takes in that something",
        "                let _ = line;\n            }\n        }\n    }\n\n    /// Takes in that something",
    ),
    (
        "end-forgets-guards",
        "guards are not told that their client was closed",
        "play/end.rs",
        "        self.leases.link_changed();\n",
        "",
    ),
    (
        "end-is-expiry",
        "a client that was closed counts as one whose session expired",
        "play/loss.rs",
        "        self.over\n",
        "        self.over\n            .map(|_| Loss::SessionExpired)\n",
    ),
]

# Of semaphores, in the seeds 5 above a multiple of 10: `--first 5 --every 10`.
MUTANTS += [
    (
        "permit-too-many",
        "one permit more is counted than there is",
        "core/queue.rs",
        "        match children.len().saturating_sub(self.permits) {",
        "        match children.len().saturating_sub(self.permits + 1) {",
    ),
    (
        "permits-not-watched",
        "the first in line lists the permits without a watch",
        "core/acquisition/sends.rs",
        "        self.send(Request::list(&self.path).and_watch(), step, wire);",
        "        self.send(Request::list(&self.path), step, wire);",
    ),
    (
        "permits-listed-often",
        "the first in line lists the permits every 20 ms",
        "core/acquisition/sends.rs",
        "const LOOKS_AGAIN: Duration = Duration::from_secs(15);",
        "const LOOKS_AGAIN: Duration = Duration::from_millis(20);",
    ),
    (
        "permits-event-ignored",
        "a change of the permits changes nothing",
        "core/acquisition/progress.rs",
        "        if name.is_empty() && mem::take(&mut self.watches.around) {",
        "        if name.is_empty() && self.contest.role == Role::Permit {\n            return None;\n        }\n        if name.is_empty() && mem::take(&mut self.watches.around) {",
    ),
    (
        "permit-proof-after-listing",
        "the proof leaves when the listing shows room for a permit",
        "core/acquisition/sends.rs",
        "        if queued && mem::take(&mut self.has_moved) {",
        "        if !queued && mem::take(&mut self.has_moved) {",
    ),
    (
        "permit-before-its-turn",
        "whoever has one contender ahead in line overlooks it",
        "core/queue.rs",
        "        let before = entries.iter().filter(|entry| entry.order < me.order);",
        "        let before = entries.iter().filter(|entry| entry.order + 1 < me.order);",
    ),
    (
        "permit-without-place",
        "who has lost its place in line keeps the permit that it got",
        "core/permit_attempt.rs",
        "            (First::Check(true), Event::IsFirst) => return State::Finish(Outcome::Held),",
        "            (First::Check(true), _) => return State::Finish(Outcome::Held),",
    ),
    (
        "place-not-looked-at",
        "a permit is granted whether the place in line stood when its node was created or not",
        "core/acquisition/sends.rs",
        "            Action::Prove(_) if self.look_under(false, wire) => {}\n",
        "",
    ),
    (
        "permit-waits-without-place",
        "who has lost its place in line waits on for a permit",
        "play/permit_nodes.rs",
        "                false => self.cancel_acquisition(&call.seats.clone(), ticket),",
        "                false => {}",
    ),
    (
        "place-stays",
        "the place in line stays when the call ends",
        "play/permits.rs",
        "            self.releases.send(id, &mut self.link);",
        "            let _ = id;",
    ),
    (
        "place-given-up-late",
        "the place in line is given up a while after the permit is granted",
        "play/permits.rs",
        "            self.releases.send(id, &mut self.link);",
        "            let later = self.link.now + core::time::Duration::from_millis(40);\n            let _ = id;\n            self.releases.next = Some(later);",
    ),
    (
        "turn-in-line-lost",
        "a thread that has its permit does not call the next one in line",
        "play/permits.rs",
        "        if call.has_turn {\n",
        "        if call.has_turn && false {\n",
    ),
    (
        "look-not-sent-again",
        "a look whose answer was lost is not sent again",
        "play/permit_requests.rs",
        "            batch.is_sent = false;\n",
        "",
    ),
    (
        "try-looks-once",
        "a try that finds no permit at a server that lags is turned away",
        "core/permit_attempt.rs",
        "                State::Meet(_) | State::Finish(Outcome::Gone | Outcome::Foreign(_)) => {\n                    State::OpenAgain",
        "                State::Meet(_) | State::Finish(Outcome::Foreign(_)) => {\n                    State::OpenAgain",
    ),
    (
        "try-waits-for-long",
        "a try waits for those in line for as long as it takes",
        "core/permit_attempt.rs",
        "const PASSING: Duration = Duration::from_secs(1);",
        "const PASSING: Duration = Duration::from_secs(1000);",
    ),
    (
        "number-beside-a-permit",
        "the number is replaced while one permit of another is out",
        "core/permits.rs",
        "        Some(theirs) if out != 0 => Agreement::Differs(theirs),",
        "        Some(theirs) if 1 < out => Agreement::Differs(theirs),",
    ),
    (
        "number-not-waited-for",
        "a call with a limit does not wait until the permits of another number are back",
        "core/permit_attempt.rs",
        "        self.wish.patience == Patience::Waits && self.wish.limited",
        "        self.wish.patience == Patience::Tries && self.wish.limited",
    ),
    (
        "number-watched-by-nobody",
        "who waits for the permits of another number sets no watch",
        "play/permit_requests.rs",
        "                vec![Request::get(&last).and_watch()]",
        "                vec![Request::get(&last)]",
    ),
    (
        "look-not-with-place",
        "the look at the semaphore does not come with the place in line",
        "play/permit_call.rs",
        "            acquisition.read_behind(call.layout(dialect).looks(false).0);",
        "            let _ = dialect;",
    ),
    (
        "permits-gone-for-good",
        "who finds no directory of permits does not look again",
        "core/permit_attempt.rs",
        "            | (First::Permit(0), Event::NoNode) => First::Look,",
        "            => First::Look,\n            (First::Permit(0), Event::NoNode) => return State::Finish(Outcome::Gone),",
    ),
]

MANIFEST = """\
[workspace]
members = ["crates/core", "crates/jute", "crates/play"]
resolver = "3"
[workspace.package]
version = "0.1.0"
edition = "2024"
rust-version = "1.85"
license = "MIT"
[workspace.dependencies]
fastrand = "2.1"
parking_lot = ">=0.12, <0.14"
proptest = { version = "1", default-features = false, features = ["std"] }
serde_json = { version = "1.0.100", default-features = false, features = ["float_roundtrip"] }
zklock-core = { version = "=0.1.0", path = "crates/core" }
zklock-jute = { version = "=0.1.0", path = "crates/jute" }
[workspace.lints.rust]
unsafe_code = "forbid"
[profile.dev]
opt-level = 3
debug = 0
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--list", action="store_true", help="list the mutants, and end")
    parser.add_argument("--only", action="append", default=[], help="only this one; may be repeated")
    parser.add_argument("--seeds", type=int, default=200_000, help="at most so many seeds each")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--every", type=int, default=1, help="how far apart the seeds are")
    parser.add_argument("--scratch", type=Path, default=ROOT / "target" / "play-mutants")
    args = parser.parse_args()
    check_table()
    unknown = set(args.only) - {mutant[0] for mutant in MUTANTS}
    if unknown:
        sys.exit(f"no such mutant: {', '.join(sorted(unknown))}")
    if not args.list:
        take(args.scratch)
    for mutant in MUTANTS:
        if args.only and mutant[0] not in args.only:
            continue
        if args.list:
            print(f"{mutant[0]:28} {mutant[2]:24} {mutant[1]}")
            continue
        seed, why = examine(mutant, args)
        print(f"| `{mutant[0]}` | {mutant[1]} | {seed} | {why} |", flush=True)


def source(root, file):
    crate, name = file.split("/", 1)
    return root / "crates" / crate / "src" / name


def check_table():
    """Ends the program if the table does not fit the sources."""
    wrong = []
    for name, _, file, old, _ in MUTANTS:
        count = source(ROOT, file).read_text().count(old)
        if count != 1:
            wrong.append(f"{name}: its old text occurs {count} times in {file}")
    if wrong:
        sys.exit("\n".join(wrong))


def examine(mutant, args):
    _, _, file, old, new = mutant
    path = source(args.scratch, file)
    sound = path.read_text()
    path.write_text(sound.replace(old, new))
    seeds = {"ZKLOCK_PLAY": args.seeds, "ZKLOCK_PLAY_FIRST": args.first, "ZKLOCK_PLAY_EVERY": args.every}
    env = dict(os.environ, RUST_BACKTRACE="0", **{name: str(value) for name, value in seeds.items()})
    run = subprocess.run(
        ["cargo", "test", "--offline", "--quiet", "-p", "zklock-play", "--test", "play", "every"],
        cwd=args.scratch, env=env, capture_output=True, text=True,
    )
    path.write_text(sound)
    failed = re.search(r"^seed (\d+): (.*)", run.stdout + run.stderr, re.M)
    if failed:
        return failed[1], failed[2][:110].replace("|", "/")
    if run.returncode:
        return "-", "does not compile: " + (re.search(r"error.*", run.stderr) or [""])[0]
    return "-", f"not in {args.seeds}"


def take(scratch):
    """Copies the crates, so that they may change meanwhile."""
    for crate in ["core", "jute", "play"]:
        target = scratch / "crates" / crate
        shutil.rmtree(target, ignore_errors=True)
        # New times: what a mutant was compiled from must not look newer.
        shutil.copytree(ROOT / "crates" / crate, target, copy_function=shutil.copyfile)
        manifest = target / "Cargo.toml"
        lines = manifest.read_text().splitlines(keepends=True)
        # For other tests than the play.
        others = ("zklock = {", "zklock-testkit")
        manifest.write_text("".join(line for line in lines if not line.startswith(others)))
    (scratch / "Cargo.toml").write_text(MANIFEST)
    shutil.copy(ROOT / "Cargo.lock", scratch / "Cargo.lock")


if __name__ == "__main__":
    main()
