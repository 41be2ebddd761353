//! The troubles of a plan: each begins, and is mended.

use std::time::Duration;

use zklock::sim::ensemble::{Ensemble, Fault, RequestKind};
use zklock::sim::{self, Network};

use crate::client::ms;
use crate::plan::{GARBAGE, Plan, Trouble, What};

/// The number of each client's process in the run.
pub(crate) type Processes = Vec<usize>;

pub(crate) fn ensemble<R>(run: impl FnOnce(&mut Ensemble, Duration) -> R) -> R {
    sim::network(|network, now| {
        let peer = network.peer().as_any().downcast_mut().expect("an ensemble");
        let result = run(peer, Duration::from_nanos(now));
        network.peer_changed(now);
        result
    })
}

fn fault(fault: Fault) {
    ensemble(|ensemble, now| ensemble.fault(now, fault));
}

/// Begins a trouble.
pub(crate) fn begin(plan: &Plan, trouble: &Trouble, processes: &Processes) {
    let all = 0..plan.servers;
    match trouble.what {
        What::Cut { client } => sim::network(|network, now| {
            all.for_each(|server| network.cut(processes[client], server, now));
        }),
        What::Hold {
            client,
            server,
            up,
            down,
        } => {
            change(processes[client], server, |link| {
                link.holds_up |= up;
                link.holds_down |= down;
            });
        }
        What::Slow { client, most } => all.for_each(|server| {
            change(processes[client], server, |link| {
                link.latency = Duration::ZERO..ms(most)
            });
        }),
        What::CutAfter {
            client,
            server,
            bytes,
            up,
        } => {
            change(processes[client], server, |link| match up {
                true => link.cut_up_after = Some(bytes),
                false => link.cut_down_after = Some(bytes),
            });
        }
        What::Freeze { client } => sim::freeze(processes[client], ms(trouble.lasts)),
        What::Suspend { client } => sim::suspend(processes[client], ms(trouble.lasts)),
        What::Refuse { server } => fault(Fault::Refuse { server, on: true }),
        What::Unknown { server } => unknown(server, true),
        What::SlowNames { by } => sim::network(|network, _| network.slow_names(ms(by))),
        What::CrashServer { server } => fault(Fault::Crash { server }),
        What::PauseServer { server } => fault(Fault::Pause {
            server,
            time: ms(trouble.lasts),
        }),
        What::CutServer { server } => fault(Fault::Cut { server }),
        What::Lag { server, by } => fault(Fault::Lag { server, by: ms(by) }),
        What::ChangeLeader { to } => fault(Fault::ChangeLeader { to }),
        #[cfg(test)]
        What::SetClock { server, by } => fault(Fault::SetClock { server, by: ms(by) }),
        What::LoseAnswer { multi } => {
            let kind = match multi {
                true => RequestKind::Multi,
                false => RequestKind::Create,
            };
            fault(Fault::LoseNextReply { kind: Some(kind) });
        }
        What::LoseReply => fault(Fault::LoseNextReply { kind: None }),
        What::LatePings => fault(Fault::LatePings {
            by: ms(plan.timeout / 10),
        }),
        What::Expire { nth } => {
            let sessions = ensemble(|ensemble, _| ensemble.sessions());
            if let Some(session) = one(&sessions, nth) {
                fault(Fault::Expire { session: *session });
            }
        }
        What::Evict { nth } => {
            if let Some(path) = one(&contenders(), nth) {
                fault(Fault::Evict { path: path.clone() });
            }
        }
        What::Revoke { nth } => {
            if let Some(path) = one(&contenders(), nth) {
                fault(Fault::Revoke { path: path.clone() });
            }
        }
        What::Ghost { server, nth } => {
            // With a leader whose data are wrong, nothing can be promised.
            let leads = ensemble(|ensemble, _| ensemble.leader() == Some(server));
            if let Some(path) = one(&contenders(), nth).cloned().filter(|_| !leads) {
                fault(Fault::Ghost { server, path });
            }
        }
        What::Garbage {
            client,
            server,
            kind,
        } => change(processes[client], server, |link| {
            link.garbage = Some(GARBAGE[kind].to_vec());
        }),
    }
}

pub(crate) fn end(plan: &Plan, trouble: &Trouble, processes: &Processes) {
    let all = 0..plan.servers;
    match trouble.what {
        What::Hold { client, server, .. } => change(processes[client], server, |link| {
            link.holds_up = false;
            link.holds_down = false;
        }),
        What::Slow { client, .. } => {
            let (least, most) = plan.link.latency;
            let usual = Duration::from_micros(least)..Duration::from_micros(most);
            all.for_each(|server| {
                change(processes[client], server, |link| {
                    link.latency = usual.clone()
                });
            });
        }
        What::CutAfter { client, server, .. } => change(processes[client], server, |link| {
            link.cut_up_after = None;
            link.cut_down_after = None;
        }),
        What::Refuse { server } => fault(Fault::Refuse { server, on: false }),
        What::Unknown { server } => unknown(server, false),
        What::SlowNames { .. } => sim::network(|network, _| network.slow_names(Duration::ZERO)),
        What::CrashServer { server } => fault(Fault::Restart { server }),
        What::CutServer { server } => fault(Fault::Heal { server }),
        What::Lag { server, .. } => fault(Fault::CatchUp { server }),
        What::LatePings => fault(Fault::LatePings { by: Duration::ZERO }),
        What::Ghost { server, .. } => fault(Fault::Rebuild { server }),
        What::Garbage { client, server, .. } => {
            change(processes[client], server, |link| link.garbage = None);
        }
        _ => {}
    }
}

fn change(process: usize, server: usize, change: impl FnOnce(&mut sim::Link)) {
    sim::network(|network: &mut Network, now| network.change_link(process, server, now, change));
}

fn unknown(server: usize, on: bool) {
    let host = format!("zk{}", server + 1);
    sim::network(|network, _| network.make_unknown(&host, on));
}

/// Returns the nodes of holders and waiters.
pub(crate) fn contenders() -> Vec<String> {
    ensemble(|ensemble, _| {
        use zklock::sim::ensemble::What::{Created, Deleted};
        let mut nodes = Vec::new();
        for change in ensemble.history() {
            match &change.what {
                Created { path, owner, .. } if *owner != 0 => nodes.push(path.clone()),
                Deleted { path, .. } => nodes.retain(|node| node != path),
                _ => {}
            }
        }
        nodes
    })
}

fn one<T>(all: &[T], nth: usize) -> Option<&T> {
    all.get(nth % all.len().max(1))
}
