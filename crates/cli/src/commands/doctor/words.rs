//! The four-letter words, with which a server describes itself if its administrator allows them.

use std::collections::HashMap;
use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// The port of a server that is named without one.
const PORT: u16 = 2181;

/// Longer than any answer.
const LONGEST: u64 = 16 << 20;

/// A server's answer to a word.
pub(super) enum Said {
    Text(String),
    /// The server does not answer this word.
    NotAllowed,
    /// The server closes the connection, as a port for TLS does, or a server that has as many
    /// clients at this address as it accepts.
    HungUp,
    /// The server keeps the connection, and answers nothing in time.
    Silent,
    /// The server knows no leader.
    NotServing,
    /// The server's name has no address.
    NoAddress(io::Error),
    /// There is no connection.
    Nothing(io::Error),
}

/// Sends a word to a server.
pub(super) fn ask(server: &str, word: &str, patience: Duration) -> Said {
    let addresses = match addresses(server) {
        Ok(addresses) => addresses,
        Err(error) => return Said::NoAddress(error),
    };
    match answer(&addresses, word, patience) {
        Ok(text) if text.contains("not executed because it is not in the whitelist") => {
            Said::NotAllowed
        }
        Ok(text) if text.contains("not currently serving requests") => Said::NotServing,
        Ok(text) if text.is_empty() => Said::HungUp,
        Ok(text) => Said::Text(text),
        Err(error) if matches!(error.kind(), BrokenPipe | ConnectionReset) => Said::HungUp,
        Err(error) if error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none() => {
            Said::Silent
        }
        Err(error) => Said::Nothing(error),
    }
}

/// Returns the addresses of a server, at least one.
fn addresses(server: &str) -> io::Result<Vec<SocketAddr>> {
    let has_port = server
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let full = if has_port {
        server.to_owned()
    } else {
        format!("{server}:{PORT}")
    };
    let addresses: Vec<_> = full.to_socket_addrs()?.collect();
    match addresses.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::NotFound, "it has no address")),
        false => Ok(addresses),
    }
}

/// Connects to the first address that can be reached, and returns its answer.
fn answer(addresses: &[SocketAddr], word: &str, patience: Duration) -> io::Result<String> {
    let mut failed = io::ErrorKind::NotConnected.into();
    for address in addresses {
        match TcpStream::connect_timeout(address, patience) {
            Ok(mut stream) => {
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
                stream.write_all(word.as_bytes())?;
                let mut text = Vec::new();
                // Some servers reset the connection after their answer.
                let read = stream.take(LONGEST).read_to_end(&mut text);
                let late = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
                if text.is_empty() && read.is_err_and(|error| late.contains(&error.kind())) {
                    return Err(io::Error::from(io::ErrorKind::TimedOut));
                }
                return Ok(String::from_utf8_lossy(&text).into_owned());
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Parses lines that have a name, one of these characters, and a value.
pub(super) fn values(text: &str, between: &[char]) -> HashMap<String, String> {
    let pair = |line: &str| {
        let (name, value) = line.split_once(between)?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    text.lines().filter_map(pair).collect()
}
