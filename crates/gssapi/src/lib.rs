//! A client's login by GSSAPI with Kerberos, through the library of the system.
//!
//! The library, MIT's or Heimdal's, is loaded when a login begins: no part of it is needed to build
//! a program, or to run one that logs in by other means. This crate has only what zklock's login
//! needs: a ticket, a context, and messages that are protected against changes.
//!
//! This is the only crate of zklock with unsafe code. `library` has the functions of the library,
//! and this file has all calls.
//!
//! Source: RFC 2743 and RFC 2744, its C bindings.

mod library;

use std::ffi::c_int;
use std::{error, fmt, ptr, slice};

use library::{Buffer, Functions, Handle, Oid, OidSet};

/// 1.2.840.113554.1.2.2.
const KRB5: &[u8] = b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02";
/// `GSS_KRB5_NT_PRINCIPAL_NAME`, 1.2.840.113554.1.2.2.1.
const PRINCIPAL: &[u8] = b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01";
/// `GSS_C_NT_HOSTBASED_SERVICE`, 1.2.840.113554.1.2.1.4.
const HOST_BASED_SERVICE: &[u8] = b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x01\x04";

/// `GSS_C_INITIATE`.
const INITIATE: c_int = 1;
/// `GSS_C_MUTUAL_FLAG | GSS_C_INTEG_FLAG`: the server proves who it is, too. Tickets are not delegated.
const FLAGS: u32 = 2 | 32;
/// The bits of a status that are errors: those of calls, and those of routines.
const ERRORS: u32 = 0xffff_0000;
/// `GSS_S_CONTINUE_NEEDED`.
const CONTINUE: u32 = 1;
/// `GSS_C_GSS_CODE` and `GSS_C_MECH_CODE`.
const CODES: [c_int; 2] = [1, 2];
/// The most messages that a library has about one code.
const MOST_MESSAGES: usize = 8;

/// The reason why there is no login, in the words of the library.
#[derive(Clone, Debug)]
pub struct Error(String);

/// The client's side of a login.
#[derive(Debug)]
pub struct Context {
    functions: Functions,
    context: Owned,
    credential: Owned,
    target: Owned,
    is_complete: bool,
}

// SAFETY: the library's objects may be used by any thread, one at a time, and methods that use them take
// `&mut self`.
unsafe impl Send for Context {}

/// An object that the library has made, which is given back on drop.
#[derive(Debug)]
struct Owned {
    handle: Handle,
    release: Release,
}

#[derive(Clone, Copy, Debug)]
enum Release {
    Object(unsafe extern "C" fn(*mut u32, *mut Handle) -> u32),
    Context(unsafe extern "C" fn(*mut u32, *mut Handle, *mut Buffer) -> u32),
}

impl Context {
    /// Loads the library and begins a login at `service`, such as `zookeeper@zk1`, with the tickets
    /// of `principal`, or of the principal that the system has tickets for. Returns the first token
    /// and the name of the principal.
    ///
    /// Blocks for as long as the library waits for the key distribution centre, which has no limit.
    ///
    /// # Errors
    ///
    /// Fails if there is no library or no ticket.
    pub fn begin(service: &str, principal: Option<&str>) -> Result<(Self, Vec<u8>, String), Error> {
        let functions = Functions::load().map_err(Error)?;
        let target = functions.name(service, HOST_BASED_SERVICE)?;
        let own = principal.map(|name| functions.name(name, PRINCIPAL));
        let credential = functions.credential(own.transpose()?.as_ref())?;
        let name = functions.name_of(&credential)?;
        let release = Release::Context(functions.gss_delete_sec_context);
        let mut context = Self {
            functions,
            context: Owned::none(release),
            credential,
            target,
            is_complete: false,
        };
        let token = context.step(&[])?;
        Ok((context, token, name))
    }

    /// Returns `true` if both sides have proved who they are.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the answer to the server's token, which may be empty. Does no I/O once there is a
    /// ticket.
    ///
    /// # Errors
    ///
    /// Fails if these bytes are no token, or do not prove who the server is.
    pub fn step(&mut self, token: &[u8]) -> Result<Vec<u8>, Error> {
        let (mechanism, input) = (Oid::of(KRB5), Buffer::of(token));
        let begins = self.context.handle.is_null();
        let input = if begins {
            ptr::null()
        } else {
            &raw const input
        };
        let (mut minor, mut answer) = (0, Buffer::EMPTY);
        // SAFETY: all arguments live until the call returns, and the library keeps none of them.
        let major = unsafe {
            (self.functions.gss_init_sec_context)(
                &raw mut minor,
                self.credential.handle,
                &raw mut self.context.handle,
                self.target.handle,
                &raw const mechanism,
                FLAGS,
                0,
                ptr::null(),
                input,
                ptr::null_mut(),
                &raw mut answer,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        let answer = self.functions.take(answer);
        self.functions.check(major, minor)?;
        self.is_complete = major & CONTINUE == 0;
        Ok(answer)
    }

    /// Returns the content of a message of the server. Does no I/O.
    ///
    /// # Errors
    ///
    /// Fails if the message is not the server's.
    pub fn unwrap(&mut self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let input = Buffer::of(message);
        let (mut minor, mut text) = (0, Buffer::EMPTY);
        // SAFETY: as for a step; the library refuses a context that is not complete.
        let major = unsafe {
            (self.functions.gss_unwrap)(
                &raw mut minor,
                self.context.handle,
                &raw const input,
                &raw mut text,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        let text = self.functions.take(text);
        self.functions.check(major, minor).map(|()| text)
    }

    /// Returns a message that the server recognises as this client's, and that everybody can read.
    /// Does no I/O.
    ///
    /// # Errors
    ///
    /// Fails if the context is not complete.
    pub fn wrap(&mut self, text: &[u8]) -> Result<Vec<u8>, Error> {
        let input = Buffer::of(text);
        let (mut minor, mut message) = (0, Buffer::EMPTY);
        // SAFETY: as for `unwrap`.
        let major = unsafe {
            (self.functions.gss_wrap)(
                &raw mut minor,
                self.context.handle,
                0,
                0,
                &raw const input,
                ptr::null_mut(),
                &raw mut message,
            )
        };
        let message = self.functions.take(message);
        self.functions.check(major, minor).map(|()| message)
    }
}

impl Functions {
    fn name(&self, text: &str, kind: &'static [u8]) -> Result<Owned, Error> {
        let (text, kind) = (Buffer::of(text.as_bytes()), Oid::of(kind));
        let mut name = Owned::none(Release::Object(self.gss_release_name));
        let mut minor = 0;
        // SAFETY: the library copies the text and the kind.
        let major = unsafe {
            (self.gss_import_name)(
                &raw mut minor,
                &raw const text,
                &raw const kind,
                &raw mut name.handle,
            )
        };
        self.check(major, minor).map(|()| name)
    }

    /// Returns the tickets of this principal, or of the one that the system has tickets for.
    fn credential(&self, principal: Option<&Owned>) -> Result<Owned, Error> {
        let mut mechanism = Oid::of(KRB5);
        let mechanisms = OidSet {
            count: 1,
            elements: &raw mut mechanism,
        };
        let mut credential = Owned::none(Release::Object(self.gss_release_cred));
        let mut minor = 0;
        // SAFETY: as for a name.
        let major = unsafe {
            (self.gss_acquire_cred)(
                &raw mut minor,
                principal.map_or(ptr::null_mut(), |name| name.handle),
                0,
                &raw const mechanisms,
                INITIATE,
                &raw mut credential.handle,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        self.check(major, minor).map(|()| credential)
    }

    fn name_of(&self, credential: &Owned) -> Result<String, Error> {
        let mut name = Owned::none(Release::Object(self.gss_release_name));
        let mut minor = 0;
        // SAFETY: the credential lives, and the pointers to results that are not asked for are
        // null.
        let major = unsafe {
            (self.gss_inquire_cred)(
                &raw mut minor,
                credential.handle,
                &raw mut name.handle,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        self.check(major, minor)?;
        let mut text = Buffer::EMPTY;
        // SAFETY: the name lives until the call returns.
        let major = unsafe {
            (self.gss_display_name)(&raw mut minor, name.handle, &raw mut text, ptr::null_mut())
        };
        let text = self.take(text);
        self.check(major, minor)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Copies the bytes that the library has written, and gives the buffer back.
    fn take(&self, mut buffer: Buffer) -> Vec<u8> {
        let bytes = match buffer.value.is_null() {
            true => Vec::new(),
            // SAFETY: the library has written this many bytes there.
            false => unsafe { slice::from_raw_parts(buffer.value.cast(), buffer.length) }.to_vec(),
        };
        let mut minor = 0;
        // SAFETY: the buffer is the library's, or empty, and is not used any more.
        unsafe { (self.gss_release_buffer)(&raw mut minor, &raw mut buffer) };
        bytes
    }

    fn check(&self, major: u32, minor: u32) -> Result<(), Error> {
        if major & ERRORS == 0 {
            return Ok(());
        }
        let [of_gssapi, of_kerberos] = CODES;
        let (why, detail) = (self.words(major, of_gssapi), self.words(minor, of_kerberos));
        // MIT's library has no detail for some errors, and calls that a success.
        Err(Error(match ["", "Success"].contains(&&*detail) {
            true => why,
            false => format!("{why} ({detail})"),
        }))
    }

    /// Returns what a code means, in the library's words.
    fn words(&self, code: u32, kind: c_int) -> String {
        let mechanism = Oid::of(KRB5);
        let (mut words, mut more) = (Vec::new(), 0);
        for _ in 0..MOST_MESSAGES {
            let (mut minor, mut text) = (0, Buffer::EMPTY);
            // SAFETY: all arguments live until the call returns.
            let major = unsafe {
                (self.gss_display_status)(
                    &raw mut minor,
                    code,
                    kind,
                    &raw const mechanism,
                    &raw mut more,
                    &raw mut text,
                )
            };
            words.push(String::from_utf8_lossy(&self.take(text)).into_owned());
            if major & ERRORS != 0 || more == 0 {
                break;
            }
        }
        words.join(" ")
    }
}

impl Owned {
    fn none(release: Release) -> Self {
        Self {
            handle: ptr::null_mut(),
            release,
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.handle.is_null() {
            return;
        }
        let (mut minor, handle) = (0, &raw mut self.handle);
        match self.release {
            // SAFETY: the library has made the object, and nothing uses it any more.
            Release::Object(release) => unsafe { release(&raw mut minor, handle) },
            // SAFETY: the same; there is no token for the other side.
            Release::Context(delete) => unsafe { delete(&raw mut minor, handle, ptr::null_mut()) },
        };
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_without_a_ticket_is_told_in_words() {
        let why = Context::begin("zookeeper@localhost", Some("nobody@NOWHERE.TEST")).unwrap_err();
        // The words are the library's, or the system's if it has no library.
        assert!(!why.to_string().is_empty());
        assert!(!why.to_string().contains("unknown"), "{why}");
    }
}
