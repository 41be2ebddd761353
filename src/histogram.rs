//! A histogram of durations.

use std::time::Duration;

/// The number of buckets of a histogram; the last one holds all longer durations.
const BUCKETS: usize = 32;

/// The number of durations in each bucket.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    total: Duration,
}

impl Histogram {
    pub(crate) fn record(&mut self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bits = (u64::BITS - micros.leading_zeros()) as usize;
        if let Some(bucket) = self.buckets.get_mut(bits.min(BUCKETS - 1)) {
            *bucket += 1;
        }
        self.total = self.total.saturating_add(Duration::from_micros(micros));
    }

    /// Returns the number of recorded durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of the recorded durations.
    pub fn total(&self) -> Duration {
        self.total
    }

    /// Returns, for each bucket, its upper bound and the number of durations in it. The
    /// bounds are powers of two of microseconds; the last bucket has none.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let bounds = (0..BUCKETS).map(|at| match at + 1 {
            BUCKETS => Duration::MAX,
            _ => Duration::from_micros(1 << at),
        });
        bounds.zip(self.buckets.iter().copied())
    }

    /// Returns the upper bound of the bucket that contains this quantile, from 0 to 1; zero if
    /// nothing was recorded.
    pub fn quantile(&self, quantile: f64) -> Duration {
        let wanted = (self.count() as f64 * quantile.clamp(0.0, 1.0)).ceil() as u64;
        let mut seen = 0;
        let reached = self.buckets().find(|(_, number)| {
            seen += number;
            seen >= wanted.max(1)
        });
        reached.map_or(Duration::ZERO, |(bound, _)| bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_go_into_the_bucket_below_whose_bound_they_lie() {
        let mut histogram = Histogram::default();
        for micros in [0, 1, 2, 3, 1000, u64::MAX] {
            histogram.record(Duration::from_micros(micros));
        }
        let filled: Vec<_> = histogram.buckets().filter(|(_, n)| *n > 0).collect();
        let micros = Duration::from_micros;
        let expected = [
            (micros(1), 1),
            (micros(2), 1),
            (micros(4), 2),
            (micros(1024), 1),
            (Duration::MAX, 1),
        ];
        assert_eq!(filled, expected);
        assert_eq!(histogram.quantile(0.5), micros(4));
        assert_eq!(histogram.quantile(1.0), Duration::MAX);
        assert_eq!(Histogram::default().quantile(0.5), Duration::ZERO);
    }
}
