//! A session on a socket that does what a lock needs, and nothing else.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A session on a socket.
pub(crate) struct Raw {
    socket: TcpStream,
    input: Vec<u8>,
    start: usize,
    out: Vec<u8>,
    xid: i32,
    /// Deleted nodes whose events arrived before anyone waited for them.
    gone: HashSet<String>,
}

/// A reply or an event.
pub(crate) struct Frame(Vec<u8>);

impl Raw {
    /// Connects to the servers in turn.
    pub(crate) fn connect(hosts: &str) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let hosts: Vec<_> = hosts.split(',').collect();
        let host = hosts[NEXT.fetch_add(1, Ordering::Relaxed) % hosts.len()];
        let socket = TcpStream::connect(host).expect("a server");
        socket.set_nodelay(true).expect("a socket");
        let mut raw = Self {
            socket,
            input: Vec::new(),
            start: 0,
            out: Vec::new(),
            xid: 0,
            gone: HashSet::new(),
        };
        // Version, the last zxid, the timeout, session 0, and an empty password.
        let head = [&[0; 12][..], &20_000i32.to_be_bytes(), &[0; 8]].concat();
        let body = [&head[..], &16i32.to_be_bytes(), &[0; 16], &[0]].concat();
        raw.put(&body);
        raw.flush();
        raw.frame();
        raw
    }

    /// Creates a directory and its parent, if they do not exist.
    pub(crate) fn make(&mut self, dir: &str) {
        let above = &dir[..dir.rfind('/').expect("a path")];
        for path in [above, dir] {
            self.create(1, path, 0);
            self.reply();
        }
    }

    pub(crate) fn enter(&mut self, dir: &str, lists: bool) -> i32 {
        let name = format!("{dir}/_c_{}-lock-", uuid::Uuid::new_v4());
        self.create(15, &name, 3);
        if !lists {
            return self.xid;
        }
        self.request(8, dir, &[0])
    }

    pub(crate) fn create(&mut self, op: i32, path: &str, mode: i32) {
        self.request(op, path, &new_node(mode));
    }

    /// Sends one transaction that deletes nodes and creates one in each of the directories.
    pub(crate) fn joined(&mut self, deleted: &[String], dirs: &[&str]) {
        let mut body = Vec::new();
        let mut op = |number: i32, path: &str, rest: &[u8]| {
            body.extend(multi_header(number, false));
            body.extend((path.len() as i32).to_be_bytes());
            body.extend(path.as_bytes());
            body.extend(rest);
        };
        for node in deleted {
            op(2, node, &(-1i32).to_be_bytes());
        }
        for dir in dirs {
            let name = format!("{dir}/_c_{}-lock-", uuid::Uuid::new_v4());
            op(1, &name, &new_node(3));
        }
        body.extend(multi_header(-1, true));
        self.xid += 1;
        let head = [self.xid, 14].map(i32::to_be_bytes).concat();
        self.put(&[head, body].concat());
    }

    pub(crate) fn delete(&mut self, path: &str) {
        self.request(2, path, &(-1i32).to_be_bytes());
    }

    /// Goes through the queue; returns the node.
    pub(crate) fn hold(&mut self, dir: &str) -> String {
        let last = self.enter(dir, true);
        self.flush();
        let node = self.reply_to(last - 1).created();
        let mut names = self.reply_to(last).children();
        loop {
            names.sort_by_key(|name| name[name.len() - 10..].to_owned());
            let ours = names.iter().position(|name| node.ends_with(name));
            let Some(before) = ours.expect("our node").checked_sub(1) else {
                return node;
            };
            let before = format!("{dir}/{}", names[before]);
            let xid = self.request(4, &before, &[1]);
            self.flush();
            if self.reply_to(xid).code() == 0 {
                self.wait_until_gone(&before);
            }
            let xid = self.request(8, dir, &[0]);
            self.flush();
            names = self.reply_to(xid).children();
        }
    }

    pub(crate) fn wait_until_gone(&mut self, path: &str) {
        while !self.gone.remove(path) {
            let frame = self.frame();
            self.note(&frame);
        }
    }

    fn note(&mut self, frame: &Frame) {
        if frame.int(0) == -1 {
            self.gone.insert(frame.string(24).to_owned());
        }
    }

    fn reply(&mut self) -> Frame {
        self.reply_to(self.xid)
    }

    pub(crate) fn reply_to(&mut self, xid: i32) -> Frame {
        self.flush();
        loop {
            let frame = self.frame();
            if frame.int(0) == xid {
                return frame;
            }
            self.note(&frame);
        }
    }

    pub(crate) fn request(&mut self, op: i32, path: &str, rest: &[u8]) -> i32 {
        self.xid += 1;
        let length = path.len() as i32;
        let head = [self.xid, op, length].map(i32::to_be_bytes).concat();
        self.put(&[&head, path.as_bytes(), rest].concat());
        self.xid
    }

    fn put(&mut self, body: &[u8]) {
        self.out.extend((body.len() as i32).to_be_bytes());
        self.out.extend(body);
    }

    pub(crate) fn flush(&mut self) {
        if !self.out.is_empty() {
            self.socket.write_all(&self.out).expect("a connection");
            self.out.clear();
        }
    }

    pub(crate) fn has_frame(&self) -> bool {
        self.whole().is_some()
    }

    fn whole(&self) -> Option<&[u8]> {
        let (head, rest) = self.input[self.start..].split_first_chunk::<4>()?;
        rest.get(..u32::from_be_bytes(*head) as usize)
    }

    pub(crate) fn frame(&mut self) -> Frame {
        loop {
            if let Some(frame) = self.whole() {
                let frame = Frame(frame.to_vec());
                self.start += 4 + frame.0.len();
                return frame;
            }
            self.input.drain(..self.start);
            self.start = 0;
            let end = self.input.len();
            self.input.resize(end + 65536, 0);
            let read = self.socket.read(&mut self.input[end..]);
            let read = read.expect("a connection");
            assert_ne!(read, 0, "the server hung up");
            self.input.truncate(end + read);
        }
    }
}

/// Returns the bytes that follow the path of a node that is created.
fn new_node(mode: i32) -> Vec<u8> {
    let data = [b'.'; 100];
    let world = [
        &100i32.to_be_bytes()[..],
        &data,
        &1i32.to_be_bytes(),
        &31i32.to_be_bytes(),
        &5i32.to_be_bytes(),
        b"world",
        &6i32.to_be_bytes(),
        b"anyone",
        &mode.to_be_bytes(),
    ];
    world.concat()
}

fn multi_header(number: i32, last: bool) -> Vec<u8> {
    let [number, error] = [number, -1].map(i32::to_be_bytes);
    [&number[..], &[u8::from(last)], &error].concat()
}

impl Frame {
    /// Returns the nodes that a transaction created, after this many deletions.
    pub(crate) fn joined(&self, deleted: usize) -> Vec<String> {
        assert_eq!(self.code(), 0);
        let (mut at, mut names) = (16 + 9 * deleted, Vec::new());
        while self.0[at + 4] == 0 {
            let name = self.string(at + 9);
            at += 13 + name.len();
            names.push(name.to_owned());
        }
        names
    }

    fn int(&self, at: usize) -> i32 {
        i32::from_be_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }

    pub(crate) fn code(&self) -> i32 {
        self.int(12)
    }

    fn string(&self, at: usize) -> &str {
        let length = self.int(at) as usize;
        std::str::from_utf8(&self.0[at + 4..at + 4 + length]).expect("a string")
    }

    pub(crate) fn created(&self) -> String {
        assert_eq!(self.code(), 0);
        self.string(16).to_owned()
    }

    pub(crate) fn children(&self) -> Vec<String> {
        assert_eq!(self.code(), 0);
        let (mut at, mut names) = (20, Vec::new());
        for _ in 0..self.int(16) {
            let name = self.string(at);
            at += 4 + name.len();
            names.push(name.to_owned());
        }
        names
    }
}
