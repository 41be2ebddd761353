//! The primitives of the wire format.
//!
//! A reader never looks beyond its bytes, and checks every count and length against the
//! bytes that remain before it allocates.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::child_names::Names;
use super::types::{Access, Data, Permissions, Stat, WatchLists};

/// The fewest bytes an [`Access`] takes.
const ACCESS_BYTES: usize = 12;
/// The fewest bytes a string takes.
const STRING_BYTES: usize = 4;
/// The length that stands for null.
const NULL: i32 = -1;

/// Bytes that break the protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed bytes: {}", self.0)
    }
}

impl core::error::Error for Malformed {}

/// Takes values from the front of a slice.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the bytes that are not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn int(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    pub fn long(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_be_bytes)
    }

    pub fn bool(&mut self) -> Result<bool, Malformed> {
        self.array::<1>().map(|[byte]| byte != 0)
    }

    /// Reads a byte string. A negative length means null, which is read as empty.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        self.buffer().map(Option::unwrap_or_default)
    }

    /// Reads a node's data, which may be null.
    pub fn data(&mut self) -> Result<Data, Malformed> {
        self.buffer().map(Data::from)
    }

    fn buffer(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        let Ok(length) = usize::try_from(self.int()?) else {
            return Ok(None);
        };
        let split = self.rest.split_at_checked(length);
        let (taken, rest) = split.ok_or(Malformed("a length goes beyond the end"))?;
        self.rest = rest;
        Ok(Some(taken))
    }

    pub fn string(&mut self) -> Result<String, Malformed> {
        let text = core::str::from_utf8(self.bytes()?);
        text.map(str::to_owned)
            .map_err(|_| Malformed("a string is not UTF-8"))
    }

    /// Reads strings, and replaces what is not UTF-8.
    ///
    /// A server may have names that other clients made of arbitrary bytes. One of them must not make a
    /// whole listing unreadable.
    pub fn names(&mut self) -> Result<Names, Malformed> {
        let count = self.count(STRING_BYTES)?;
        // The names take less if something follows them.
        let mut names = Names::with_capacity(count, self.rest.len() - STRING_BYTES * count);
        for _ in 0..count {
            let bytes = self.bytes()?;
            // One check of the whole name is several times as fast as a check of each character.
            match core::str::from_utf8(bytes) {
                Ok(name) => names.push(name),
                Err(_) => names.push(&String::from_utf8_lossy(bytes)),
            }
        }
        names.fit();
        Ok(names)
    }

    pub fn strings(&mut self) -> Result<Vec<String>, Malformed> {
        self.vector(STRING_BYTES, Self::string)
    }

    pub fn acl(&mut self) -> Result<Vec<Access>, Malformed> {
        self.vector(ACCESS_BYTES, |reader| {
            Ok(Access {
                permissions: Permissions(reader.int()?),
                scheme: reader.string()?,
                id: reader.string()?,
            })
        })
    }

    /// Reads a vector whose items take at least `least` bytes each.
    pub fn vector<T>(
        &mut self,
        least: usize,
        mut item: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.count(least)?;
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Reads how many items follow, which take at least `least` bytes each.
    fn count(&mut self, least: usize) -> Result<usize, Malformed> {
        let count = usize::try_from(self.int()?).unwrap_or(0);
        match count <= self.rest.len() / least {
            true => Ok(count),
            false => Err(Malformed("a vector goes beyond the end")),
        }
    }

    pub fn stat(&mut self) -> Result<Stat, Malformed> {
        Ok(Stat {
            czxid: self.long()?,
            mzxid: self.long()?,
            ctime: self.long()?,
            mtime: self.long()?,
            version: self.int()?,
            cversion: self.int()?,
            aversion: self.int()?,
            ephemeral_owner: self.long()?,
            data_length: self.int()?,
            num_children: self.int()?,
            pzxid: self.long()?,
        })
    }

    /// Reads the lists of setWatches.
    pub(super) fn watch_lists(&mut self, persistent: bool) -> Result<WatchLists, Malformed> {
        let mut lists = WatchLists {
            since_zxid: self.long()?,
            data: self.strings()?,
            exists: self.strings()?,
            children: self.strings()?,
            ..WatchLists::default()
        };
        if persistent {
            lists.persistent = self.strings()?;
            lists.recursive = self.strings()?;
        }
        Ok(lists)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let split = self.rest.split_first_chunk::<N>();
        let (taken, rest) = split.ok_or(Malformed("the bytes end early"))?;
        self.rest = rest;
        Ok(*taken)
    }
}

/// Appends values to a buffer.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// The prefix of every path.
    root: &'a str,
}

impl<'a> Writer<'a> {
    /// Creates a writer that puts `root` before every path. `root` is empty, or has no slash at its end.
    pub fn rooted(out: &'a mut Vec<u8>, root: &'a str) -> Self {
        Self { out, root }
    }

    pub fn int(&mut self, value: i32) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    pub fn long(&mut self, value: i64) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    pub fn bool(&mut self, value: bool) {
        self.out.push(u8::from(value));
    }

    pub fn bytes(&mut self, value: &[u8]) {
        self.int(length(value.len()));
        self.out.extend_from_slice(value);
    }

    pub fn data(&mut self, data: &Data) {
        match data.as_option() {
            Some(bytes) => self.bytes(bytes),
            None => self.int(NULL),
        }
    }

    pub fn string(&mut self, value: &str) {
        self.bytes(value.as_bytes());
    }

    pub fn path(&mut self, path: &str) {
        let below = match (self.root, path) {
            ("", path) => path,
            (_, "/") => "",
            (_, path) => path,
        };
        self.int(length(self.root.len() + below.len()));
        self.out.extend_from_slice(self.root.as_bytes());
        self.out.extend_from_slice(below.as_bytes());
    }

    pub fn paths(&mut self, paths: &[String]) {
        self.vector(paths, |writer, path| writer.path(path));
    }

    pub fn strings(&mut self, values: &[String]) {
        self.vector(values, |writer, value| writer.string(value));
    }

    pub fn names(&mut self, names: &Names) {
        self.int(length(names.len()));
        names.iter().for_each(|name| self.string(name));
    }

    pub fn acl(&mut self, acl: &[Access]) {
        self.vector(acl, |writer, access| {
            writer.int(access.permissions.0);
            writer.string(&access.scheme);
            writer.string(&access.id);
        });
    }

    pub fn vector<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.int(length(items.len()));
        for item in items {
            write(self, item);
        }
    }

    pub fn stat(&mut self, stat: &Stat) {
        self.long(stat.czxid);
        self.long(stat.mzxid);
        self.long(stat.ctime);
        self.long(stat.mtime);
        self.int(stat.version);
        self.int(stat.cversion);
        self.int(stat.aversion);
        self.long(stat.ephemeral_owner);
        self.int(stat.data_length);
        self.int(stat.num_children);
        self.long(stat.pzxid);
    }
}

impl Writer<'_> {
    pub(super) fn watch_lists(&mut self, lists: &WatchLists) {
        self.long(lists.since_zxid);
        self.paths(&lists.data);
        self.paths(&lists.exists);
        self.paths(&lists.children);
        if lists.has_persistent() {
            self.paths(&lists.persistent);
            self.paths(&lists.recursive);
        }
    }
}

/// Appends a frame: its length, and what `write` writes.
pub(crate) fn frame(out: &mut Vec<u8>, root: &str, write: impl FnOnce(&mut Writer<'_>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(&mut Writer::rooted(out, root));
    let written = length(out.len() - start - 4);
    if let Some(head) = out.get_mut(start..start + 4) {
        head.copy_from_slice(&written.to_be_bytes());
    }
}

/// Returns a length as the format has it: none is beyond 2 GiB, and frames are limited far below.
fn length(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_length_is_null_and_read_as_empty_but_for_data() {
        let null = (-1i32).to_be_bytes();
        assert_eq!(Reader::new(&null).bytes(), Ok(&[][..]));
        assert_eq!(Reader::new(&null).data(), Ok(Data::default()));
        assert_eq!(Reader::new(&null).string(), Ok(String::new()));
        assert_eq!(Reader::new(&null).strings(), Ok(Vec::new()));
    }

    #[test]
    fn a_count_that_the_bytes_cannot_back_is_refused_before_anything_is_allocated() {
        let mut huge = i32::MAX.to_be_bytes().to_vec();
        huge.extend([0; 64]);
        assert!(Reader::new(&huge).strings().is_err());
        assert!(Reader::new(&huge).acl().is_err());
        assert!(Reader::new(&huge).bytes().is_err());
    }

    #[test]
    fn a_path_is_put_below_the_root() {
        for (root, path, full) in [
            ("", "/", "/"),
            ("", "/a", "/a"),
            ("/app", "/", "/app"),
            ("/app", "/a", "/app/a"),
        ] {
            let mut out = Vec::new();
            Writer::rooted(&mut out, root).path(path);
            assert_eq!(Reader::new(&out).string().as_deref(), Ok(full));
        }
    }

    #[test]
    fn a_name_that_is_not_utf8_does_not_spoil_the_listing() {
        let mut out = Vec::new();
        Writer::rooted(&mut out, "").vector(&[&b"lock-1"[..], b"\xff\xfe"], |writer, name| {
            writer.bytes(name);
        });
        let names = Reader::new(&out).names().unwrap();
        assert_eq!(names.iter().next(), Some("lock-1"));
        assert_eq!(names.len(), 2);
    }
}
