//! The client's side of the connections.

use std::io::{self, ErrorKind};

use super::Network;
use crate::system::simulated::net::connection::{Arrival, Connection, End};

impl Network {
    pub(in crate::system::simulated::net) fn open(
        &mut self,
        process: usize,
        server: usize,
        now: u64,
    ) -> u64 {
        self.latest += 1;
        let id = self.latest;
        self.connections
            .insert(id, Connection::new(process, server));
        self.schedule(now, Arrival::Call(id));
        id
    }

    pub(in crate::system::simulated::net) fn write(
        &mut self,
        id: u64,
        bytes: &[u8],
        now: u64,
    ) -> Option<io::Result<usize>> {
        let link = self.link(id).clone();
        let connection = self.connections.get_mut(&id)?;
        if connection.shut {
            return Some(Err(ErrorKind::BrokenPipe.into()));
        }
        if connection.end.is_some() {
            return Some(Err(ErrorKind::ConnectionReset.into()));
        }
        let room = link.window.saturating_sub(connection.unacknowledged);
        let taken = bytes.len().min(room).min(link.piece);
        if taken == 0 {
            return None;
        }
        let bytes = bytes.get(..taken).unwrap_or_default();
        connection.unacknowledged += taken;
        connection.gone_up += taken as u64;
        let cut = link
            .cut_up_after
            .filter(|limit| *limit < connection.gone_up);
        match cut {
            Some(limit) => {
                let over = (connection.gone_up - limit) as usize;
                let kept = bytes.get(..taken.saturating_sub(over)).unwrap_or_default();
                connection.end = Some(End::Reset);
                let kept = Arrival::Up(id, kept.to_vec());
                self.forget_cuts(id);
                self.schedule(now, kept);
                self.schedule(now, Arrival::UpEnd(id));
            }
            None => self.schedule(now, Arrival::Up(id, bytes.to_vec())),
        }
        Some(Ok(taken))
    }

    pub(in crate::system::simulated::net) fn read(
        &mut self,
        id: u64,
        into: &mut [u8],
    ) -> Option<io::Result<usize>> {
        let piece = self.link(id).piece;
        self.connections.get_mut(&id)?.read(into, piece)
    }

    pub(in crate::system::simulated::net) fn shut(&mut self, id: u64, now: u64) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if !std::mem::replace(&mut connection.shut, true) {
            self.woken.push(connection.key);
            self.schedule(now, Arrival::UpEnd(id));
        }
    }

    pub(in crate::system::simulated::net) fn drop_it(&mut self, id: u64, now: u64) {
        self.shut(id, now);
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.dropped = true;
        if connection.end == Some(End::Reset) && connection.number.is_none() {
            self.connections.remove(&id);
        }
    }
}
