//! One client's connection: a thread that reads, and one that writes.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::four_letter_words::FourLetterWord;
use super::outbox::Outbox;
use super::requester::decode;
use super::shared::SharedServer;
use super::watches::ConnectionId;
use zklock_jute::ConnectRequest;

/// The reading thread of a connection, and what is needed to end it.
#[derive(Debug)]
pub(super) struct ClientThread {
    outbox: Arc<Outbox>,
    thread: JoinHandle<()>,
}

struct FrameReader {
    id: ConnectionId,
    stream: TcpStream,
    outbox: Arc<Outbox>,
    shared: Arc<SharedServer>,
}

/// The first bytes of a client.
enum Opening {
    Frame(Vec<u8>),
    FourLetterWord(FourLetterWord),
}

impl ClientThread {
    /// Serves the client on a thread. Returns `None` if there are too many clients.
    pub(super) fn serve(
        shared: &Arc<SharedServer>,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> io::Result<Option<Self>> {
        let limit = shared.config.handshake_limit();
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        let outbox = Arc::new(Outbox::new(
            stream.try_clone()?,
            Arc::clone(&shared.network),
        ));
        let Some(id) = shared.state.lock().admit(peer, Arc::clone(&outbox)) else {
            return Ok(None);
        };
        let reader = FrameReader {
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

impl FrameReader {
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
            Opening::FourLetterWord(word) => {
                let answer = self.shared.state.lock().report(word);
                self.outbox.put(answer.into_bytes());
                return Ok(());
            }
            Opening::Frame(frame) => self.connect(&frame)?,
        }
        // From here on the session's timeout limits how long a client may be silent.
        self.stream.set_read_timeout(None)?;
        loop {
            let frame = self.frame()?;
            self.take(&frame)?;
        }
    }

    fn connect(&self, frame: &[u8]) -> io::Result<()> {
        self.wait_for_room()?;
        let request = ConnectRequest::decode(frame).map_err(|_| malformed())?;
        let mut state = self.shared.state.lock();
        if state.connect(self.id, &request, frame.len()) {
            Ok(())
        } else {
            Err(io::ErrorKind::ConnectionRefused.into())
        }
    }

    fn take(&self, frame: &[u8]) -> io::Result<()> {
        self.wait_for_room()?;
        let (xid, request) = decode(frame).ok_or_else(malformed)?;
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
        match FourLetterWord::from_bytes(head) {
            Some(word) => Ok(Opening::FourLetterWord(word)),
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

    /// Reads as many bytes as the head announces, and allocates no more than arrive.
    fn content(&mut self, head: [u8; 4]) -> io::Result<Vec<u8>> {
        let length = self.shared.config.frame_length(head);
        let length = length.ok_or_else(malformed)?;
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
