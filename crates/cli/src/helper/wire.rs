//! The messages between `zklock run` and its helpers, over sockets.

use std::borrow::Cow;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;

use clap::ValueEnum;
use crossbeam_channel::{Receiver, unbounded};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// A message. Most kinds have a number, a text, or neither.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) number: i32,
    pub(crate) text: Vec<u8>,
}

/// The kind of a message. It is sent as one byte: its index among these values.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Kind {
    // To `__keep`, first the command and how many words it has, then signals by their numbers.
    Brief,
    /// Lets the command begin.
    Begin,
    /// A signal to all processes, which are also continued: a stopped process gets no other signal before.
    SignalAll,
    SignalGroup,
    SignalHead,
    Kill,
    /// Stops everything.
    Suspend,
    /// Continues the processes that `Suspend` has stopped, and the group.
    Continue,
    /// Until when the lock can be trusted, as far as is known before the next such message.
    Trust,
    /// Another process answers for the session from now on: `zklock run`, or the next `__keep`.
    Spare,
    // From `__keep`.
    /// The number is the command's; 0 if it could not be started, for what the text says.
    Started,
    /// Everything is being killed: the answer to `Kill`, or `zklock run` was stopped for too long.
    Killing,
    /// The command has stopped or ended; the number is the status of wait(2).
    Changed,
    /// All processes are stopped, unless the text says which are not.
    Suspended,
    /// Processes are left some time after the end of the command.
    Left,
    /// No process is left; the number is that of the signals to all that were sent before.
    Gone,
    // From `__listen`: the number of a signal.
    Heard,
}

impl Message {
    pub(crate) fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.text)
    }
}

pub(crate) fn send(mut to: &UnixStream, kind: Kind, number: i32, text: &[u8]) -> io::Result<()> {
    let length = u32::try_from(text.len()).map_err(|_| ErrorKind::InvalidInput)?;
    let mut message = vec![kind as u8];
    message.extend(number.to_le_bytes());
    message.extend(length.to_le_bytes());
    message.extend(text);
    to.write_all(&message)
}

/// Receives a message; fails at the end of the other process.
pub(crate) fn receive(mut from: &UnixStream) -> io::Result<Message> {
    let mut head = [0; 9];
    from.read_exact(&mut head)?;
    let [kind, a, b, c, d, length @ ..] = head;
    let mut text = vec![0; u32::from_le_bytes(length) as usize];
    from.read_exact(&mut text)?;
    let kind = Kind::value_variants().get(usize::from(kind));
    Ok(Message {
        kind: *kind.ok_or(ErrorKind::InvalidData)?,
        number: i32::from_le_bytes([a, b, c, d]),
        text,
    })
}

/// Receives messages in a thread of this name; the channel is disconnected at the end of the other process.
pub(crate) fn listen_to(from: UnixStream, name: &str) -> io::Result<Receiver<Message>> {
    let (to, messages) = unbounded();
    let listen = move || while receive(&from).is_ok_and(|message| to.send(message).is_ok()) {};
    let thread = thread::Builder::new().name(name.to_owned());
    thread.spawn(listen).map(|_| messages)
}

/// Sends open files, at most two.
pub(crate) fn send_files(to: &UnixStream, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(files));
    let sent = sendmsg(to, &[IoSlice::new(b".")], &mut control, SendFlags::empty());
    sent.map(drop).map_err(io::Error::from)
}

#[cfg(not(target_vendor = "apple"))]
const CLOSED_AT_EXEC: RecvFlags = RecvFlags::CMSG_CLOEXEC;
/// This system knows no such flag.
#[cfg(target_vendor = "apple")]
const CLOSED_AT_EXEC: RecvFlags = RecvFlags::empty();

pub(crate) fn receive_files(from: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    recvmsg(from, &mut bytes, &mut control, CLOSED_AT_EXEC)?;
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let files: Vec<_> = files.flatten().collect();
    #[cfg(target_vendor = "apple")]
    for file in &files {
        rustix::io::fcntl_setfd(file, rustix::io::FdFlags::CLOEXEC)?;
    }
    Ok(files)
}
