//! The members of the ensemble, as the servers write them into `/zookeeper/config`.
//!
//! Each member has a line: `server.1=zk1:2888:3888:participant;0.0.0.0:2181`. The part behind the
//! first semicolon is the address for clients, the part behind a second one that for clients with
//! TLS. A server that listens on all of its addresses is dialled at the address that the other
//! servers use.

use std::net::IpAddr;

use super::hosts::{Server, server};

/// More servers than an ensemble can number.
const MOST: usize = 255;

/// See the module's documentation.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Members {
    /// The version of the configuration, which grows with each change.
    pub(super) version: i64,
    /// The servers in the order of the lines, each once; there is at least one.
    pub(super) servers: Vec<Server>,
}

impl Members {
    /// Parses the node's data; leaves out servers without an address for such clients.
    pub(super) fn parse(data: &[u8], encrypted: bool) -> Result<Self, String> {
        if data.is_empty() {
            return Err("it is empty, as that of a server without others is".to_owned());
        }
        let text = std::str::from_utf8(data).map_err(|_| "it is no text".to_owned())?;
        let (mut version, mut servers) = (None, Vec::new());
        for line in text.lines() {
            let Some((key, value)) = line.split_once('=') else {
                continue;
            };
            match key.trim() {
                "version" => version = i64::from_str_radix(value.trim(), 16).ok(),
                key if key.starts_with("server.") => member(value, encrypted, &mut servers)?,
                _ => {}
            }
            if MOST < servers.len() {
                return Err(format!("it names more than {MOST} servers"));
            }
        }
        match (version, servers.is_empty()) {
            (Some(version), false) => Ok(Self { version, servers }),
            (None, _) => Err("it has no version".to_owned()),
            (_, true) if encrypted => {
                Err("it names no server with a port for TLS of its own".to_owned())
            }
            (_, true) => Err("it names no server with a port for clients".to_owned()),
        }
    }
}

/// Adds a server with each of its addresses, if it says where it listens.
fn member(value: &str, encrypted: bool, servers: &mut Vec<Server>) -> Result<(), String> {
    let mut parts = value.split(';').map(str::trim);
    let among_servers = parts.next().unwrap_or_default();
    let listens = parts.nth(usize::from(encrypted)).unwrap_or_default();
    if listens.is_empty() {
        return Ok(());
    }
    let is_port = listens.bytes().all(|byte| byte.is_ascii_digit());
    let named = match is_port {
        true => None,
        false => Some(server(listens)?),
    };
    let everywhere = |server: &Server| {
        let address = server.host.parse::<IpAddr>();
        address.is_ok_and(|address| address.is_unspecified())
    };
    let port = match named {
        Some(named) if !everywhere(&named) => {
            add(named, servers);
            return Ok(());
        }
        Some(named) => named.port.to_string(),
        None => listens.to_owned(),
    };
    // Those beyond are not needed to see that there are too many.
    for address in among_servers.split('|').take(MOST + 1) {
        add(server(&format!("{}:{port}", host(address)))?, servers);
    }
    Ok(())
}

fn add(server: Server, servers: &mut Vec<Server>) {
    if !servers.contains(&server) {
        servers.push(server);
    }
}

/// Returns the host of `host:port:port`, with its brackets if it has any.
fn host(address: &str) -> &str {
    let address = address.trim();
    let end = match address.strip_prefix('[').and_then(|rest| rest.find(']')) {
        Some(bracket) => bracket + 2,
        None => address.find(':').unwrap_or(address.len()),
    };
    &address[..end]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::support::fuzz;

    fn read(text: &str, encrypted: bool) -> Result<(i64, String), String> {
        let members = Members::parse(text.as_bytes(), encrypted)?;
        let servers: Vec<_> = members.servers.iter().map(Server::to_string).collect();
        Ok((members.version, servers.join(",")))
    }

    #[test]
    fn the_members_are_read() {
        #[rustfmt::skip]
        let table = [
            ("server.1=zk1:2888:3888:participant;0.0.0.0:2181\n\
              server.2=zk2:2888:3888:observer;10.0.0.2:2182\nversion=10000000f",
                                                        "zk1:2181,10.0.0.2:2182"),
            ("version=10000000f\nserver.1=zk1:2888:3888;2181",        "zk1:2181"),
            ("server.7=[::1]:2888:3888:participant;[::]:7\r\nversion=10000000f", "[::1]:7"),
            ("server.7=a:1:2;[0:0:0:0:0:0:0:0]:7\nversion=10000000f", "a:7"),
            ("server.1=a:1:2|[fe80::1]:3:4:participant;5\nversion=10000000f", "a:5,[fe80::1]:5"),
            ("server.1=a:1:2;5;6\nserver.2=b:1:2;5\nversion=10000000f", "a:5,b:5"),
            ("server.1=a:1:2:participant\nserver.2=b:1:2;b:5\n\ngroup.1=1:2\nweight.1=1\nversion=10000000f",
                                                                      "b:5"),
            ("server.1=a:1:2;5\nserver.2=a:3:4;5\nversion = 10000000f ", "a:5"),
        ];
        for (text, servers) in table {
            let expected = Ok((0x1_0000_000f, servers.to_owned()));
            assert_eq!(read(text, false), expected, "{text}");
        }
    }

    #[test]
    fn a_client_with_tls_dials_no_other_port() {
        let mixed = "server.1=a:1:2;5;0.0.0.0:6\nserver.2=b:1:2;5\nserver.3=c:1:2;;d:7\nversion=0";
        assert_eq!(read(mixed, true), Ok((0, "a:6,d:7".to_owned())));
        let plain = "server.1=a:1:2:participant;0.0.0.0:2181\nversion=0";
        assert!(read(plain, true).unwrap_err().contains("TLS"));
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        #[rustfmt::skip]
        let table = [
            ("",                                     "is empty"),
            ("\n",                                   "no version"),
            ("server.1=a:1:2;5",                     "no version"),
            ("server.1=a:1:2;5\nversion=x",          "no version"),
            ("version=0",                            "no server"),
            ("server.1=a:1:2:participant\nversion=0", "no server"),
            ("server.1=;5\nversion=0",               "not a host name"),
            ("server.1=a:1:2;0\nversion=0",          "bad port"),
            ("server.1=a:1:2;99999\nversion=0",      "bad port"),
            ("server.1=a:1:2;b:x\nversion=0",        "bad port"),
            ("server.1=[::1:1:2;5\nversion=0",       "closing bracket"),
        ];
        for (text, expected) in table {
            let reason = read(text, false).unwrap_err();
            assert!(reason.contains(expected), "{text:?}: {reason}");
        }
        assert!(Members::parse(&[0xff, b'='], false).is_err());
        let many: String = (0..300)
            .map(|n| format!("server.{n}=a{n}:1:2;5\n"))
            .collect();
        assert!(read(&format!("{many}version=0"), false).is_err());
    }

    const VALID: &[&str] = &[
        "server.1=zk1:2888:3888:participant;0.0.0.0:2181\nserver.2=zk2:2888:3888:observer;2181\nversion=100000000",
        "server.1=[2001:db8::1]:2888:3888|b:1:2:participant;[::]:2181;[::1]:2281\nversion=0",
        "server.1=127.0.0.1:1:2;127.0.0.1:3\r\ngroup.1=1\r\nversion=7fffffffffffffff\r\n",
    ];

    #[rustfmt::skip]
    const WORDS: &[&str] = &[
        "server.", "server.1=", "=", ";", ":", "|", "\n", "\r\n", "version=", "-", "[", "]", "[::]", "0.0.0.0",
        ":participant", ":observer", " ", "\t", "\0", ",", "/", "2181", "65536", "é", "😀", "\u{85}",
    ];

    /// Asserts that parsed servers can be dialled, and that a refusal has a reason.
    fn are_taken_or_refused_well(text: &str) {
        for encrypted in [false, true] {
            match Members::parse(text.as_bytes(), encrypted) {
                Ok(Members { servers, .. }) => {
                    assert!((1..=MOST).contains(&servers.len()));
                    for one in &servers {
                        assert!(0 < one.port);
                        assert_eq!(server(&one.to_string()).as_ref(), Ok(one));
                    }
                }
                Err(reason) => assert!(!reason.is_empty()),
            }
        }
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn members_with_mistakes_are_taken_or_refused_well(text in fuzz::texts(VALID, WORDS)) {
            are_taken_or_refused_well(&text);
        }

        #[test]
        fn any_bytes_are_taken_or_refused(data: Vec<u8>) {
            let _ = Members::parse(&data, false);
        }
    }

    #[test]
    fn huge_configurations_are_taken_or_refused_in_time() {
        for piece in [
            "server.1=a:1:2;5\n",
            ";",
            "|",
            "=",
            "[",
            "é",
            "server.1=a|b|c;5\n",
        ] {
            are_taken_or_refused_well(&piece.repeat(100_000));
            are_taken_or_refused_well(&format!("server.1=a{};5\nversion=0", piece.repeat(100_000)));
        }
        let many: Vec<_> = (0..150_000).map(|number| format!("a{number}")).collect();
        are_taken_or_refused_well(&format!("server.1={};5\nversion=0", many.join("|")));
    }
}
