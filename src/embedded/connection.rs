//! One client's connection: the thread that reads, and beside it the one that writes.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::admin::Word;
use super::outbox::Outbox;
use super::server::Shared;
use super::watches::Watcher;
use crate::jute::{ConnectRequest, ErrorCode, Request};

/// A connection's thread, and what it takes to end it.
#[derive(Debug)]
pub(super) struct Client {
    outbox: Arc<Outbox>,
    thread: JoinHandle<()>,
}

/// What the reading thread works with.
struct Reader {
    id: Watcher,
    stream: TcpStream,
    outbox: Arc<Outbox>,
    shared: Arc<Shared>,
}

/// What a client says first.
enum Opening {
    Frame(Vec<u8>),
    Word(Word),
}

impl Client {
    /// Serves the client from a thread of its own, unless there are too many.
    pub(super) fn serve(
        shared: &Arc<Shared>,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> io::Result<Option<Self>> {
        let patience = shared.config.patience();
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let outbox = Arc::new(Outbox::new(
            stream.try_clone()?,
            Arc::clone(&shared.weather),
        ));
        let Some(id) = shared.state.lock().admit(peer, Arc::clone(&outbox)) else {
            return Ok(None);
        };
        let reader = Reader {
            id,
            stream,
            outbox: Arc::clone(&outbox),
            shared: Arc::clone(shared),
        };
        let thread = thread::Builder::new().name(format!("zk-client-{id}"));
        match thread.spawn(move || reader.run()) {
            Ok(thread) => Ok(Some(Self { outbox, thread })),
            Err(error) => {
                shared.state.lock().disconnected(id);
                Err(error)
            }
        }
    }

    pub(super) fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    pub(super) fn join(self) {
        // A thread that panicked has said so already.
        let _ = self.thread.join();
    }
}

impl Reader {
    fn run(mut self) {
        let outbox = Arc::clone(&self.outbox);
        thread::scope(|scope| {
            let writer = thread::Builder::new().name(format!("zk-writer-{}", self.id));
            if writer.spawn_scoped(scope, || outbox.run()).is_ok() {
                let ended = self.read();
                log::debug!("the connection {} ended: {ended:?}", self.id);
            }
            self.shared.state.lock().disconnected(self.id);
            self.outbox.close();
        });
    }

    fn read(&mut self) -> io::Result<()> {
        match self.opening()? {
            Opening::Word(word) => {
                let answer = self.shared.state.lock().tell_operator(word);
                self.outbox.put(answer.into_bytes());
                return Ok(());
            }
            Opening::Frame(frame) => self.connect(&frame)?,
        }
        // From now on the session's timeout says how long a client may be silent.
        self.stream.set_read_timeout(None)?;
        loop {
            let frame = self.frame()?;
            self.take(&frame)?;
        }
    }

    fn connect(&self, frame: &[u8]) -> io::Result<()> {
        self.wait_for_room()?;
        let request = ConnectRequest::decode(frame).map_err(|_| malformed())?;
        if self.shared.state.lock().connect(self.id, &request) {
            Ok(())
        } else {
            Err(io::ErrorKind::ConnectionRefused.into())
        }
    }

    fn take(&self, frame: &[u8]) -> io::Result<()> {
        self.wait_for_room()?;
        let (xid, request) = match Request::decode(frame) {
            Ok((xid, request)) => (xid, Ok(request)),
            // The client is told, as long as it is clear what to answer to.
            Err(_) => (xid_of(frame)?, Err(ErrorCode::MARSHALLING_ERROR)),
        };
        self.shared.state.lock().receive(self.id, xid, request);
        Ok(())
    }

    fn wait_for_room(&self) -> io::Result<()> {
        if self.outbox.wait_for_room() {
            Ok(())
        } else {
            Err(io::ErrorKind::ConnectionAborted.into())
        }
    }

    fn opening(&mut self) -> io::Result<Opening> {
        let head = self.head()?;
        match Word::from_bytes(head) {
            Some(word) => Ok(Opening::Word(word)),
            None => self.content(head).map(Opening::Frame),
        }
    }

    fn frame(&mut self) -> io::Result<Vec<u8>> {
        let head = self.head()?;
        self.content(head)
    }

    fn head(&mut self) -> io::Result<[u8; 4]> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head)?;
        Ok(head)
    }

    /// Reads what the head announces, and allocates no more than what arrives.
    fn content(&mut self, head: [u8; 4]) -> io::Result<Vec<u8>> {
        let length = usize::try_from(i32::from_be_bytes(head)).map_err(|_| malformed())?;
        if length > self.shared.config.max_frame {
            return Err(malformed());
        }
        let mut content = Vec::new();
        let limit = u64::try_from(length).map_err(|_| malformed())?;
        self.stream.by_ref().take(limit).read_to_end(&mut content)?;
        if content.len() < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(content)
    }
}

fn malformed() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// The number of a request that can't be read to its end.
fn xid_of(frame: &[u8]) -> io::Result<i32> {
    // A kind follows the number; without both there is nothing to answer.
    match frame.first_chunk::<8>() {
        Some([a, b, c, d, ..]) => Ok(i32::from_be_bytes([*a, *b, *c, *d])),
        None => Err(malformed()),
    }
}
