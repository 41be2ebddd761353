//! A server that answers as the test says, however wrongly.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use zklock_jute::{ConnectReply, ConnectRequest, ErrorCode, Reply, ReplyHeader, Request};

use crate::support;

/// The server's reaction to a request.
pub(super) enum Act {
    Reply(Reply),
    Refuse(ErrorCode),
    RefuseAndClose(ErrorCode),
    Close,
    Ignore,
    /// The server sends these bytes, and then closes the connection.
    Raw(Vec<u8>),
    /// The server sends these bytes, whatever they answer.
    Say(Vec<u8>),
}

/// How the server greets, and how it reacts to requests.
pub(super) struct Script {
    pub(super) greet: Box<dyn FnMut(ConnectRequest) -> Option<Vec<u8>> + Send>,
    pub(super) act: Box<dyn FnMut(i32, Request) -> Act + Send>,
}

pub(super) struct Fake {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The bytes of a reply that has a header and nothing more.
pub(super) fn frame_of(xid: i32, code: ErrorCode) -> Vec<u8> {
    let mut out = Vec::new();
    ReplyHeader { xid, zxid: 5, code }.encode(None, &mut out);
    out
}

/// Returns a greeting with this session and a timeout of 4 s.
pub(super) fn greeting(session: i64) -> Vec<u8> {
    greeting_for(session, 4000)
}

/// Like [`greeting`], with a session that lasts this long.
pub(super) fn greeting_for(session: i64, timeout_ms: i32) -> Vec<u8> {
    let reply = ConnectReply {
        timeout_ms,
        session,
        password: vec![9; 16],
        read_only: false,
    };
    let mut out = Vec::new();
    reply.encode(&mut out);
    out
}

impl Script {
    /// Creates a script that grants every client the same session.
    pub(super) fn new(act: impl FnMut(i32, Request) -> Act + Send + 'static) -> Self {
        Self {
            greet: Box::new(|_| Some(greeting(7))),
            act: Box::new(act),
        }
    }
}

impl Fake {
    pub(super) fn start(script: Script) -> Self {
        // The clients of another test may still try a port that the system had given to its server before.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, support::free_port())).unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, stop) = (Arc::default(), Arc::default());
        let (count, stopped) = (Arc::clone(&connections), Arc::clone(&stop));
        let script = Arc::new(Mutex::new(script));
        let thread = thread::spawn(move || accept(&listener, &script, &count, &stopped));
        Self {
            address,
            connections,
            stop,
            thread: Some(thread),
        }
    }

    pub(super) fn hosts(&self) -> String {
        self.address.to_string()
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Serves one connection after the other.
fn accept(
    listener: &TcpListener,
    script: &Mutex<Script>,
    connections: &AtomicUsize,
    stop: &AtomicBool,
) {
    for stream in listener.incoming().flatten() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        connections.fetch_add(1, Ordering::Relaxed);
        // This fails when the client closes the connection.
        let _ = serve(stream, script, stop);
    }
}

fn serve(mut stream: TcpStream, script: &Mutex<Script>, stop: &AtomicBool) -> Option<()> {
    stream
        .set_read_timeout(Some(Duration::from_millis(50)))
        .ok()?;
    let hello = ConnectRequest::decode(&frame(&mut stream, stop)?).ok()?;
    let greeting = (script.lock().ok()?.greet)(hello)?;
    stream.write_all(&greeting).ok()?;
    loop {
        let (xid, request) = Request::decode(&frame(&mut stream, stop)?).ok()?;
        let act = (script.lock().ok()?.act)(xid, request);
        let header = |code| ReplyHeader { xid, zxid: 1, code };
        let mut out = Vec::new();
        let mut more = true;
        match act {
            Act::Reply(reply) => header(ErrorCode::OK).encode(Some(&reply), &mut out),
            Act::Refuse(code) => header(code).encode(None, &mut out),
            Act::RefuseAndClose(code) => {
                header(code).encode(None, &mut out);
                more = false;
            }
            Act::Raw(bytes) => {
                out = bytes;
                more = false;
            }
            Act::Say(bytes) => out = bytes,
            Act::Close => more = false,
            Act::Ignore => {}
        }
        stream.write_all(&out).ok()?;
        if !more {
            return None;
        }
    }
}

fn frame(stream: &mut TcpStream, stop: &AtomicBool) -> Option<Vec<u8>> {
    let length = i32::from_be_bytes(exactly(stream, 4, stop)?.try_into().ok()?);
    exactly(stream, usize::try_from(length).ok()?, stop)
}

fn exactly(stream: &mut TcpStream, count: usize, stop: &AtomicBool) -> Option<Vec<u8>> {
    let mut bytes = vec![0; count];
    let mut done = 0;
    while done < count && !stop.load(Ordering::Relaxed) {
        match stream.read(&mut bytes[done..]) {
            Ok(0) => return None,
            Ok(read) => done += read,
            Err(error) if crate::system::is_timeout(&error) => {}
            Err(_) => return None,
        }
    }
    (done == count).then_some(bytes)
}
