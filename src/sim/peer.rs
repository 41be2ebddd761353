//! The ensemble at the other end of the simulated network.

use std::any::Any;
use std::time::Duration;

use super::ensemble::{self, Ensemble};
use crate::system::simulated::{Output, Peer};

impl Peer for Ensemble {
    fn accept(&mut self, now: Duration, server: usize) -> Option<u64> {
        self.accept(now, server)
    }

    fn receive(&mut self, now: Duration, connection: u64, bytes: &[u8]) {
        self.receive(now, connection, bytes);
    }

    fn hang_up(&mut self, now: Duration, connection: u64) {
        self.hang_up(now, connection);
    }

    fn next_at(&self) -> Option<Duration> {
        self.next_at()
    }

    fn run_until(&mut self, now: Duration) {
        self.run_until(now);
    }

    fn take_output(&mut self) -> Vec<(u64, Output)> {
        let output = self.take_output().into_iter();
        let output = output.map(|(connection, output)| {
            let output = match output {
                ensemble::Output::Bytes(bytes) => Output::Bytes(bytes),
                ensemble::Output::Closed => Output::Closed,
            };
            (connection, output)
        });
        output.collect()
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
