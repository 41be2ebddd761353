//! The play of a plan, and the judgement of its history.

use std::collections::BTreeMap;
use std::time::Duration;

use zklock::sim::ensemble::{self, Ensemble, EnsembleConfig, SessionEnd};
use zklock::sim::{self, Choice, Link, Network, Options};

use crate::checker::{Rules, Summary, check};
use crate::client::{self, Journal, ms};
use crate::fenced;
use crate::history::{Entry, NOBODY, Process, Time, What, nanos};
use crate::jobs;
use crate::judge::judge;
use crate::lives;
use crate::marks;
use crate::plan::{ClientEnd, Plan, Trouble};
use crate::punctual::Punctual;
use crate::quiet::Quiet;
use crate::sight::{self, Revoked};
use crate::taken;
use crate::troubles::{self, Processes, contenders, ensemble};

/// How long calls may take to return once nothing is broken any more, beside their holds.
const PATIENCE: Duration = Duration::from_secs(600);

/// A run without a violation.
pub(crate) struct Played {
    pub(crate) summary: Summary,
    pub(crate) jobs: jobs::Summary,
    pub(crate) lives: lives::Summary,
    pub(crate) elapsed: Duration,
    pub(crate) steps: u64,
    pub(crate) lines: Vec<String>,
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
    let (entries, revoked, judged_by_servers) = report.value;
    let judged = check(&entries, &rules(plan)).map_err(|story| story.to_string());
    let judged = judged.and_then(|summary| judge(&entries).map(|()| summary));
    let more = sight::check(plan, &entries, &revoked);
    match judged.and_then(|summary| more.and(judged_by_servers).map(|more| (summary, more))) {
        Ok((summary, (jobs, lives))) => Ok(Played {
            summary,
            jobs,
            lives,
            elapsed: report.elapsed,
            steps: report.steps,
            lines: report.lines,
        }),
        Err(story) => Err(format!("{story}\n{}", report.lines.join("\n"))),
    }
}

/// Returns the promises on a machine that is never busy.
fn rules(plan: &Plan) -> Rules {
    let timeout = ms(plan.timeout);
    Rules {
        // With each request a caller waits up to 1 ms for room in the socket, and one for three locks
        // that gives up sends five (seed 85712533032234).
        slack: match plan.link.window < 100_000 {
            true => Duration::from_millis(10),
            false => Duration::from_millis(1),
        },
        release: timeout + Duration::from_secs(3),
        settle: 3 * timeout + Duration::from_secs(15),
        // Where nothing breaks, a client that was silent waits at most for a proof.
        patience: match plan.is_calm() {
            true => timeout + Duration::from_secs(1),
            // The lock is nobody's until it is taken over, and the processes that try may keep each
            // other from that.
            false if plan.hands_over() => Duration::from_secs(30) + 3 * timeout,
            false => Duration::from_secs(30),
        },
        hands_on: plan.clients.iter().any(|client| client.handoffs > 0),
    }
}

/// The nodes that an administrator removed, and when.
pub(crate) type Ends = BTreeMap<String, Time>;

type Seen = (
    Vec<Entry>,
    Vec<Revoked>,
    Result<(jobs::Summary, lives::Summary), String>,
);

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
    let crashed = |number: usize| matches!(plan.clients[number].end, ClientEnd::CrashAt(_));
    let (dead, alive): (Vec<_>, Vec<_>) = (0..mains.len()).partition(|number| crashed(*number));
    await_return(plan, alive.iter().map(|number| &mains[*number]));
    look_for_leftovers(plan, &journal);
    dead.iter().for_each(|number| sim::thaw(processes[*number]));
    await_return(plan, mains.iter());
    for (number, main) in mains.into_iter().enumerate() {
        // What a dead process says does not count.
        if let Err(panic) = main.join()
            && !crashed(number)
        {
            std::panic::resume_unwind(panic);
        }
    }
    await_the_end_of_connections();
    let ends = ends_by_hand();
    let mut entries = seen(plan, &processes, &journal, &ends);
    let lives = lives::judge(plan, &journal, &entries, &ends);
    entries.extend(lives::busy());
    entries.sort_by_key(|entry| entry.at);
    let jobs = jobs::judge(plan, &journal);
    let jobs = jobs.and_then(|jobs| fenced::judge(plan, &journal).map(|()| jobs));
    let jobs = jobs.and_then(|jobs| marks::judge(plan, &journal).map(|()| jobs));
    let quiet = Quiet::of(plan, &processes);
    let taken = taken::judge(plan, &quiet, &journal, &entries);
    let jobs = jobs.and_then(|jobs| taken.map(|()| jobs));
    let jobs = jobs.and_then(|jobs| match plan.is_timed {
        true => {
            let punctual = Punctual::new(plan, &quiet, &entries, &journal);
            punctual.judge().map(|()| jobs)
        }
        false => Ok(jobs),
    });
    let judged = jobs.and_then(|jobs| Ok((jobs, lives?)));
    (entries, sight::revoked(&journal), judged)
}

/// Waits until every call returns: nothing is broken any more.
fn await_return<'a>(plan: &Plan, mains: impl Iterator<Item = &'a sim::JoinHandle<()>>) {
    let until = sim::elapsed() + PATIENCE + plan.holds_for();
    for main in mains {
        while !main.is_finished() {
            if plan.has_holds() {
                lives::release_endless(plan);
            }
            assert!(
                sim::elapsed() < until,
                "a call never returns:\n{}{}",
                sim::story(),
                servers()
            );
            sim::sleep(ms(50));
        }
    }
}

/// Returns what the servers have, and how it came to be.
fn servers() -> String {
    let nodes = contenders().join("\n    ");
    ensemble(|ensemble, _| {
        let from = ensemble.history().len().saturating_sub(60);
        let changes = ensemble.history().iter().skip(from);
        let changes: Vec<_> = changes
            .map(|change| format!("{:?} {:#x} {:?}", change.at, change.zxid, change.what))
            .collect();
        format!("nodes:\n    {nodes}\n{}", changes.join("\n"))
    })
}

/// Returns where the sequence numbers begin.
fn counters(plan: &Plan) -> BTreeMap<String, i32> {
    const QUEUES: [&str; 14] = [
        "/sim/m0",
        "/sim/m1",
        marks::LOCK,
        "/sim/reentrant",
        "/sim/rw",
        "/sim/job",
        "/sim/permits/locks",
        "/sim/permits/leases",
        "/sim/numbered/leases",
        "/sim/shards/0",
        "/sim/s0",
        "/sim/s0/locks",
        "/sim/s0/leases",
        "/sim/s0-__lock__",
    ];
    let queues = QUEUES.iter().filter(|_| plan.counters_end);
    queues
        .map(|queue| ((*queue).to_owned(), i32::MAX - 3))
        .collect()
}

fn build(plan: &Plan) {
    let config = EnsembleConfig {
        servers: plan.servers,
        tick: ms(plan.tick),
        old: plan.old,
        keeper: plan.keeper,
        container_check: match plan.containers_vanish {
            true => ms(plan.tick),
            false => Duration::from_secs(3600),
        },
        counters: counters(plan),
        expiry: plan.expiry(),
        hop: Duration::from_micros(plan.hop.min(50))..=Duration::from_micros(plan.hop),
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

/// An event that is due: the beginning or end of a trouble, or the end of a process.
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
                note(trouble, journal);
                troubles::begin(plan, trouble, processes);
            }
            Due::End(number) => {
                let trouble = &plan.troubles[number];
                troubles::end(plan, trouble, processes);
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
    if !plan.is_calm() {
        journal.note(NOBODY, 0, What::Healed);
    }
}

fn note(trouble: &Trouble, journal: &Journal) {
    use crate::plan::What::{Freeze, Suspend};
    // The scheduler keeps a list of freezes and suspends.
    if !matches!(trouble.what, Freeze { .. } | Suspend { .. }) {
        let text = format!("{:?} for {} ms", trouble.what, trouble.lasts);
        journal.note(NOBODY, 0, What::Fault { text });
    }
}

/// Returns when each process or one of its threads stood still, as entries of the history.
fn pauses(processes: &Processes) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (slot, number) in processes.iter().enumerate() {
        let who = Process { slot, life: 0 };
        let mut enter = |at, what| {
            entries.push(Entry {
                at,
                who,
                op: 0,
                what,
            })
        };
        let mut open: Option<(Time, Time)> = None;
        let mut mine: Vec<_> = sim::pauses();
        mine.retain(|(process, ..)| process == number);
        mine.sort_unstable();
        for (_, from, to) in mine {
            let (from, to) = (nanos(from), nanos(to));
            match &mut open {
                Some((_, until)) if from <= *until => *until = to.max(*until),
                _ => {
                    if let Some((since, until)) = open.replace((from, to)) {
                        enter(since, What::Paused);
                        enter(until, What::Resumed);
                    }
                }
            }
        }
        if let Some((since, until)) = open {
            enter(since, What::Paused);
            enter(until, What::Resumed);
        }
    }
    entries
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

fn seen(plan: &Plan, processes: &Processes, journal: &Journal, ends: &Ends) -> Vec<Entry> {
    let mut entries = journal.take();
    entries.extend(pauses(processes));
    entries.sort_by_key(|entry| entry.at);
    let died: BTreeMap<Process, Time> = entries
        .iter()
        .filter(|entry| entry.what == What::Died)
        .map(|entry| (entry.who, entry.at))
        .collect();
    // What a dead process says does not count.
    entries.retain(|entry| {
        let counts = |died: &Time| entry.at <= *died || entry.what == What::Resumed;
        died.get(&entry.who).is_none_or(counts)
    });
    // The order of a queue is not promised where threads hand on or nodes are deleted.
    if !plan.keeps_order() {
        entries.retain(|entry| !matches!(entry.what, What::Queued { .. }));
    }
    let taken: BTreeMap<_, _> = journal
        .nodes()
        .into_iter()
        .filter_map(|(who, op, nodes)| {
            let end = nodes.iter().filter_map(|node| ends.get(node)).min()?;
            Some(((who, op), *end))
        })
        .collect();
    // An administrator who takes a lock away takes it from a holder that trusts it.
    entries.retain(|entry| {
        entry.what != What::Valid
            || taken
                .get(&(entry.who, entry.op))
                .is_none_or(|end| entry.at < *end)
    });
    entries
}

/// Returns the nodes that an administrator removed, alone or with their sessions, and when.
fn ends_by_hand() -> Ends {
    ensemble(|ensemble, _| {
        let by_hand: Vec<i64> = ensemble
            .history()
            .iter()
            .filter_map(|change| match &change.what {
                ensemble::What::SessionEnded {
                    session,
                    why: SessionEnd::ByHand,
                } => Some(*session),
                _ => None,
            })
            .collect();
        let mut ends = BTreeMap::new();
        for change in ensemble.history() {
            if let ensemble::What::Deleted { path, owner, by } = &change.what
                && *owner != 0
                && (*by == 0 || by_hand.contains(owner))
            {
                ends.insert(path.clone(), nanos(change.at));
            }
        }
        ends
    })
}
