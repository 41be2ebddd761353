//! The connect string, and the addresses that it names.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::error::{Error, Result};
use zklock_core::connection::rotation;
use zklock_jute::is_refused_in_paths;

const DEFAULT_PORT: u16 = 2181;

/// The servers of an ensemble, and the chroot.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Hosts {
    servers: Vec<Server>,
    chroot: String,
}

/// One server, as the user named it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Server {
    pub(super) host: String,
    pub(super) port: u16,
}

/// One address of a server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Target {
    pub(super) server: Server,
    pub(super) address: SocketAddr,
}

/// An address to try.
pub(super) type Candidate = rotation::Candidate<Target>;

/// Removes a user and a password that were given by mistake, as in a URL.
fn without_user(text: &str) -> String {
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://..@{rest}"),
        (None, Some((_, rest))) => format!("..@{rest}"),
        (_, None) => text.to_owned(),
    }
}

impl Hosts {
    /// Parses `host:port,host:port/chroot`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        parse(text).map_err(|reason| Error::BadHosts {
            hosts: without_user(text),
            reason,
        })
    }

    /// Returns the prefix of every path: empty, or a path without a slash at its end.
    pub(crate) fn chroot(&self) -> &str {
        &self.chroot
    }

    pub(super) fn servers(&self) -> &[Server] {
        &self.servers
    }
}

impl Server {
    /// Returns the address, if there is nothing to look up.
    pub(super) fn literal(&self) -> Option<SocketAddr> {
        let address = self.host.parse::<IpAddr>().ok()?;
        Some(SocketAddr::new(address, self.port))
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.address.ip().to_string() == self.server.host {
            fmt::Display::fmt(&self.server, f)
        } else {
            write!(f, "{} ({})", self.server, self.address.ip())
        }
    }
}

fn parse(text: &str) -> Result<Hosts, String> {
    let (list, chroot) = match text.find('/') {
        Some(slash) => text.split_at(slash),
        None => (text, ""),
    };
    if list.trim().is_empty() {
        return Err("it names no server".to_owned());
    }
    if let (Some(scheme), true) = (list.strip_suffix(':'), chroot.starts_with("//")) {
        let begin = format!("{scheme}://");
        return Err(match scheme {
            "mysql" => "a database takes a zklock::mysql::Client (feature mysql)".to_owned(),
            _ => format!("leave {begin:?} out"),
        });
    }
    if list.contains('@') {
        return Err("credentials go with ClientBuilder::auth, or ZKLOCK_AUTH".to_owned());
    }
    if let Some(entry) = chroot
        .split(',')
        .skip(1)
        .find(|entry| names_a_server(entry))
    {
        let entry = entry.trim();
        return Err(format!(
            "the chroot goes once, at the end, and {entry:?} follows one"
        ));
    }
    let servers = list.split(',').map(|entry| server(entry.trim()));
    Ok(Hosts {
        servers: servers.collect::<Result<_, _>>()?,
        chroot: root(chroot.trim_end())?,
    })
}

/// Returns whether this text begins with a server and its port, and so is not part of a name.
fn names_a_server(text: &str) -> bool {
    let (entry, _) = text.split_once('/').unwrap_or((text, ""));
    entry.contains(':') && server(entry.trim()).is_ok()
}

/// Parses `host:port`.
pub(super) fn server(entry: &str) -> Result<Server, String> {
    if entry.is_empty() {
        return Err("there is an empty entry".to_owned());
    }
    let (host, port) = match entry.strip_prefix('[') {
        Some(rest) => bracketed(entry, rest)?,
        None => plain(entry)?,
    };
    let port = port.map_or(Ok(DEFAULT_PORT), |digits| number(entry, digits))?;
    Ok(Server {
        host: host.to_owned(),
        port,
    })
}

/// A host, and the digits after the colon, if any.
type Split<'a> = (&'a str, Option<&'a str>);

fn bracketed<'a>(entry: &str, rest: &'a str) -> Result<Split<'a>, String> {
    let Some((host, after)) = rest.split_once(']') else {
        return Err(format!("{entry:?} lacks the closing bracket"));
    };
    let (address, zone) = match host.split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (host, None),
    };
    if address.parse::<Ipv6Addr>().is_err() || zone.is_some_and(|zone| !is_name(zone)) {
        return Err(format!("{host:?} is not an IPv6 address"));
    }
    match after.strip_prefix(':') {
        Some(digits) => Ok((host, Some(digits))),
        None if after.is_empty() => Ok((host, None)),
        None => Err(format!("{entry:?} goes on after the closing bracket")),
    }
}

fn plain(entry: &str) -> Result<Split<'_>, String> {
    let separates = |c: char| c == ';' || c.is_whitespace();
    if let Some(other) = entry.chars().find(|c| separates(*c)) {
        return Err(format!(
            "{entry:?} has {other:?} in it, and a comma separates servers"
        ));
    }
    let (host, digits) = match entry.split_once(':') {
        Some((host, digits)) => (host, Some(digits)),
        None => (entry, None),
    };
    if digits.is_some_and(|digits| digits.contains(':')) {
        return Err(format!("{entry:?} needs brackets if it is an IPv6 address"));
    }
    if digits == Some("") && entry.len() > 1 {
        return Err(format!("{entry:?} has no port after the colon"));
    }
    if !is_name(host) {
        return Err(format!("{host:?} is not a host name"));
    }
    Ok((host, digits))
}

fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | '_');
    !text.is_empty() && text.chars().all(allowed)
}

fn number(entry: &str, digits: &str) -> Result<u16, String> {
    let only_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    match digits.parse() {
        Ok(port) if port > 0 && only_digits => Ok(port),
        _ => Err(format!("{entry:?} has a bad port")),
    }
}

fn root(chroot: &str) -> Result<String, String> {
    let Some(names) = chroot.strip_prefix('/') else {
        return Ok(String::new());
    };
    if names.is_empty() {
        return Ok(String::new());
    }
    if names.ends_with('/') && !names.ends_with("//") {
        return Err(format!("the chroot {chroot:?} ends with a slash"));
    }
    for name in names.split('/') {
        let reason = match name {
            "" => "has an empty name in it",
            "." | ".." => "has a relative name in it",
            name if name.chars().any(is_refused_in_paths) => {
                "has a control, private or emoji character in it"
            }
            _ => continue,
        };
        return Err(format!("the chroot {chroot:?} {reason}"));
    }
    Ok(chroot.to_owned())
}

#[cfg(test)]
mod tests {
    mod mistakes;

    use super::*;

    impl Target {
        pub(in crate::transport::native) fn of(address: SocketAddr) -> Self {
            let server = Server {
                host: address.ip().to_string(),
                port: address.port(),
            };
            Self { server, address }
        }
    }

    fn read(text: &str) -> (Vec<(String, u16)>, String) {
        let hosts = Hosts::parse(text).unwrap();
        let servers = hosts.servers.into_iter();
        let pairs = servers.map(|server| (server.host, server.port));
        (pairs.collect(), hosts.chroot)
    }

    #[test]
    fn a_connect_string_is_read() {
        #[rustfmt::skip]
        let table = [
            ("zk",                    &[("zk", 2181)][..],              ""),
            ("zk:1",                  &[("zk", 1)],                     ""),
            ("zk1:65535, zk2 ,zk3:3", &[("zk1", 65535), ("zk2", 2181), ("zk3", 3)], ""),
            ("zk/",                   &[("zk", 2181)],                  ""),
            ("zk1,zk2:5/app",         &[("zk1", 2181), ("zk2", 5)],     "/app"),
            ("127.0.0.1:7/a/b",       &[("127.0.0.1", 7)],              "/a/b"),
            ("[::1]:9",               &[("::1", 9)],                    ""),
            ("[fe80::1%eth0],b/x y",  &[("fe80::1%eth0", 2181), ("b", 2181)], "/x y"),
            ("my_zk-1.example.org:2", &[("my_zk-1.example.org", 2)],    ""),
            ("zk/a,b",                &[("zk", 2181)],                  "/a,b"),
            ("zk/a,b:c/d@e:1",        &[("zk", 2181)],                  "/a,b:c/d@e:1"),
        ];
        for (text, servers, chroot) in table {
            let servers = servers.iter().map(|(host, port)| (host.to_string(), *port));
            assert_eq!(read(text), (servers.collect(), chroot.to_owned()), "{text}");
        }
    }

    /// Connect strings, and a part of the reason for their refusal.
    #[rustfmt::skip]
    const NONSENSE: [(&str, &str); 39] = [
        ("",               "names no server"),
        ("  ",             "names no server"),
        ("/app",           "names no server"),
        (",",              "empty entry"),
        ("a,,b",           "empty entry"),
        ("a,",             "empty entry"),
        ("a:",             "no port after the colon"),
        (":2181",          "is not a host name"),
        ("a:0",            "bad port"),
        ("a:65536",        "bad port"),
        ("a:-1",           "bad port"),
        ("a:+1",           "bad port"),
        ("a:x",            "bad port"),
        ("::1",            "needs brackets"),
        ("::1:2181",       "needs brackets"),
        ("[::1",           "closing bracket"),
        ("[::1]2181",      "after the closing bracket"),
        ("[::1]:",         "bad port"),
        ("[zk]:2181",      "not an IPv6 address"),
        ("a b:2181",       "a comma separates servers"),
        ("a:1;b:1",        "a comma separates servers"),
        ("me@zk:2181",     "credentials"),
        ("me:secret@zk:1", "credentials"),
        ("zk,me:s/t@zk",   "bad port"),
        ("a:1/app,b:2/app", "the chroot goes once, at the end"),
        ("a/x/y, b:2/x/y", "the chroot goes once, at the end"),
        ("a:1/app,b:2",    "the chroot goes once, at the end"),
        ("a/app,[::1]:2",  "the chroot goes once, at the end"),
        ("zk://zk:2181",   "leave \"zk://\" out"),
        ("mysql://db/app", "mysql::Client"),
        ("zk//a",          "empty name"),
        ("zk/a/",          "ends with a slash"),
        ("zk/a//b",        "empty name"),
        ("zk/a/../b",      "relative name"),
        ("zk/./b",         "relative name"),
        ("zk/a\0b",        "control, private or emoji character"),
        ("zk/a\u{fffd}",   "control, private or emoji character"),
        ("[fe80::1%]:1",   "not an IPv6 address"),
        ("[fe80::1%a\n]",  "not an IPv6 address"),
    ];

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for (text, expected) in NONSENSE {
            let error = Hosts::parse(text).unwrap_err();
            assert!(error.is_bad_input());
            let shown = error.to_string();
            assert!(shown.contains(expected), "{text:?}: {shown}");
            assert!(!shown.contains("secret"), "{shown}");
        }
    }
}
