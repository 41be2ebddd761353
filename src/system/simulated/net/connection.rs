//! One connection, and the data on its way in it.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};

use crate::system::simulated::scheduler::new_key;
use crate::system::simulated::state::Key;

pub(super) struct Connection {
    pub(super) process: usize,
    pub(super) server: usize,
    pub(super) key: Key,
    pub(super) stage: Stage,
    /// The peer's number for the connection.
    pub(super) number: Option<u64>,
    pub(super) inbound: VecDeque<u8>,
    pub(super) end: Option<End>,
    pub(super) shut: bool,
    /// Whether the data that the server sends from now on is lost.
    pub(super) cut: bool,
    /// When the last message in each direction arrives.
    pub(super) last_up: u64,
    pub(super) last_down: u64,
    pub(super) unacknowledged: usize,
    pub(super) gone_up: u64,
    pub(super) come_down: u64,
    pub(super) held_up: Vec<Arrival>,
    pub(super) held_down: Vec<Arrival>,
    pub(super) dropped: bool,
}

impl Connection {
    pub(super) fn new(process: usize, server: usize) -> Self {
        Self {
            process,
            server,
            key: new_key(),
            stage: Stage::Connecting,
            number: None,
            inbound: VecDeque::new(),
            end: None,
            shut: false,
            cut: false,
            last_up: 0,
            last_down: 0,
            unacknowledged: 0,
            gone_up: 0,
            come_down: 0,
            held_up: Vec::new(),
            held_down: Vec::new(),
            dropped: false,
        }
    }

    /// Takes data that has arrived, at most a piece; returns `None` if there is none yet.
    pub(super) fn read(&mut self, into: &mut [u8], piece: usize) -> Option<io::Result<usize>> {
        if self.shut {
            return Some(Ok(0));
        }
        let most = into.len().min(piece).min(self.inbound.len());
        if most > 0 {
            for (to, from) in into.iter_mut().zip(self.inbound.drain(..most)) {
                *to = from;
            }
            return Some(Ok(most));
        }
        match self.end? {
            End::Closed => Some(Ok(0)),
            End::Reset => Some(Err(ErrorKind::ConnectionReset.into())),
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    Connecting,
    Refused,
    Connected,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    Closed,
    Reset,
}

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Arrival {
    Call(u64),
    Answer(u64, bool),
    Up(u64, Vec<u8>),
    UpEnd(u64),
    Down(u64, Vec<u8>),
    DownEnd(u64),
}

impl Arrival {
    pub(super) fn connection(&self) -> u64 {
        match self {
            Self::Call(id) | Self::Answer(id, _) | Self::Up(id, _) | Self::UpEnd(id) => *id,
            Self::Down(id, _) | Self::DownEnd(id) => *id,
        }
    }

    pub(super) fn goes_up(&self) -> bool {
        matches!(self, Self::Call(_) | Self::Up(..) | Self::UpEnd(_))
    }
}
