//! Work for a leader: large requests, and writes that may fail.

use std::io;

use super::words::Encoder;
use super::{Raw, op};

impl Raw {
    /// Writes empty data into a node; returns its version, which grows with each write.
    pub fn try_touch(&mut self, path: &str) -> io::Result<i32> {
        let mut body = Encoder::default();
        body.string(&self.full(path)).buffer(b"").int(-1);
        self.xid += 1;
        let answered = self.try_call_as(self.xid, op::SET_DATA, &body.0)?;
        let mut stat = answered.map_err(|code| io::Error::other(format!("refused: {code}")))?;
        // Two transactions and two times.
        for _ in 0..4 {
            stat.long();
        }
        Ok(stat.int())
    }

    /// Sends a request that keeps a leader busy for a while, and does not wait for the answer.
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
