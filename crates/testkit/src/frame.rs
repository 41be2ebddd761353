//! Frames of ZooKeeper's protocol, which begin with their length.

use std::io::{self, Read};

/// Reads one frame, and returns what follows its length. It is for servers that are trusted: whatever the length says
/// is allocated.
pub fn read_frame(mut from: impl Read) -> io::Result<Vec<u8>> {
    let mut head = [0; 4];
    from.read_exact(&mut head)?;
    let mut frame = vec![0; u32::from_be_bytes(head) as usize];
    from.read_exact(&mut frame)?;
    Ok(frame)
}
