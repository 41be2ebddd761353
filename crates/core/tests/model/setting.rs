//! A setting to explore: the clients that take part, and the budget of mishaps.

use zklock_core::attempt::Patience;
use zklock_core::dialect::Role;

use super::client::Wish;
use super::directory::Overflow;
use super::mutant::Mutant;
use super::world::{Budget, Rules, Transport};

#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) wishes: Vec<Wish>,
    pub(crate) budget: Budget,
    pub(crate) rules: Rules,
    /// Whether the directory exists, and which number comes next.
    pub(crate) there: bool,
    pub(crate) counter: i64,
    pub(crate) overflow: Overflow,
}

impl Setting {
    /// Returns a setting. `x x? rr W` is a client that wants to be alone, one that only tries, one
    /// that reads twice, and a writer whose node is in the queue already; `2 faults, 1 cancel` may
    /// happen to them.
    pub(crate) fn new(wishes: &str, mishaps: &str) -> Self {
        Self {
            wishes: wishes.split_whitespace().map(wish).collect(),
            budget: budget(mishaps),
            rules: Rules {
                transport: Transport::Wire,
                create_tells: true,
                late_news: false,
                mutant: Mutant::Sound,
            },
            there: true,
            counter: 10,
            overflow: Overflow::Sticks,
        }
    }
}

fn wish(text: &str) -> Wish {
    let letters = text.trim_end_matches('?');
    Wish {
        role: match letters.as_bytes()[0].to_ascii_lowercase() {
            b'x' => Role::Exclusive,
            b'r' => Role::Read,
            b'w' => Role::Write,
            _ => panic!("no role is called {text}"),
        },
        patience: match letters == text {
            true => Patience::Waits,
            false => Patience::Tries,
        },
        rounds: letters.len() as u8,
        queued: letters.starts_with(|c: char| c.is_ascii_uppercase()),
    }
}

pub(crate) fn budget(text: &str) -> Budget {
    let mut budget = Budget::default();
    for part in text.split(", ").filter(|part| !part.is_empty()) {
        let (count, what) = part.split_once(' ').expect("a number and a mishap");
        let kind = match what {
            "fault" | "faults" => &mut budget.faults,
            "cancel" | "cancels" => &mut budget.cancels,
            "expiry" | "expiries" => &mut budget.expiries,
            "crash" | "crashes" => &mut budget.crashes,
            "panic" | "panics" => &mut budget.panics,
            "eviction" | "evictions" => &mut budget.evictions,
            "touch" | "touches" => &mut budget.touches,
            "vanishing" | "vanishings" => &mut budget.vanishings,
            "failure" | "failures" => &mut budget.failures,
            "lag" | "lags" => &mut budget.lags,
            "tick" | "ticks" => &mut budget.ticks,
            "hold" | "holds" => &mut budget.holds,
            _ => panic!("no mishap is called {what}"),
        };
        *kind = count.parse().expect("a number");
    }
    budget
}
