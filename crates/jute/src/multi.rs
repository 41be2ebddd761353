//! Several operations in one transaction, and their results.

use alloc::vec::Vec;

use super::codec::{Malformed, Reader, Writer};
use super::error_code::ErrorCode;
use super::op_code::OpCode;

/// The parts of a multi.
pub(super) const WRITES: [OpCode; 7] = [
    OpCode::CHECK,
    OpCode::CREATE,
    OpCode::CREATE2,
    OpCode::CREATE_CONTAINER,
    OpCode::CREATE_TTL,
    OpCode::DELETE,
    OpCode::SET_DATA,
];

/// The parts of a multiRead.
pub(super) const READS: [OpCode; 2] = [OpCode::GET_CHILDREN, OpCode::GET_DATA];

/// Returns what a multi failed with, if it did: the error of the part at fault, not of the
/// parts that failed with it.
pub fn failure<T>(results: &[Result<T, ErrorCode>]) -> Option<ErrorCode> {
    culprit(results).map(|(_, code)| code)
}

/// As [`failure`], with the place of the part at fault.
pub fn culprit<T>(results: &[Result<T, ErrorCode>]) -> Option<(usize, ErrorCode)> {
    let errors = || {
        let results = results.iter().enumerate();
        results.filter_map(|(place, result)| Some((place, result.as_ref().err().copied()?)))
    };
    let at_fault = |(_, code): &(usize, ErrorCode)| {
        *code != ErrorCode::OK && *code != ErrorCode::RUNTIME_INCONSISTENCY
    };
    errors().find(at_fault).or_else(|| errors().next())
}

/// The beginning of every part, and the end after the last one.
struct Head {
    op: OpCode,
    done: bool,
    code: ErrorCode,
}

impl Head {
    const END: Self = Self {
        op: OpCode::ERROR,
        done: true,
        code: ErrorCode(-1),
    };

    fn part(op: OpCode, code: ErrorCode) -> Self {
        Self {
            op,
            done: false,
            code,
        }
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.int(self.op.0);
        writer.bool(self.done);
        writer.int(self.code.0);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            op: OpCode(reader.int()?),
            done: reader.bool()?,
            code: ErrorCode(reader.int()?),
        })
    }
}

/// Writes the parts, each behind its code and what became of it, which `head` returns.
pub(super) fn write_parts<T>(
    parts: &[T],
    writer: &mut Writer<'_>,
    head: impl Fn(&T) -> (OpCode, ErrorCode),
    write: impl Fn(&T, &mut Writer<'_>),
) {
    for part in parts {
        let (op, code) = head(part);
        Head::part(op, code).write(writer);
        write(part, writer);
    }
    Head::END.write(writer);
}

/// Reads the parts up to the end, each with `read` after its code.
pub(super) fn read_parts<T>(
    reader: &mut Reader<'_>,
    read: impl Fn(OpCode, &mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let mut parts = Vec::new();
    loop {
        let head = Head::read(reader)?;
        if head.done {
            return Ok(parts);
        }
        parts.push(read(head.op, reader)?);
    }
}
