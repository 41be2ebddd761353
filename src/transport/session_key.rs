//! The key that another process needs to use a session.

use std::time::Duration;

use zklock_jute::Secret;

/// A session's id and password, for a process that outlives the one that opened the session.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionKey {
    pub(crate) id: i64,
    pub(crate) password: Secret,
}

/// A session of another process, to be continued.
#[derive(Clone, Debug)]
pub(crate) struct Inherited {
    pub(crate) key: SessionKey,
    /// The shortest timeout that was negotiated in this session.
    pub(crate) timeout: Duration,
    /// When the last message was sent that the leader had received in time; zero if that is not known.
    pub(crate) heard_of: Duration,
    /// Whether the session may be a third process's, and must not be ended before
    /// [`keep_session`](super::Transport::keep_session) allows it.
    pub(crate) is_kept: bool,
}

impl SessionKey {
    /// Returns the key as text, in hexadecimal digits.
    pub(crate) fn text(&self) -> String {
        let digits = |byte: &u8| format!("{byte:02x}");
        let password: String = self.password.0.iter().map(digits).collect();
        format!("{:x}:{password}", self.id)
    }

    /// Parses a key from its text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (id, password) = text.split_once(':')?;
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let password: Option<Vec<_>> = password.as_bytes().chunks(2).map(byte).collect();
        Some(Self {
            id: u64::from_str_radix(id, 16).ok()? as i64,
            password: Secret(password?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_back_as_written_and_mistakes_are_none() {
        for id in [1, i64::MAX, -2] {
            let password = Secret(vec![0, 7, 255]);
            let key = SessionKey { id, password };
            let read = SessionKey::parse(&key.text()).unwrap();
            assert_eq!((read.id, read.password.0), (id, key.password.0));
        }
        for text in ["", "1", "x:00", "1:0g", "1:é", "11111111111111111:00"] {
            assert!(SessionKey::parse(text).is_none(), "{text}");
        }
    }
}
