//! Frames on their way through a proxy, and what happens to each.

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::time::Instant;

use crossbeam_channel::Sender;

/// The proxy's decision about a frame.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict {
    Pass,
    /// The connection is cut in its place.
    Drop,
    Swallow,
    Truncate,
}

/// A frame on its way.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) arrived: Instant,
    pub(super) bytes: Vec<u8>,
    /// Whether the connection is cut after this frame.
    pub(super) last: bool,
}

/// Returns whether more frames may follow.
pub(super) fn enqueue(queue: &Sender<Parcel>, mut bytes: Vec<u8>, verdict: Verdict) -> bool {
    match verdict {
        Verdict::Pass => {}
        Verdict::Swallow => return true,
        Verdict::Drop => bytes.clear(),
        Verdict::Truncate => bytes.truncate(bytes.len() / 2),
    }
    let last = !matches!(verdict, Verdict::Pass);
    let arrived = Instant::now();
    let parcel = Parcel {
        arrived,
        bytes,
        last,
    };
    queue.send(parcel).is_ok() && !last
}

/// The length of the longest frame. A four-letter command looks like a frame of two gigabytes; the
/// proxy does not answer it.
const MOST: usize = 1 << 26;

/// Reads one frame, together with its length.
pub(super) fn read_frame(from: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    from.read_exact(&mut frame)?;
    let length = usize::try_from(int_at(&frame, 0)).map_err(io::Error::other)?;
    if length > MOST {
        io::copy(from, &mut io::sink())?;
        return Err(ErrorKind::InvalidData.into());
    }
    frame.resize(4 + length, 0);
    from.read_exact(&mut frame[4..])?;
    Ok(frame)
}

/// Returns the number at `at`, or 0 if the frame is too short.
pub(super) fn int_at(frame: &[u8], at: usize) -> i32 {
    let bytes = frame
        .get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, i32::from_be_bytes)
}
