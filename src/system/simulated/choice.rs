//! How the scheduler decides which thread goes on.

use std::time::Duration;

/// How the scheduler decides which thread goes on.
#[derive(Clone, Debug)]
pub enum Choice {
    /// At random.
    Random {
        /// The chance that another thread goes on at a point where this one could.
        switch: f64,
        /// The chance that the thread stops there for a while.
        pause: f64,
        /// The longest such pause.
        longest: Duration,
    },
    /// Every order with a bounded number of preemptions, one for each run.
    Bounded(Bounded),
}

/// Walks through all orders with at most a given number of preemptions.
///
/// A run repeats the choices of the run before, up to the last choice with an alternative
/// left, and takes the alternative. (Musuvathi and Qadeer, "Iterative context bounding", 2007.)
#[derive(Clone, Debug)]
pub struct Bounded {
    most: usize,
    /// The choices so far: what was chosen, of how many, and whether anything but the first is a preemption.
    path: Vec<(usize, usize, bool)>,
    at: usize,
}

impl Bounded {
    /// Begins with the order without any preemption.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            path: Vec::new(),
            at: 0,
        }
    }

    /// Goes to the next order; returns `false` if there is none.
    pub fn advance(&mut self) -> bool {
        self.path.truncate(self.at);
        self.at = 0;
        while let Some((chosen, of, preempts)) = self.path.pop() {
            let spent = self.spent() + usize::from(preempts && chosen == 0);
            let allowed = !preempts || chosen > 0 || spent <= self.most;
            if chosen + 1 < of && allowed {
                self.path.push((chosen + 1, of, preempts));
                return true;
            }
        }
        false
    }

    fn spent(&self) -> usize {
        let preempted = |(chosen, _, preempts): &&(usize, usize, bool)| *preempts && *chosen > 0;
        self.path.iter().filter(preempted).count()
    }

    /// Chooses one `of` the threads; the current thread is the first, if it `could` go on.
    pub(super) fn choose(&mut self, of: usize, could: bool) -> usize {
        if of <= 1 {
            return 0;
        }
        if self.path.len() == self.at {
            self.path.push((0, of, could));
        }
        let chosen = self.path.get(self.at).map_or(0, |choice| choice.0);
        self.at += 1;
        chosen.min(of - 1)
    }
}
