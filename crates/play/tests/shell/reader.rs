//! The reader, which connects and reads. One thread at a time has it.

use std::io::{ErrorKind, Read as _, Write as _};
use std::mem;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use zklock_jute::{
    ConnectReply, ConnectRequest, ErrorCode, Event, EventKind, Malformed, Reply, ReplyHeader, xid,
};
use zklock_play::{Answer, Core, Greeting};

use crate::client::{Shared, State, now};
use crate::who_reads::Read;

/// The number of bytes that are read at once.
const ROOM: usize = 64 * 1024;
/// The pause between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) struct Reader {
    shared: Arc<Shared>,
    stream: Arc<TcpStream>,
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// The read timeout of the socket.
    patience: Duration,
}

impl Read for Reader {
    type End = String;

    fn begin(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn turn(&mut self, until: Option<Instant>) -> Result<(), String> {
        self.set_patience(until);
        self.make_room();
        match (&*self.stream).read(&mut self.bytes[self.end..]) {
            Ok(0) => return Err("it hung up".to_owned()),
            Ok(read) => self.end += read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return match self.shared.closes_by() {
                    Some(at) if at <= Instant::now() => Err("it does not close".to_owned()),
                    _ => Ok(()),
                };
            }
            Err(error) => return Err(error.to_string()),
        }
        self.act()
    }

    fn panicked() -> String {
        "the thread that read panicked".to_owned()
    }
}

impl Reader {
    fn set_patience(&mut self, until: Option<Instant>) {
        let longest = self.shared.timeout / 12;
        let until = until.into_iter().chain(self.shared.closes_by()).min();
        let patience = until.map_or(longest, |until| {
            let left = until.saturating_duration_since(Instant::now());
            left.clamp(Duration::from_micros(50), longest)
        });
        if self.patience != patience {
            let _ = self.stream.set_read_timeout(Some(patience));
            self.patience = patience;
        }
    }

    fn make_room(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.bytes.len() - self.end < ROOM / 2 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let length = self.bytes.len();
            if length - self.end < ROOM / 2 {
                self.bytes.resize(2 * length, 0);
            }
        }
    }

    /// Gives all that has arrived to the core, in one turn.
    fn act(&mut self) -> Result<(), String> {
        let shared = self.shared.clone();
        let mut state = shared.state.lock();
        let mut acted = Ok(());
        while let Some(length) = self.frame() {
            let frame = &self.bytes[self.start + 4..self.start + 4 + length];
            acted = acted.and_then(|()| state.arrived(frame));
            self.start += 4 + length;
        }
        shared.carry_out(state);
        acted
    }

    /// Returns the length of the next frame, if all of it has arrived.
    fn frame(&self) -> Option<usize> {
        let head = self.bytes[self.start..self.end].first_chunk::<4>()?;
        let length = u32::from_be_bytes(*head) as usize;
        (self.start + 4 + length <= self.end).then_some(length)
    }
}

impl State {
    fn arrived(&mut self, frame: &[u8]) -> Result<(), String> {
        let wrong = |error: Malformed| error.to_string();
        let (header, body) = ReplyHeader::decode(frame).map_err(wrong)?;
        match header.xid {
            xid::EVENT => {
                let event = Event::decode(body).map_err(wrong)?;
                if event.kind != EventKind::None {
                    self.core.event(now(), &event);
                }
            }
            xid::PING => self.core.pong(now()),
            _ => {
                let op = self.open.pop_front().ok_or("an answer too many")?;
                let result = match header.code {
                    ErrorCode::OK => Ok(Reply::decode(op, body).map_err(wrong)?),
                    code => Err(code),
                };
                let zxid = header.zxid;
                self.core.answer(now(), Answer { zxid, result });
            }
        }
        Ok(())
    }
}

fn exchange(mut stream: &TcpStream, request: &ConnectRequest) -> Option<ConnectReply> {
    let mut out = Vec::new();
    request.encode(&mut out);
    stream.write_all(&out).ok()?;
    let mut head = [0; 4];
    stream.read_exact(&mut head).ok()?;
    let mut frame = vec![0; u32::from_be_bytes(head) as usize];
    stream.read_exact(&mut frame).ok()?;
    ConnectReply::decode(&frame).ok()
}

impl Shared {
    /// Connects, and connects again when the connection ends.
    pub(super) fn serve(self: &Arc<Self>) {
        let mut password = vec![0; 16];
        while self.closes_by().is_none_or(|at| Instant::now() < at) {
            let Some(reader) = self.greet(&mut password) else {
                thread::sleep(PAUSE);
                continue;
            };
            self.lead.serve(Box::new(reader));
            let mut state = self.state.lock();
            let asked_to_close = mem::take(&mut state.asked_to_close);
            state.attach(None);
            state.core.broke(now());
            self.carry_out(state);
            self.broken.fetch_add(1, Ordering::Relaxed);
            if asked_to_close {
                return;
            }
        }
    }

    fn greet(self: &Arc<Self>, password: &mut Vec<u8>) -> Option<Reader> {
        let stream = TcpStream::connect(&self.hosts).ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_read_timeout(Some(self.timeout / 4)).ok()?;
        let asked = now();
        let (session, last_zxid) = self.turn(|core, now| {
            core.greets(now);
            core.session()
        });
        let request = ConnectRequest {
            last_zxid,
            timeout_ms: self.timeout.as_millis() as i32,
            session,
            password: password.clone(),
            read_only: false,
        };
        let reply = exchange(&stream, &request)?;
        if reply.session == 0 || reply.timeout_ms <= 0 {
            self.turn(Core::expired);
            *password = vec![0; 16];
            return None;
        }
        let greeting = Greeting {
            session: reply.session,
            timeout: Duration::from_millis(reply.timeout_ms as u64),
            asked,
        };
        *password = reply.password;
        let stream = Arc::new(stream);
        let mut state = self.state.lock();
        state.attach(Some(stream.clone()));
        state.core.connected(now(), greeting);
        if self.closes_by().is_some() {
            state.close();
        }
        self.carry_out(state);
        Some(Reader {
            shared: self.clone(),
            stream,
            bytes: vec![0; ROOM],
            start: 0,
            end: 0,
            patience: Duration::ZERO,
        })
    }
}
