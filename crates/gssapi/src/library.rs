//! The functions of the system's library: their types are those of RFC 2744's C bindings.

use std::ffi::{c_int, c_void};
use std::mem;

use libloading::Library;

/// The file names of MIT's and Heimdal's library, in the order in which they are tried.
const NAMES: &[&str] = match cfg!(target_os = "macos") {
    true => &["/System/Library/Frameworks/GSS.framework/GSS"],
    false => &["libgssapi_krb5.so.2", "libgssapi.so.3", "libgssapi.so"],
};

/// A name, a credential or a context of the library, which have no types of their own here.
pub(crate) type Handle = *mut c_void;

/// `gss_buffer_desc`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Buffer {
    pub(crate) length: usize,
    pub(crate) value: *mut c_void,
}

/// `gss_OID_desc`.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(all(target_os = "macos", target_arch = "x86_64"), repr(C, packed(2)))]
#[cfg_attr(not(all(target_os = "macos", target_arch = "x86_64")), repr(C))]
pub(crate) struct Oid {
    length: u32,
    elements: *mut c_void,
}

/// `gss_OID_set_desc`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct OidSet {
    pub(crate) count: usize,
    pub(crate) elements: *mut Oid,
}

impl Buffer {
    pub(crate) const EMPTY: Self = Self {
        length: 0,
        value: std::ptr::null_mut(),
    };

    /// Returns a buffer of these bytes, which the library reads and does not write.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self {
            length: bytes.len(),
            value: bytes.as_ptr().cast_mut().cast(),
        }
    }
}

impl Oid {
    /// Returns this encoded identifier, which the library reads and does not write.
    pub(crate) fn of(encoded: &'static [u8]) -> Self {
        Self {
            length: encoded.len() as u32,
            elements: encoded.as_ptr().cast_mut().cast(),
        }
    }
}

macro_rules! functions {
    ($($name:ident($($argument:ty),* $(,)?);)*) => {
        /// The functions of a library that is loaded, and stays loaded.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Functions {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> u32,)*
        }

        impl Functions {
            fn of(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: the types are those of the functions of these names.
                    $($name: *unsafe { library.get(stringify!($name).as_bytes()) }?,)*
                })
            }
        }
    };
}

functions! {
    gss_import_name(*mut u32, *const Buffer, *const Oid, *mut Handle);
    gss_display_name(*mut u32, Handle, *mut Buffer, *mut *const Oid);
    gss_release_name(*mut u32, *mut Handle);
    gss_acquire_cred(
        *mut u32, Handle, u32, *const OidSet, c_int, *mut Handle, *mut *mut OidSet, *mut u32,
    );
    gss_inquire_cred(
        *mut u32, Handle, *mut Handle, *mut u32, *mut c_int, *mut *mut OidSet,
    );
    gss_release_cred(*mut u32, *mut Handle);
    gss_init_sec_context(
        *mut u32, Handle, *mut Handle, Handle, *const Oid, u32, u32, *const c_void, *const Buffer,
        *mut *const Oid, *mut Buffer, *mut u32, *mut u32,
    );
    gss_delete_sec_context(*mut u32, *mut Handle, *mut Buffer);
    gss_wrap(*mut u32, Handle, c_int, u32, *const Buffer, *mut c_int, *mut Buffer);
    gss_unwrap(*mut u32, Handle, *const Buffer, *mut Buffer, *mut c_int, *mut u32);
    gss_release_buffer(*mut u32, *mut Buffer);
    gss_display_status(*mut u32, u32, c_int, *const Oid, *mut u32, *mut Buffer);
}

impl Functions {
    pub(crate) fn load() -> Result<Self, String> {
        Self::load_any(NAMES)
    }

    /// Loads the first of these libraries that exists.
    fn load_any(names: &[&str]) -> Result<Self, String> {
        let mut missing = Vec::new();
        for name in names {
            // SAFETY: what these libraries do when they are loaded is meant for any process.
            let loaded = unsafe { Library::new(name) };
            let found = loaded.and_then(|library| {
                let functions = Self::of(&library)?;
                // A library that is unloaded may leave threads' destructors behind.
                mem::forget(library);
                Ok(functions)
            });
            match found {
                Ok(functions) => return Ok(functions),
                Err(why) => missing.push(why.to_string()),
            }
        }
        Err(format!(
            "there is no Kerberos library; install MIT's, such as Debian's libgssapi-krb5-2: {}",
            missing.join("; ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_missing_or_another_one_is_named() {
        let why = Functions::load_any(&["libnothing.so.9", "libc.so.6"]).unwrap_err();
        for word in ["libgssapi-krb5-2", "libnothing.so.9", "gss_import_name"] {
            assert!(why.contains(word), "{why}");
        }
    }
}
