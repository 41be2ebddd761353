//! Cuts the stream of bytes from a server into frames, and waits for those before a server serves.

use std::io;
use std::time::Duration;

use super::channel::Channel;
use crate::system::clock::since_boot;
use crate::system::is_timeout;
use zklock_jute::Malformed;

/// How much to read at once, and the buffer to keep when there is nothing to read.
const ROOM: usize = 64 * 1024;
/// A frame that claims to be longer than this is an error.
const ABSURD: usize = 1024 * 1024 * 1024;
/// How much of a frame that is too long is kept: the length of a reply's header.
const HEAD: usize = 16;

/// The least time that a read waits.
const LEAST_WAIT: Duration = Duration::from_millis(1);

/// Bytes that have arrived and are not cut yet.
#[derive(Debug)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// The longest frame that is kept whole.
    limit: usize,
    /// How many bytes of a frame that is too long are still to come.
    skip: usize,
}

/// A frame, or its beginning.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Frame<'a> {
    Whole(&'a [u8]),
    /// A frame longer than the limit; all but its beginning is skipped.
    TooLong {
        head: &'a [u8],
        length: usize,
    },
}

/// Why there is no frame.
pub(super) enum Complaint {
    HungUp,
    Late,
    /// The frame has this many bytes.
    TooLong(usize),
    /// The bytes are not a frame, or the frame is not the expected one.
    Unreadable(String),
    Broken(String),
}

impl Inbox {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            bytes: vec![0; ROOM],
            start: 0,
            end: 0,
            limit,
            skip: 0,
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Reads once. The buffer grows with the bytes that arrived, not with the announced length.
    pub(super) fn fill(&mut self, channel: &Channel) -> io::Result<usize> {
        self.make_room();
        let read = channel.read(self.bytes.get_mut(self.end..).unwrap_or_default())?;
        self.end += read;
        Ok(read)
    }

    /// Takes the next frame once all of it has arrived, or the head of a frame that is too long. Fails if the
    /// frame claims an impossible length.
    pub(super) fn frame(&mut self) -> Result<Option<Frame<'_>>, String> {
        let limit = self.limit;
        let dropped = self.skip.min(self.end - self.start);
        self.start += dropped;
        self.skip -= dropped;
        let Some(waiting) = self.bytes.get(self.start..self.end) else {
            return Ok(None);
        };
        let Some((head, rest)) = waiting.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let announced = i32::from_be_bytes(*head);
        let length = usize::try_from(announced).unwrap_or(usize::MAX);
        if length > ABSURD.max(limit) {
            return Err(format!("a frame of {announced} bytes was announced"));
        }
        if length > limit {
            let Some(head) = rest.get(..HEAD.min(length)) else {
                return Ok(None);
            };
            self.start += 4;
            self.skip = length;
            return Ok(Some(Frame::TooLong { head, length }));
        }
        let frame = rest.get(..length);
        if frame.is_some() {
            self.start += 4 + length;
        }
        Ok(frame.map(Frame::Whole))
    }

    /// Returns the length of the next frame, if it has arrived and can be one.
    pub(super) fn announced(&self) -> Option<usize> {
        let waiting = self.bytes.get(self.start..self.end)?;
        usize::try_from(i32::from_be_bytes(*waiting.first_chunk()?)).ok()
    }

    /// Returns whether a part of a frame has arrived.
    pub(super) fn is_amid_a_frame(&self) -> bool {
        self.start < self.end || 0 < self.skip
    }

    fn make_room(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.bytes.len() > ROOM {
                self.bytes = vec![0; ROOM];
            }
        }
        if self.start > 0 && self.bytes.len() - self.end < ROOM / 2 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.bytes.len() {
            let more = self.bytes.len().saturating_mul(2);
            self.bytes.resize(more.min(self.limit + ROOM), 0);
        }
    }
}

/// Waits for one frame, and decodes it.
pub(super) fn next_frame<T>(
    channel: &Channel,
    inbox: &mut Inbox,
    deadline: Duration,
    longest: usize,
    read: impl Fn(&[u8]) -> Result<T, Malformed>,
) -> Result<T, Complaint> {
    let broken = |error: io::Error| Complaint::Broken(error.to_string());
    loop {
        // The rest may never come.
        if let Some(length) = inbox.announced().filter(|length| longest < *length) {
            return Err(Complaint::TooLong(length));
        }
        match inbox.frame() {
            Ok(None) => {}
            Ok(Some(Frame::Whole(frame))) => {
                return read(frame).map_err(|error| Complaint::Unreadable(error.to_string()));
            }
            Ok(Some(Frame::TooLong { length, .. })) => return Err(Complaint::TooLong(length)),
            Err(error) => return Err(Complaint::Unreadable(error)),
        }
        let left = deadline.saturating_sub(since_boot());
        if left.is_zero() {
            return Err(Complaint::Late);
        }
        channel.set_patience(left.max(LEAST_WAIT)).map_err(broken)?;
        match inbox.fill(channel) {
            Ok(0) => return Err(Complaint::HungUp),
            Ok(_) => {}
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(broken(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::hosts::Target;
    use super::*;

    /// Sends the bytes in pieces; returns the frames (of long ones the head), the error, and the
    /// size of the buffer.
    fn through(pieces: Vec<Vec<u8>>, limit: usize) -> (Vec<Vec<u8>>, Option<String>, usize) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let sender = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for piece in pieces {
                // The reader may close the connection after an error.
                let _ = stream.write_all(&piece);
            }
        });
        let target = Target::of(address);
        let channel = Channel::connect(&target, Duration::from_secs(10), None).unwrap();
        let mut inbox = Inbox::new(limit);
        let (mut frames, mut bad) = (Vec::new(), None);
        while bad.is_none() && inbox.fill(&channel).unwrap_or(0) > 0 {
            loop {
                match inbox.frame() {
                    Ok(Some(Frame::Whole(frame) | Frame::TooLong { head: frame, .. })) => {
                        frames.push(frame.to_vec());
                    }
                    Ok(None) => break,
                    Err(error) => {
                        bad = Some(error);
                        break;
                    }
                }
            }
        }
        let held = inbox.bytes.len();
        drop((channel, inbox));
        sender.join().unwrap();
        (frames, bad, held)
    }

    fn framed(content: &[u8]) -> Vec<u8> {
        [&(content.len() as i32).to_be_bytes()[..], content].concat()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn frames_come_out_as_they_went_in_however_the_bytes_are_cut(
            frames in vec(vec(any::<u8>(), 0..300), 0..20),
            piece in 1..50usize,
        ) {
            let all: Vec<u8> = frames.iter().flat_map(|frame| framed(frame)).collect();
            let pieces = all.chunks(piece).map(<[u8]>::to_vec).collect();
            let (received, bad, _) = through(pieces, 1000);
            prop_assert_eq!(received, frames);
            prop_assert_eq!(bad, None);
        }
    }

    #[test]
    fn a_frame_up_to_the_limit_passes() {
        let big = vec![7; 1_000_000];
        let (received, bad, _) = through(vec![framed(&big), framed(b"x")], big.len());
        assert_eq!(bad, None);
        assert!(received == [big, b"x".to_vec()]);
    }

    #[test]
    fn a_frame_beyond_the_limit_is_thrown_away_but_for_its_head_and_the_next_one_is_whole() {
        let long: Vec<u8> = (0..3_000_000).map(|byte| byte as u8).collect();
        let bytes = [framed(b"a"), framed(&long), framed(b"b"), framed(&long)].concat();
        for piece in [1_000, 10_000_000] {
            let pieces = bytes.chunks(piece).map(<[u8]>::to_vec).collect();
            let (received, bad, held) = through(pieces, 1000);
            let head = &long[..HEAD];
            assert_eq!(received, [b"a", head, b"b", head]);
            assert_eq!(bad, None);
            assert!(held <= ROOM, "{held}");
        }
    }

    #[test]
    fn a_frame_of_an_absurd_or_a_negative_length_is_refused_at_once() {
        for announced in [ABSURD as i32 + 1, i32::MAX, -1, i32::MIN] {
            let head = announced.to_be_bytes().to_vec();
            let (_, bad, held) = through(vec![head, vec![0; 500]], 1000);
            let told = format!("a frame of {announced} bytes was announced");
            assert_eq!(bad, Some(told));
            assert!(held <= ROOM, "{held}");
        }
    }

    #[test]
    fn an_announcement_alone_takes_no_memory() {
        let head = 1_000_000i32.to_be_bytes().to_vec();
        let (received, bad, held) = through(vec![head], 1_000_000);
        assert_eq!((received.len(), bad), (0, None));
        assert!(held <= ROOM, "{held}");
    }
}
