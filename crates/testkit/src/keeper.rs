//! A server with the answers of ClickHouse Keeper, or of RaftKeeper, in front of an embedded one.
//!
//! By their sources (`KeeperTCPHandler.cpp`, `ConnectionHandler.cpp`): sessions have a password of
//! zeros; Keeper begins a new session whichever one the client asks for; RaftKeeper takes a session
//! up again, and says with version 42 and a timeout of -1 that it has expired.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;

use super::relay::{listen, pass_on};

/// The number of bytes in the first frame of a client, and of a server.
const HELLO: usize = 49;
const GREETING: usize = 41;
/// The positions of the fields in these frames; the length comes first, then the version.
const ASKED: usize = 20;
const PASSWORD: usize = 32;
const TIMEOUT: usize = 8;
const SESSION: usize = 12;
const GRANTED_PASSWORD: usize = 24;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    ClickHouse,
    Raft,
}

/// The passwords that the embedded server gave, by the session.
type Passwords = Mutex<HashMap<[u8; 8], [u8; 16]>>;

/// Starts such a server in front of `server`; it ends with the process. Returns its address.
pub fn start(kind: Kind, server: &str) -> String {
    let (server, passwords) = (server.to_owned(), Passwords::default());
    listen(move |client| drop(serve(kind, client, &server, &passwords)))
}

/// Starts a ClickHouse Keeper that knows no leader.
pub fn start_leaderless() -> String {
    listen(|client| drop(turn_away(client)))
}

fn turn_away(mut client: TcpStream) -> io::Result<()> {
    let mut hello = [0; HELLO];
    client.read_exact(&mut hello[..4])?;
    if hello[0] != 0 {
        return client.write_all(b"This instance is not currently serving requests");
    }
    client.read_exact(&mut hello[4..])?;
    let mut greeting = [0; GREETING];
    greeting[..4].copy_from_slice(&36_i32.to_be_bytes());
    greeting[4..8].copy_from_slice(&42_i32.to_be_bytes());
    greeting[TIMEOUT..TIMEOUT + 4].copy_from_slice(&4000_i32.to_be_bytes());
    greeting[SESSION..SESSION + 8].fill(0xff);
    greeting[20..24].copy_from_slice(&16_i32.to_be_bytes());
    // ClickHouse Keeper leaves the last field out.
    client.write_all(&greeting[..40])
}

fn serve(kind: Kind, mut client: TcpStream, server: &str, passwords: &Passwords) -> io::Result<()> {
    let mut hello = [0; HELLO];
    client.read_exact(&mut hello[..4])?;
    if hello[0] != 0 {
        return client.write_all(said(kind, &hello[..4]).as_bytes());
    }
    client.read_exact(&mut hello[4..])?;
    if kind == Kind::ClickHouse {
        hello[ASKED..ASKED + 8].fill(0);
    }
    let asked: [u8; 8] = hello[ASKED..ASKED + 8].try_into().expect("eight bytes");
    let known = passwords.lock().expect("no panic").get(&asked).copied();
    hello[PASSWORD..PASSWORD + 16].copy_from_slice(&known.unwrap_or_default());
    let mut server = TcpStream::connect(server)?;
    server.write_all(&hello)?;
    let mut greeting = [0; GREETING];
    server.read_exact(&mut greeting)?;
    if greeting[SESSION..SESSION + 8] == [0; 8] {
        greeting[4..8].copy_from_slice(&42_i32.to_be_bytes());
        greeting[TIMEOUT..TIMEOUT + 4].copy_from_slice(&(-1_i32).to_be_bytes());
        greeting[SESSION..SESSION + 8].copy_from_slice(&asked);
    }
    let session = greeting[SESSION..SESSION + 8].try_into();
    let password = &mut greeting[GRANTED_PASSWORD..GRANTED_PASSWORD + 16];
    let given = (&*password).try_into().expect("sixteen bytes");
    let session = session.expect("eight bytes");
    passwords.lock().expect("no panic").insert(session, given);
    greeting[GRANTED_PASSWORD..GRANTED_PASSWORD + 16].fill(0);
    client.write_all(&greeting)?;
    pass_on(&client, &server, |_, _| Ok(()));
    pass_on(&server, &client, |_, _| Ok(()));
    Ok(())
}

/// Returns the part of the answer to a four-letter word that tells which server this is.
fn said(kind: Kind, word: &[u8]) -> &'static str {
    match (kind, word) {
        (Kind::ClickHouse, b"srvr") => {
            "ClickHouse Keeper version: v25.3.2.39-stable-3dbb1b1a\nLatency min/avg/max: 0/0/0\n\
             Zxid: 0x7\nMode: standalone\nNode count: 4\n"
        }
        (Kind::Raft, b"srvr") => {
            "RaftKeeper version: RaftKeeper v2.1.4\nLatency min/avg/max: 0/0/0\nZxid: 7\n\
             Mode: standalone\nNode count: 4\n"
        }
        _ => "",
    }
}
