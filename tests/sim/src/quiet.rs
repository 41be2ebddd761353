//! Which intervals of a run are quiet for whom: nothing that the plan breaks is felt there.

use std::time::Duration;

use zklock::sim;

use crate::client::ms;
use crate::plan::{ClientEnd, Plan, What};
use crate::troubles::Processes;

/// When something was wrong for one client, or for all.
struct Trouble {
    client: Option<usize>,
    from: Duration,
    to: Duration,
}

/// The intervals in which something was wrong.
pub(crate) struct Quiet {
    troubles: Vec<Trouble>,
}

impl Quiet {
    /// A trouble is felt from its beginning to a session timeout and the longest pause between
    /// two attempts to connect after its end. A reset is over with the handshake that follows.
    pub(crate) fn of(plan: &Plan, processes: &Processes) -> Self {
        let settle = ms(plan.timeout) + Duration::from_secs(3);
        let planned = plan.troubles.iter().filter_map(|trouble| {
            let (from, lasts) = (ms(trouble.at), ms(trouble.lasts));
            let (client, lasts) = match trouble.what {
                What::Cut { .. } => return None,
                What::Hold { client, .. }
                | What::Slow { client, .. }
                | What::Freeze { client }
                | What::Suspend { client }
                | What::CutAfter { client, .. }
                | What::Garbage { client, .. } => (Some(client), lasts),
                // It waits for the next reply, whenever that comes.
                What::LoseReply | What::LoseAnswer { .. } => (None, Duration::from_secs(1 << 30)),
                _ => (None, lasts),
            };
            let to = from + lasts + settle;
            Some(Trouble { client, from, to })
        });
        let mut troubles: Vec<_> = planned.collect();
        for (client, mine) in plan.clients.iter().enumerate() {
            if let ClientEnd::CrashAt(at) | ClientEnd::CloseAt(at) = mine.end {
                let to = Duration::MAX;
                let (client, from) = (Some(client), ms(at));
                troubles.push(Trouble { client, from, to });
            }
        }
        // A thread that stood still may have kept others, and is late only by as much.
        for (process, from, to) in sim::pauses() {
            let client = processes.iter().position(|number| *number == process);
            let to = to + (to - from);
            troubles.push(Trouble { client, from, to });
        }
        Self { troubles }
    }

    /// Whether nothing was wrong for this client, nor for the servers, between these times.
    pub(crate) fn holds(&self, client: usize, from: Duration, to: Duration) -> bool {
        !self.troubles.iter().any(|trouble| {
            let touches = trouble.client.is_none_or(|touched| touched == client);
            touches && trouble.from <= to && from <= trouble.to
        })
    }
}
