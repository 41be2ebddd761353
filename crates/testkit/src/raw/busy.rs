//! Work for a leader.

use super::words::Encoder;
use super::{Raw, op};

impl Raw {
    /// Sends a request that a leader is busy with for a while, and does not wait for the answer.
    pub fn keep_busy(&mut self, checks: usize) {
        self.xid += 1;
        let mut frame = Encoder::default();
        frame.int(self.xid).int(op::MULTI);
        for _ in 0..checks {
            frame.int(op::CHECK).0.push(0);
            frame.int(-1).string("/").int(-1);
        }
        frame.int(-1).0.push(1);
        frame.int(-1);
        self.send(&frame.0).expect("the server reads on");
    }
}
