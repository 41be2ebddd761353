//! The frames of a SASL login, which come after the greeting and before any request.

use alloc::vec::Vec;

use super::codec::{Malformed, Reader, frame};
use super::error_code::ErrorCode;
use super::op_code::OpCode;
use super::reply::ReplyHeader;

/// The number of every request: there is only one request at a time, and none of another kind.
const XID: i32 = 0;

/// A server's answer to a token.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SaslReply {
    pub code: ErrorCode,
    /// Empty if the server has none.
    pub token: Vec<u8>,
}

/// Appends the frame with the client's token.
pub fn encode_sasl(token: &[u8], out: &mut Vec<u8>) {
    frame(out, "", |writer| {
        writer.int(XID);
        writer.int(OpCode::SASL.0);
        writer.bytes(token);
    });
}

impl SaslReply {
    /// Reads a frame's content.
    pub fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        let (header, body) = ReplyHeader::decode(frame)?;
        if header.xid != XID {
            return Err(Malformed("a frame that does not answer the login"));
        }
        let token = match header.code {
            ErrorCode::OK => Reader::new(body).bytes()?.to_vec(),
            _ => Vec::new(),
        };
        Ok(Self {
            code: header.code,
            token,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a reply with this number, code and body.
    fn reply(xid: i32, code: i32, body: &[u8]) -> Vec<u8> {
        let mut frame = xid.to_be_bytes().to_vec();
        frame.extend([0; 8]);
        frame.extend(code.to_be_bytes());
        frame.extend(body);
        frame
    }

    #[test]
    fn a_token_goes_out_with_its_length() {
        let mut out = Vec::new();
        encode_sasl(b"ab", &mut out);
        let expected = [
            0, 0, 0, 14, 0, 0, 0, 0, 0, 0, 0, 102, 0, 0, 0, 2, b'a', b'b',
        ];
        assert_eq!(out, expected);
    }

    #[test]
    fn a_reply_has_a_token_or_none_or_a_code() {
        let read = |frame: &[u8]| SaslReply::decode(frame).map(|reply| (reply.code.0, reply.token));
        let (null, long) = ((-1i32).to_be_bytes(), [127, 255, 255, 255, 1]);
        assert_eq!(read(&reply(0, 0, &[0, 0, 0, 1, 7])), Ok((0, vec![7])));
        assert_eq!(read(&reply(0, 0, &null)), Ok((0, Vec::new())));
        assert_eq!(read(&reply(0, -115, &null)), Ok((-115, Vec::new())));
        assert_eq!(read(&reply(0, -115, &[])), Ok((-115, Vec::new())));
        for bad in [
            reply(1, 0, &null),
            reply(0, 0, &long),
            reply(0, 0, &[]),
            vec![0; 9],
        ] {
            assert!(SaslReply::decode(&bad).is_err(), "{bad:?}");
        }
    }
}
