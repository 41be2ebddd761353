//! The intervals of a run that are quiet for a client: it feels no trouble of the plan there.

use std::time::Duration;

use zklock::sim;

use crate::client::ms;
use crate::plan::{ClientEnd, Plan, What};
use crate::troubles::Processes;

/// A time when something was wrong for one client, or for all.
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
    /// Finds the troubles. A trouble is felt from its beginning until a session timeout and the
    /// longest pause between two attempts to connect have passed after its end. A reset is over
    /// with the handshake that follows.
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
                // The trouble waits for the next reply, whenever that comes.
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
        // A thread that stood still may have held others up, and is late only by the same time.
        for (process, from, to) in sim::pauses() {
            let client = processes.iter().position(|number| *number == process);
            let to = to + (to - from);
            troubles.push(Trouble { client, from, to });
        }
        Self { troubles }
    }

    /// Returns whether nothing was wrong for this client, nor for the servers, between these times.
    pub(crate) fn holds(&self, client: usize, from: Duration, to: Duration) -> bool {
        !self.troubles.iter().any(|trouble| {
            let touches = trouble.client.is_none_or(|touched| touched == client);
            touches && trouble.from <= to && from <= trouble.to
        })
    }
}
