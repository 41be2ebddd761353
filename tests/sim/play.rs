//! Carries a plan out, and judges what was seen.

use std::collections::BTreeMap;
use std::time::Duration;

use zklock::sim::ensemble::{self, Ensemble, EnsembleConfig, SessionEnd};
use zklock::sim::{self, Choice, Link, Network, Options};

use crate::checker::{Rules, Summary, check};
use crate::client::{self, Journal, ms};
use crate::history::{Entry, NOBODY, Process, Time, What, nanos};
use crate::plan::{ClientEnd, Plan};
use crate::troubles::{self, Processes, contenders, ensemble};

/// How long calls may take to return once nothing is broken any more.
const PATIENCE: Duration = Duration::from_secs(600);

/// A run without a violation.
pub(crate) struct Played {
    pub(crate) summary: Summary,
    pub(crate) elapsed: Duration,
    pub(crate) steps: u64,
    pub(crate) lines: Vec<String>,
}

/// What a run leaves behind to be judged.
struct Seen {
    entries: Vec<Entry>,
    paused: bool,
}

/// Carries a plan out. The error says what was violated, and how it came to be.
pub(crate) fn play(plan: &Plan, record: bool) -> Result<Played, String> {
    let options = Options {
        seed: plan.seed,
        choice: Choice::Random {
            switch: plan.threads.switch,
            pause: plan.threads.pause,
            longest: ms(plan.threads.longest),
        },
        record,
    };
    let inner = plan.clone();
    let report =
        sim::run(options, move || carry_out(&inner)).map_err(|failure| format!("{failure:?}"))?;
    let Seen { entries, paused } = report.value;
    let rules = rules(plan, paused);
    match check(&entries, &rules) {
        Ok(summary) => Ok(Played {
            summary,
            elapsed: report.elapsed,
            steps: report.steps,
            lines: report.lines,
        }),
        Err(story) => Err(format!("{story}\n{}", report.lines.join("\n"))),
    }
}

/// What is promised, on a machine that is never busy.
fn rules(plan: &Plan, paused: bool) -> Rules {
    let timeout = ms(plan.timeout);
    Rules {
        slack: match paused {
            // A thread that reads for others may have been let stand.
            true => Duration::from_secs(2),
            false => Duration::from_millis(1),
        },
        release: timeout + Duration::from_secs(3),
        settle: 3 * timeout + Duration::from_secs(15),
        patience: Duration::from_secs(30),
    }
}

fn carry_out(plan: &Plan) -> Seen {
    build(plan);
    let journal = Journal::default();
    let mut processes = Processes::new();
    let mut mains = Vec::new();
    for (number, mine) in plan.clients.iter().enumerate() {
        let (inner, mine, journal) = (plan.clone(), mine.clone(), journal.clone());
        let name = format!("c{number}");
        let (process, main) =
            sim::process(&name, move || client::run(&inner, number, &mine, journal));
        processes.push(process);
        mains.push(main);
    }
    break_and_mend(plan, &processes, &journal);
    let calm = sim::elapsed();
    for (number, main) in mains.iter().enumerate() {
        if matches!(plan.clients[number].end, ClientEnd::CrashAt(_)) {
            continue;
        }
        while !main.is_finished() {
            assert!(
                sim::elapsed() < calm + PATIENCE,
                "a call never returns:\n{}",
                sim::story()
            );
            sim::sleep(ms(50));
        }
    }
    look_for_leftovers(plan, &journal);
    for (number, client) in plan.clients.iter().enumerate() {
        if matches!(client.end, ClientEnd::CrashAt(_)) {
            sim::thaw(processes[number]);
        }
    }
    for (number, main) in mains.into_iter().enumerate() {
        let crashed = matches!(plan.clients[number].end, ClientEnd::CrashAt(_));
        if let Err(panic) = main.join() {
            // A dead process's words count for nothing.
            if !crashed {
                std::panic::resume_unwind(panic);
            }
        }
    }
    await_the_end_of_connections();
    seen(plan, &journal)
}

fn build(plan: &Plan) {
    let config = EnsembleConfig {
        servers: plan.servers,
        tick: ms(plan.tick),
        old: plan.old,
        container_check: match plan.containers_vanish {
            true => ms(plan.tick),
            false => Duration::from_secs(3600),
        },
        hop: Duration::from_micros(50)..=Duration::from_micros(50 + 1000 * plan.tick / 100),
        election: ms(plan.tick / 10)..=ms(plan.tick / 2),
        ..EnsembleConfig::default()
    };
    let (least, most) = plan.link.latency;
    let usual = Link {
        latency: Duration::from_micros(least)..Duration::from_micros(most),
        window: plan.link.window,
        piece: plan.link.piece,
        ..Link::default()
    };
    let ensemble = Ensemble::new(config, plan.seed ^ 0xe45e);
    sim::build(Network::new(Box::new(ensemble), usual, plan.seed ^ 0x4e7));
}

/// What happens when: the beginnings and ends of troubles, and the ends of processes.
enum Due {
    Begin(usize),
    End(usize),
    Crash(usize),
}

fn break_and_mend(plan: &Plan, processes: &Processes, journal: &Journal) {
    let mut due = Vec::new();
    for (number, trouble) in plan.troubles.iter().enumerate() {
        due.push((trouble.at, Due::Begin(number)));
        due.push((trouble.at + trouble.lasts, Due::End(number)));
    }
    for (number, client) in plan.clients.iter().enumerate() {
        if let ClientEnd::CrashAt(at) = client.end {
            due.push((at, Due::Crash(number)));
        }
    }
    due.sort_by_key(|(at, _)| *at);
    for (at, what) in due {
        sim::sleep(ms(at).saturating_sub(sim::elapsed()));
        match what {
            Due::Begin(number) => {
                let trouble = &plan.troubles[number];
                note(plan, trouble, journal, true);
                troubles::begin(plan, trouble, processes);
            }
            Due::End(number) => {
                let trouble = &plan.troubles[number];
                troubles::end(plan, trouble, processes);
                note(plan, trouble, journal, false);
            }
            Due::Crash(number) => {
                sim::freeze_for_ever(processes[number]);
                let who = Process {
                    slot: number,
                    life: 0,
                };
                journal.note(who, 0, What::Died);
                sim::network(|network, now| {
                    (0..plan.servers)
                        .for_each(|server| network.cut(processes[number], server, now));
                });
            }
        }
    }
    journal.note(NOBODY, 0, What::Healed);
}

fn note(_plan: &Plan, trouble: &crate::plan::Trouble, journal: &Journal, begins: bool) {
    use crate::plan::What::{Freeze, Suspend};
    match trouble.what {
        Freeze { client } | Suspend { client } => {
            let who = Process {
                slot: client,
                life: 0,
            };
            journal.note(who, 0, if begins { What::Paused } else { What::Resumed });
        }
        _ if begins => {
            let text = format!("{:?} for {} ms", trouble.what, trouble.lasts);
            journal.note(NOBODY, 0, What::Fault { text });
        }
        _ => {}
    }
}

fn look_for_leftovers(plan: &Plan, journal: &Journal) {
    let until = sim::elapsed() + 4 * ms(plan.timeout) + Duration::from_secs(20);
    while !contenders().is_empty() && sim::elapsed() < until {
        sim::sleep(ms(20));
    }
    for node in contenders() {
        journal.note(NOBODY, 0, What::Leftover { node });
    }
}

fn await_the_end_of_connections() {
    let until = sim::elapsed() + Duration::from_secs(60);
    while sim::network(|network, _| network.connections()) > 0 {
        assert!(
            sim::elapsed() < until,
            "connections are left:\n{}",
            sim::story()
        );
        sim::sleep(ms(50));
    }
}

fn seen(plan: &Plan, journal: &Journal) -> Seen {
    let mut entries = journal.take();
    let died: BTreeMap<Process, Time> = entries
        .iter()
        .filter(|entry| entry.what == What::Died)
        .map(|entry| (entry.who, entry.at))
        .collect();
    // A dead process's words count for nothing.
    entries.retain(|entry| died.get(&entry.who).is_none_or(|died| entry.at <= *died));
    // The order of a queue is no promise where threads hand on, or nodes are deleted.
    if !plan.keeps_order() {
        entries.retain(|entry| !matches!(entry.what, What::Queued { .. }));
    }
    let ends = ends_by_hand();
    let taken: BTreeMap<_, _> = journal
        .nodes()
        .into_iter()
        .filter_map(|(who, op, nodes)| {
            let end = nodes.iter().filter_map(|node| ends.get(node)).min()?;
            Some(((who, op), *end))
        })
        .collect();
    // Who takes a lock away by hand takes it from a holder who trusts it.
    entries.retain(|entry| {
        entry.what != What::Valid
            || taken
                .get(&(entry.who, entry.op))
                .is_none_or(|end| entry.at < *end)
    });
    Seen {
        paused: !sim::pauses().is_empty(),
        entries,
    }
}

/// The nodes that went by an administrator's hand, and when.
fn ends_by_hand() -> BTreeMap<String, Time> {
    ensemble(|ensemble, _| {
        let mut ends = BTreeMap::new();
        let mut by_hand = Vec::new();
        for change in ensemble.history() {
            match &change.what {
                ensemble::What::SessionEnded {
                    session,
                    why: SessionEnd::ByHand,
                } => {
                    by_hand.push(*session);
                }
                ensemble::What::Deleted { path, owner, by }
                    if *owner != 0 && (*by == 0 || by_hand.contains(owner)) =>
                {
                    ends.insert(path.clone(), nanos(change.at));
                }
                _ => {}
            }
        }
        ends
    })
}
