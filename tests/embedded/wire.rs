//! A client on a plain socket that can do what no sane client does.
//!
//! The client shares no code with the server.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use zklock::embedded::Server;

use super::support::frame::read_frame;
use super::support::raw::op;

/// A time far longer than any call here takes.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// A connection.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
    pub(crate) timeout_ms: i32,
    pub(crate) zxid: i64,
}

/// A reply: its error code, and its body if that is 0.
pub(crate) type Reply = Result<Vec<u8>, i32>;

impl Wire {
    /// Begins a session of 10 s.
    pub(crate) fn connect(server: &Server) -> Self {
        Self::connect_for(server, 10_000)
    }

    pub(crate) fn connect_for(server: &Server, timeout_ms: i32) -> Self {
        Self::hello(server, 0, &[0; 16], timeout_ms, 0).expect("a session")
    }

    /// Resumes the session on a new connection.
    pub(crate) fn again(&self, server: &Server) -> Self {
        Self::hello(
            server,
            self.session,
            &self.password,
            self.timeout_ms,
            self.zxid,
        )
        .expect("a reply")
    }

    pub(crate) fn hello(
        server: &Server,
        session: i64,
        password: &[u8],
        timeout_ms: i32,
        zxid: i64,
    ) -> io::Result<Self> {
        Self::greet(server.hosts(), session, password, timeout_ms, zxid)
    }

    /// Begins a session of 10 s on any server.
    pub(crate) fn connect_to(hosts: &str) -> Self {
        Self::greet(hosts, 0, &[0; 16], 10_000, 0).expect("a session")
    }

    fn greet(
        hosts: &str,
        session: i64,
        password: &[u8],
        timeout_ms: i32,
        zxid: i64,
    ) -> io::Result<Self> {
        let mut hello = vec![0; 4];
        hello.extend(zxid.to_be_bytes());
        hello.extend(timeout_ms.to_be_bytes());
        hello.extend(session.to_be_bytes());
        hello.extend(buffer(password));
        hello.push(0);
        Self::say_hello(hosts, &hello).map(|(client, _)| client)
    }

    /// Sends the content of a first frame; also returns the length of the reply's.
    pub(crate) fn say_hello(hosts: &str, hello: &[u8]) -> io::Result<(Self, usize)> {
        let mut stream = dial_to(hosts);
        stream.write_all(&buffer(hello))?;
        let reply = read_frame(&mut stream)?;
        let client = Self {
            stream,
            timeout_ms: int(&reply[4..]),
            session: long(&reply[8..]),
            password: reply[20..36].to_vec(),
            zxid: long(&hello[4..]),
        };
        Ok((client, reply.len()))
    }

    pub(crate) fn send(&mut self, op: i32, body: &[u8]) {
        self.send_as(1, op, body);
    }

    /// Sends a request with a number.
    pub(crate) fn send_as(&mut self, xid: i32, op: i32, body: &[u8]) {
        let mut frame = xid.to_be_bytes().to_vec();
        frame.extend(op.to_be_bytes());
        frame.extend(body);
        self.stream
            .write_all(&buffer(&frame))
            .expect("a connection");
    }

    /// Waits for the next reply; events are skipped.
    pub(crate) fn hear(&mut self) -> io::Result<Reply> {
        self.hear_all().map(|(_, reply)| reply)
    }

    /// Waits for the next reply; also returns how many events came before it.
    pub(crate) fn hear_all(&mut self) -> io::Result<(usize, Reply)> {
        for events in 0.. {
            let frame = read_frame(&mut self.stream)?;
            if int(&frame) != -1 {
                self.zxid = self.zxid.max(long(&frame[4..]));
                let reply = match int(&frame[12..]) {
                    0 => Ok(frame[16..].to_vec()),
                    code => Err(code),
                };
                return Ok((events, reply));
            }
        }
        unreachable!("there is no last event")
    }

    /// Waits for a reply and returns its number and its error code.
    pub(crate) fn hear_number(&mut self) -> (i32, i32) {
        let frame = read_frame(&mut self.stream).expect("a reply");
        (int(&frame), int(&frame[12..]))
    }

    /// Waits for the next event and returns its path.
    pub(crate) fn next_event(&mut self) -> String {
        self.next_news().1
    }

    /// Waits for the next event and returns its kind and its path.
    pub(crate) fn next_news(&mut self) -> (i32, String) {
        let frame = read_frame(&mut self.stream).expect("an event");
        assert_eq!(int(&frame), -1, "an event");
        let path = String::from_utf8(frame[28..].to_vec()).expect("text");
        (int(&frame[16..]), path)
    }

    pub(crate) fn call(&mut self, op: i32, body: &[u8]) -> Reply {
        self.send(op, body);
        self.hear().expect("a reply")
    }

    pub(crate) fn create(&mut self, path: &str, mode: i32) -> Result<String, i32> {
        let body = self.call(op::CREATE, &creation(path, mode))?;
        Ok(String::from_utf8(body[4..].to_vec()).expect("text"))
    }

    pub(crate) fn delete(&mut self, path: &str) -> Result<(), i32> {
        let mut body = buffer(path.as_bytes());
        body.extend((-1_i32).to_be_bytes());
        self.call(op::DELETE, &body).map(drop)
    }

    /// Returns whether the node exists.
    pub(crate) fn sees(&mut self, path: &str) -> bool {
        self.call(op::EXISTS, &look(path, false)).is_ok()
    }

    /// Returns whether the node is in the listing of its directory, which is requested with its
    /// stat.
    pub(crate) fn lists(&mut self, path: &str) -> bool {
        let (directory, name) = path.rsplit_once('/').expect("a path");
        let directory = if directory.is_empty() { "/" } else { directory };
        let body = self
            .call(op::GET_CHILDREN2, &look(directory, false))
            .expect("a listing");
        let mut rest = &body[4..];
        let names: Vec<_> = (0..int(&body))
            .map(|_| {
                let (name, after) =
                    rest[4..].split_at(usize::try_from(int(rest)).expect("a length"));
                rest = after;
                name
            })
            .collect();
        names.contains(&name.as_bytes())
    }

    /// Waits until the server closes the connection; skips anything that it sends before.
    pub(crate) fn is_hung_up_on(&mut self) -> bool {
        loop {
            match read_frame(&mut self.stream) {
                Ok(_) => {}
                Err(error) => return !is_timeout(&error),
            }
        }
    }
}

pub(crate) fn dial(server: &Server) -> TcpStream {
    dial_to(server.hosts())
}

fn dial_to(hosts: &str) -> TcpStream {
    let stream = TcpStream::connect(hosts).expect("a connection");
    stream.set_nodelay(true).expect("a socket");
    stream.set_read_timeout(Some(LONG)).expect("a socket");
    stream
}

pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// Sends one of the four-letter words.
pub(crate) fn word(server: &Server, word: &str) -> String {
    word_of(server.hosts(), word)
}

/// Sends one of the four-letter words to any server.
pub(crate) fn word_of(hosts: &str, word: &str) -> String {
    let mut stream = TcpStream::connect(hosts).expect("a connection");
    stream.set_read_timeout(Some(LONG)).expect("a socket");
    stream.write_all(word.as_bytes()).expect("a connection");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Returns the body of a create.
pub(crate) fn creation(path: &str, mode: i32) -> Vec<u8> {
    creation_with(path, &buffer(b"x"), mode)
}

/// Returns the body of a create, with the data and its length as they must be sent.
pub(crate) fn creation_with(path: &str, data: &[u8], mode: i32) -> Vec<u8> {
    let mut body = buffer(path.as_bytes());
    body.extend(data);
    body.extend(1_i32.to_be_bytes());
    body.extend(31_i32.to_be_bytes());
    body.extend(buffer(b"world"));
    body.extend(buffer(b"anyone"));
    body.extend(mode.to_be_bytes());
    body
}

/// Returns the body of a read.
pub(crate) fn look(path: &str, watch: bool) -> Vec<u8> {
    let mut body = buffer(path.as_bytes());
    body.push(watch.into());
    body
}

/// Returns bytes preceded by their length.
pub(crate) fn buffer(bytes: &[u8]) -> Vec<u8> {
    let length = i32::try_from(bytes.len()).expect("a small buffer");
    [&length.to_be_bytes(), bytes].concat()
}

fn int(bytes: &[u8]) -> i32 {
    i32::from_be_bytes(bytes[..4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8]) -> i64 {
    i64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"))
}
