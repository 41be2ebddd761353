//! The words of the wire format.

/// Writes the wire format.
#[derive(Debug, Default)]
pub(super) struct Encoder(pub(super) Vec<u8>);

impl Encoder {
    pub(super) fn int(&mut self, value: i32) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn long(&mut self, value: i64) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn buffer(&mut self, bytes: &[u8]) -> &mut Self {
        self.int(i32::try_from(bytes.len()).expect("a small buffer"));
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn string(&mut self, text: &str) -> &mut Self {
        self.buffer(text.as_bytes())
    }
}

/// Reads the wire format, from a server that is trusted.
#[derive(Debug)]
pub(super) struct Decoder(pub(super) Vec<u8>);

impl Decoder {
    pub(super) fn int(&mut self) -> i32 {
        let bytes: Vec<_> = self.0.drain(..4).collect();
        i32::from_be_bytes(bytes.try_into().expect("four bytes"))
    }

    pub(super) fn long(&mut self) -> i64 {
        let bytes: Vec<_> = self.0.drain(..8).collect();
        i64::from_be_bytes(bytes.try_into().expect("eight bytes"))
    }

    pub(super) fn buffer(&mut self) -> Vec<u8> {
        let length = usize::try_from(self.int()).unwrap_or(0);
        self.0.drain(..length).collect()
    }

    pub(super) fn string(&mut self) -> String {
        String::from_utf8(self.buffer()).expect("text")
    }
}
