//! What `zklock run` and `__keep` say to each other over a socket: a kind, and a text.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

macro_rules! kinds {
    ($($(#[$said:meta])* $kind:ident)*) => {
        /// What a message is about.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        #[repr(u8)]
        pub(crate) enum Kind {
            $($(#[$said])* $kind,)*
        }

        impl Kind {
            fn of(byte: u8) -> Option<Self> {
                [$(Self::$kind),*].into_iter().find(|kind| *kind as u8 == byte)
            }
        }
    };
}

kinds! {
    // To `__keep`, first the command, then signals by their numbers.
    Brief
    SignalAll
    SignalGroup
    SignalHead
    Kill
    /// Stops everything.
    Suspend
    /// Continues what `Suspend` has stopped, and the group.
    Continue
    /// The session goes on without the command, also as the answer to `Gone`.
    Spare
    // From `__keep`.
    Started
    Failed
    Stopped
    Exited
    Died
    /// Everything is stopped, unless the text says what is not.
    Suspended
    /// What is left some time after the end of the command.
    Left
    /// Nothing is left; the number is that of the signals to all that were sent before.
    Gone
}

pub(crate) fn send(mut to: &UnixStream, kind: Kind, text: &[u8]) -> io::Result<()> {
    let length = u32::try_from(text.len()).map_err(|_| ErrorKind::InvalidInput)?;
    let mut message = Vec::with_capacity(text.len() + 5);
    message.push(kind as u8);
    message.extend(length.to_le_bytes());
    message.extend(text);
    to.write_all(&message)
}

pub(crate) fn send_number(to: &UnixStream, kind: Kind, number: i32) -> io::Result<()> {
    send(to, kind, number.to_string().as_bytes())
}

/// Receives a message; fails at the end of the other process.
pub(crate) fn receive(mut from: &UnixStream) -> io::Result<(Kind, Vec<u8>)> {
    let mut head = [0; 5];
    from.read_exact(&mut head)?;
    let [kind, length @ ..] = head;
    let mut text = Vec::new();
    let length = u64::from(u32::from_le_bytes(length));
    if from.take(length).read_to_end(&mut text)? as u64 != length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok((Kind::of(kind).ok_or(ErrorKind::InvalidData)?, text))
}

pub(crate) fn number(text: &[u8]) -> Option<i32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Sends an open file.
pub(crate) fn send_file(to: &UnixStream, file: BorrowedFd<'_>) -> io::Result<()> {
    let files = [file];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&files));
    let sent = sendmsg(to, &[IoSlice::new(b".")], &mut control, SendFlags::empty());
    sent.map(drop).map_err(io::Error::from)
}

pub(crate) fn receive_file(from: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    recvmsg(from, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let file = files.flatten().next();
    file.ok_or_else(|| ErrorKind::UnexpectedEof.into())
}
