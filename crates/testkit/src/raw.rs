//! A second client, on plain sockets, which tells a test the truth about the server's tree.
//!
//! This client shares no code with the library. It lives for a few requests and sends no pings.

mod busy;
mod rights;
mod words;

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use self::words::{Decoder, Encoder};
use super::{PATIENCE, eventually, within};

/// The numbers of ZooKeeper's requests.
pub mod op {
    pub const CREATE: i32 = 1;
    pub const DELETE: i32 = 2;
    pub const EXISTS: i32 = 3;
    pub const GET_DATA: i32 = 4;
    pub const SET_DATA: i32 = 5;
    pub const SET_ACL: i32 = 7;
    pub const GET_CHILDREN: i32 = 8;
    pub const SYNC: i32 = 9;
    pub const PING: i32 = 11;
    pub const GET_CHILDREN2: i32 = 12;
    pub const CHECK: i32 = 13;
    pub const MULTI: i32 = 14;
    pub const CREATE2: i32 = 15;
    pub const RECONFIG: i32 = 16;
    pub const REMOVE_WATCHES: i32 = 18;
    pub const CREATE_CONTAINER: i32 = 19;
    pub const AUTH: i32 = 100;
    pub const SET_WATCHES: i32 = 101;
    pub const SASL: i32 = 102;
    pub const GET_EPHEMERALS: i32 = 103;
    pub const CLOSE: i32 = -11;
}

/// The numbers of ZooKeeper's error codes that tests ask for.
pub const NO_NODE: i32 = -101;
pub const NODE_EXISTS: i32 = -110;

/// How a node is created.
pub const PERSISTENT: i32 = 0;
pub const EPHEMERAL: i32 = 1;
pub const PERSISTENT_SEQUENTIAL: i32 = 2;
pub const EPHEMERAL_SEQUENTIAL: i32 = 3;

/// Returns the names under `path`, sorted; returns none if there is no such node.
pub fn children(hosts: &str, path: &str) -> Vec<String> {
    Raw::connect(hosts).children(path).unwrap_or_default()
}

/// Waits until the directory of a lock is empty, or gone.
#[track_caller]
pub fn assert_nothing_left(hosts: &str, path: &str) {
    let mut raw = Raw::connect(hosts);
    let mut left = Vec::new();
    let empty = within(PATIENCE, || {
        left = raw.children(path).unwrap_or_default();
        left.is_empty()
    });
    assert!(empty, "still under {path}: {left:?}");
}

/// Waits until there are this many nodes in a directory.
#[track_caller]
pub fn wait_for_children(hosts: &str, path: &str, count: usize) {
    let mut raw = Raw::connect(hosts);
    eventually(&format!("{count} nodes under {path}"), || {
        raw.children(path).unwrap_or_default().len() == count
    });
}

/// Returns the session that a node belongs to.
#[track_caller]
pub fn owner(hosts: &str, node: &str) -> i64 {
    let stat = Raw::connect(hosts).stat(node);
    stat.unwrap_or_else(|| panic!("there is no {node}")).owner
}

/// Ends a session of a real server, which to its client is an expiry: takes the session over,
/// closes it, and repeats that until the server does not know it any more.
#[track_caller]
pub fn expire(hosts: &str, session: i64) {
    let expired = within(PATIENCE, || match Raw::attach(hosts, session) {
        Ok(mut raw) => {
            raw.close();
            false
        }
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    });
    assert!(expired, "session {session:#x} is not to be had");
}

/// Returns the password that ZooKeeper gives to a session: sixteen bytes of Java's random numbers,
/// which depend on the session's id alone.
fn password(session: i64) -> [u8; 16] {
    const SECRET: i64 = 0xB341_5C00;
    const FACTOR: i64 = 0x5_DEEC_E66D;
    const MASK: i64 = (1 << 48) - 1;
    let mut state = (session ^ SECRET ^ FACTOR) & MASK;
    let mut password = [0; 16];
    for chunk in password.chunks_mut(4) {
        state = state.wrapping_mul(FACTOR).wrapping_add(0xB) & MASK;
        chunk.copy_from_slice(&(state >> 16).to_le_bytes()[..4]);
    }
    password
}

/// The fields of a node's stat that tests use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stat {
    pub czxid: i64,
    /// When the node was created, by the wall clock of the leader.
    pub ctime_ms: i64,
    pub version: i32,
    /// How often children were created or deleted.
    pub cversion: i32,
    pub owner: i64,
    pub children: i32,
}

/// A client with a session of its own.
#[derive(Debug)]
pub struct Raw {
    socket: TcpStream,
    chroot: String,
    session: i64,
    xid: i32,
}

impl Raw {
    /// Connects to the first server that answers, with a session timeout of 20 s.
    #[track_caller]
    pub fn connect(hosts: &str) -> Self {
        Self::connect_with(hosts, Duration::from_secs(20))
    }

    /// Connects to the first server that answers.
    #[track_caller]
    pub fn connect_with(hosts: &str, timeout: Duration) -> Self {
        let mut connected = None;
        within(PATIENCE, || {
            connected = Self::try_connect(hosts, timeout).ok();
            connected.is_some()
        });
        connected.unwrap_or_else(|| panic!("no server of {hosts} gives a session"))
    }

    /// As [`connect_with`](Self::connect_with), with one attempt.
    pub fn try_connect(hosts: &str, timeout: Duration) -> io::Result<Self> {
        Self::greet(hosts, timeout, 0, [0; 16])
    }

    /// Takes a session over from its client, which loses its connection.
    fn attach(hosts: &str, session: i64) -> io::Result<Self> {
        let timeout = Duration::from_secs(20);
        Self::greet(hosts, timeout, session, password(session))
    }

    fn greet(hosts: &str, timeout: Duration, session: i64, password: [u8; 16]) -> io::Result<Self> {
        let (hosts, chroot) = match hosts.find('/') {
            Some(at) => hosts.split_at(at),
            None => (hosts, ""),
        };
        let mut raw = Self {
            socket: connect_to_any(hosts)?,
            chroot: chroot.to_owned(),
            session: 0,
            xid: 0,
        };
        let millis = i32::try_from(timeout.as_millis()).map_err(io::Error::other)?;
        let mut hello = Encoder::default();
        hello.int(0).long(0).int(millis).long(session);
        hello.buffer(&password);
        raw.send(&hello.0)?;
        let mut reply = Decoder(raw.receive()?);
        reply.int();
        if reply.int() <= 0 {
            let what = "the server gives no session";
            return Err(io::Error::new(io::ErrorKind::NotFound, what));
        }
        raw.session = reply.long();
        Ok(raw)
    }

    pub fn session(&self) -> i64 {
        self.session
    }

    /// Returns the names under `path`, sorted, or nothing if there is no such node.
    pub fn children(&mut self, path: &str) -> Option<Vec<String>> {
        let body = self.read_request(path);
        let mut reply = found(self.call(op::GET_CHILDREN2, &body.0))?;
        let mut names: Vec<_> = (0..reply.int()).map(|_| reply.string()).collect();
        names.sort();
        Some(names)
    }

    pub fn data(&mut self, path: &str) -> Option<Vec<u8>> {
        let body = self.read_request(path);
        found(self.call(op::GET_DATA, &body.0)).map(|mut reply| reply.buffer())
    }

    pub fn stat(&mut self, path: &str) -> Option<Stat> {
        let body = self.read_request(path);
        let mut reply = found(self.call(op::EXISTS, &body.0))?;
        let (czxid, _mzxid, ctime_ms, _mtime) =
            (reply.long(), reply.long(), reply.long(), reply.long());
        let (version, cversion, _aversion) = (reply.int(), reply.int(), reply.int());
        let (owner, _length, children) = (reply.long(), reply.int(), reply.int());
        Some(Stat {
            czxid,
            ctime_ms,
            version,
            cversion,
            owner,
            children,
        })
    }

    /// Creates a node, open to everyone, and returns its path or the error code.
    pub fn create(&mut self, path: &str, data: &[u8], mode: i32) -> Result<String, i32> {
        const ALL: i32 = 31;
        let mut body = Encoder::default();
        body.string(&self.full(path)).buffer(data).int(1).int(ALL);
        body.string("world").string("anyone").int(mode);
        let created = self.call(op::CREATE, &body.0)?.string();
        Ok(created[self.chroot.len()..].to_owned())
    }

    /// Creates a node, after the nodes above it.
    pub fn create_all(&mut self, path: &str) {
        for (end, _) in path.match_indices('/').skip(1) {
            drop(self.create(&path[..end], b"", PERSISTENT));
        }
        drop(self.create(path, b"", PERSISTENT));
    }

    pub fn set_data(&mut self, path: &str, data: &[u8]) -> Result<(), i32> {
        let mut body = Encoder::default();
        body.string(&self.full(path)).buffer(data).int(-1);
        self.call(op::SET_DATA, &body.0).map(drop)
    }

    pub fn delete(&mut self, path: &str) -> Result<(), i32> {
        let mut body = Encoder::default();
        body.string(&self.full(path)).int(-1);
        self.call(op::DELETE, &body.0).map(drop)
    }

    /// Deletes a node and creates it again, ephemeral, in one transaction.
    pub fn replace(&mut self, path: &str) -> Result<(), i32> {
        const ALL: i32 = 31;
        let path = self.full(path);
        let mut body = Encoder::default();
        body.int(op::DELETE).0.push(0);
        body.int(-1).string(&path).int(-1);
        body.int(op::CREATE).0.push(0);
        body.int(-1).string(&path).buffer(b"").int(1).int(ALL);
        body.string("world").string("anyone").int(EPHEMERAL);
        body.int(-1).0.push(1);
        body.int(-1);
        self.call(op::MULTI, &body.0).map(drop)
    }

    /// Lets servers join the ensemble, and those with these numbers leave it.
    pub fn reconfigure(&mut self, joining: &str, leaving: &str) -> io::Result<Vec<u8>> {
        let mut body = Encoder::default();
        // No list of all members, and no condition on the version.
        body.string(joining).string(leaving).int(-1).long(-1);
        self.xid += 1;
        let reply = self.try_call_as(self.xid, op::RECONFIG, &body.0)?;
        let refused = |code| io::Error::other(format!("the server refused: {code}"));
        reply.map(|mut reply| reply.buffer()).map_err(refused)
    }

    /// Sends one request and returns the reply's body or the server's error code.
    #[track_caller]
    fn call(&mut self, opcode: i32, body: &[u8]) -> Result<Decoder, i32> {
        self.xid += 1;
        self.call_as(self.xid, opcode, body)
    }

    /// Ends the session.
    fn close(&mut self) {
        let mut frame = Encoder::default();
        frame.int(0).int(op::CLOSE);
        // Once the answer is there, the nodes of this session are gone.
        if self.send(&frame.0).is_ok() {
            drop(self.answer_to(0));
        }
    }

    #[track_caller]
    fn call_as(&mut self, xid: i32, opcode: i32, body: &[u8]) -> Result<Decoder, i32> {
        let answered = self.try_call_as(xid, opcode, body);
        answered.unwrap_or_else(|error| panic!("request {opcode}: {error}"))
    }

    fn try_call_as(
        &mut self,
        xid: i32,
        opcode: i32,
        body: &[u8],
    ) -> io::Result<Result<Decoder, i32>> {
        let mut frame = Encoder::default();
        frame.int(xid).int(opcode).0.extend_from_slice(body);
        self.send(&frame.0)?;
        let mut reply = self.answer_to(xid)?;
        let _zxid = reply.long();
        Ok(match reply.int() {
            0 => Ok(reply),
            code => Err(code),
        })
    }

    fn answer_to(&mut self, xid: i32) -> io::Result<Decoder> {
        loop {
            let mut reply = Decoder(self.receive()?);
            if reply.int() == xid {
                return Ok(reply);
            }
        }
    }

    fn read_request(&self, path: &str) -> Encoder {
        let mut body = Encoder::default();
        body.string(&self.full(path)).0.push(0);
        body
    }

    fn full(&self, path: &str) -> String {
        format!("{}{path}", self.chroot)
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        let mut bytes = Encoder::default();
        bytes.buffer(frame);
        self.socket.write_all(&bytes.0)
    }

    fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.socket.read_exact(&mut length)?;
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.socket.read_exact(&mut frame)?;
        Ok(frame)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.close();
    }
}

fn connect_to_any(hosts: &str) -> io::Result<TcpStream> {
    let mut outcome = Err(io::Error::other("no hosts"));
    for address in hosts
        .split(',')
        .flat_map(|host| host.to_socket_addrs().into_iter().flatten())
    {
        outcome = TcpStream::connect_timeout(&address, Duration::from_secs(2));
        if let Ok(socket) = &outcome {
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(Duration::from_secs(10)))?;
            break;
        }
    }
    outcome
}

#[track_caller]
fn found(reply: Result<Decoder, i32>) -> Option<Decoder> {
    match reply {
        Ok(reply) => Some(reply),
        Err(NO_NODE) => None,
        Err(code) => panic!("the server refused a read: {code}"),
    }
}
