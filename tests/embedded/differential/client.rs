//! A client that records everything that it receives, in order.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::TcpStream;
use std::time::Duration;

use zklock_jute::Names as Children;
use zklock_jute::{
    Access, ConnectReply, ConnectRequest, Event, Reply, ReplyHeader, Request, Stat, xid,
};

use crate::support::frame::read_frame;

/// One session with one of the servers.
pub(super) struct RecordingClient {
    hosts: String,
    stream: TcpStream,
    pub(super) session: i64,
    password: Vec<u8>,
    pub(super) seen: i64,
    pub(super) events: Vec<Event>,
}

/// The allowed differences between the servers.
#[derive(Clone, Default)]
pub(super) struct Differences {
    /// The number that is subtracted from a zxid.
    pub(super) shift: i64,
    /// The numbers of the sessions of a script, which are the same on both servers.
    pub(super) sessions: HashMap<i64, i64>,
    /// Whether the real server is version 3.9 or newer, which answers create2 in a multi with a
    /// stat, and requires the permission to read for exists.
    pub(super) newer: bool,
}

/// The parts of a reply on which the servers must agree.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Heard {
    xid: i32,
    zxid: i64,
    code: i32,
    body: Option<Reply>,
    /// The length of the reply: missing data and empty data parse alike, and differ in length.
    length: usize,
}

impl RecordingClient {
    pub(super) fn connect(hosts: &str, timeout_ms: i32) -> io::Result<(Self, ConnectReply)> {
        Self::open(hosts, timeout_ms, 0, 0, vec![0; 16])
    }

    /// Resumes the session on a new connection.
    pub(super) fn reconnect(&mut self, timeout_ms: i32) -> io::Result<ConnectReply> {
        let (session, password) = (self.session, self.password.clone());
        let (client, reply) = Self::open(&self.hosts, timeout_ms, self.seen, session, password)?;
        *self = client;
        Ok(reply)
    }

    fn open(
        hosts: &str,
        timeout_ms: i32,
        last_zxid: i64,
        session: i64,
        password: Vec<u8>,
    ) -> io::Result<(Self, ConnectReply)> {
        let stream = TcpStream::connect(hosts)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let hello = ConnectRequest {
            last_zxid,
            timeout_ms,
            session,
            password,
            read_only: false,
        };
        let mut frame = Vec::new();
        hello.encode(&mut frame);
        (&stream).write_all(&frame)?;
        let reply = ConnectReply::decode(&read_frame(&stream)?).map_err(io::Error::other)?;
        let client = Self {
            hosts: hosts.to_owned(),
            stream,
            session: reply.session,
            password: reply.password.clone(),
            seen: last_zxid,
            events: Vec::new(),
        };
        Ok((client, reply))
    }

    /// Sends a request with any number: the numbers that libraries give to some requests have
    /// a meaning only for the libraries.
    pub(super) fn send(&self, request: &Request, xid: i32) -> io::Result<()> {
        let mut frame = Vec::new();
        request.encode(xid, &mut frame);
        (&self.stream).write_all(&frame)
    }

    /// Waits for a reply, and keeps the events that come before it.
    pub(super) fn hear(&mut self, request: &Request, names: &Differences) -> io::Result<Heard> {
        loop {
            let frame = read_frame(&self.stream)?;
            let (header, body) = ReplyHeader::decode(&frame).map_err(io::Error::other)?;
            if header.xid == xid::EVENT {
                self.events
                    .push(Event::decode(body).map_err(io::Error::other)?);
                continue;
            }
            self.seen = self.seen.max(header.zxid);
            let reply = match header.code.0 {
                0 => Some(Reply::decode(request.op(), body).map_err(io::Error::other)?),
                _ => None,
            };
            let differs = names.newer && matches!(request, Request::Multi(_));
            if names.newer && matches!(request, Request::Exists { .. }) {
                return Ok(Heard {
                    xid: header.xid,
                    zxid: names.zxid(header.zxid),
                    code: 0,
                    body: None,
                    length: 0,
                });
            }
            return Ok(Heard {
                xid: header.xid,
                zxid: names.zxid(header.zxid),
                code: header.code.0,
                body: reply.map(|reply| names.reply(reply)),
                length: if differs { 0 } else { body.len() },
            });
        }
    }

    pub(super) fn call(&mut self, request: &Request, names: &Differences) -> io::Result<Heard> {
        self.send(request, 7)?;
        self.hear(request, names)
    }

    /// Waits until the server closes the connection.
    pub(super) fn hear_the_end(&mut self) -> bool {
        read_frame(&self.stream).is_err()
    }
}

impl Heard {
    pub(super) fn code(&self) -> i32 {
        self.code
    }
}

impl Differences {
    /// Shifts a zxid. Nodes that existed before the first change get a 0.
    fn zxid(&self, zxid: i64) -> i64 {
        if zxid == 0 { 0 } else { zxid - self.shift }
    }

    fn stat(&self, stat: Stat) -> Stat {
        let owner = stat.ephemeral_owner;
        Stat {
            czxid: self.zxid(stat.czxid),
            mzxid: self.zxid(stat.mzxid),
            pzxid: self.zxid(stat.pzxid),
            ctime: 0,
            mtime: 0,
            ephemeral_owner: self.sessions.get(&owner).copied().unwrap_or(owner),
            ..stat
        }
    }

    fn reply(&self, reply: Reply) -> Reply {
        let stat = |stat| self.stat(stat);
        match reply {
            Reply::Created { path, stat: of } => Reply::Created {
                path,
                stat: of.map(stat),
            },
            Reply::Stat(of) => Reply::Stat(stat(of)),
            Reply::Data { data, stat: of } => Reply::Data {
                data,
                stat: stat(of),
            },
            Reply::Acl { mut acl, stat: of } => {
                // The identities that stand for `auth` come in the order of their hashes.
                let alike = |a: &Access, b: &Access| {
                    (a.permissions, &a.scheme) == (b.permissions, &b.scheme)
                };
                for identities in acl.chunk_by_mut(alike) {
                    identities.sort_by(|a, b| a.id.cmp(&b.id));
                }
                Reply::Acl {
                    acl,
                    stat: stat(of),
                }
            }
            Reply::Children { names, stat: of } => Reply::Children {
                names: alphabetical(&names),
                stat: of.map(stat),
            },
            Reply::Ephemerals(paths) => Reply::Ephemerals(sorted(paths)),
            Reply::Identities(pairs) => Reply::Identities(sorted(pairs)),
            Reply::Multi(parts) => Reply::Multi(
                parts
                    .into_iter()
                    .map(|part| part.map(|part| self.part(part)))
                    .collect(),
            ),
            reply @ (Reply::Count(_) | Reply::Synced { .. } | Reply::Checked | Reply::Nothing) => {
                reply
            }
        }
    }

    fn part(&self, part: Reply) -> Reply {
        match part {
            Reply::Created { path, stat } => Reply::Created {
                path,
                stat: stat.filter(|_| !self.newer).map(|stat| self.stat(stat)),
            },
            part => self.reply(part),
        }
    }
}

fn alphabetical(names: &Children) -> Children {
    sorted(names.iter().collect()).into_iter().collect()
}

fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort_unstable();
    items
}
