//! The search for a smaller failing plan, with fewer clients, threads, steps and troubles.

use crate::plan::{Plan, Threads};
use crate::play::play;

/// The most runs that a search may take.
const RUNS: usize = 300;

/// Returns the smallest failing plan that the search has found, and how it fails.
pub(crate) fn shrink(plan: &Plan, story: String) -> (Plan, String) {
    let (mut plan, mut story) = (plan.clone(), story);
    let mut left = RUNS;
    loop {
        let smaller = candidates(&plan).into_iter().find_map(|candidate| {
            left = left.checked_sub(1)?;
            let story = play(&candidate, true).err()?;
            Some((candidate, story))
        });
        match smaller {
            Some(found) => (plan, story) = found,
            None => return (plan, story),
        }
    }
}

fn candidates(plan: &Plan) -> Vec<Plan> {
    let mut all = Vec::new();
    let mut add = |change: &dyn Fn(&mut Plan)| {
        let mut smaller = plan.clone();
        change(&mut smaller);
        all.push(smaller);
    };
    for number in 0..plan.troubles.len() {
        add(&|plan| {
            plan.troubles.remove(number);
        });
    }
    // A client keeps its number, to which troubles refer.
    for (number, client) in plan.clients.iter().enumerate() {
        if !client.threads.is_empty() {
            add(&|plan| plan.clients[number].threads.clear());
        }
        for thread in 0..client.threads.len() {
            add(&|plan| drop(plan.clients[number].threads.remove(thread)));
            for step in 0..client.threads[thread].len() {
                add(&|plan| {
                    plan.clients[number].threads[thread].remove(step);
                });
            }
        }
    }
    if plan.threads.pause > 0.0 {
        add(&|plan| {
            plan.threads = Threads {
                pause: 0.0,
                ..plan.threads
            }
        });
    }
    if plan.servers > 1 {
        add(&|plan| plan.servers = 1);
    }
    all.retain(|plan| plan.troubles.iter().all(|trouble| trouble.fits(plan)));
    all
}
