//! Connect strings with mistakes, which are parsed as written or refused with a reason.

use proptest::prelude::*;

use super::*;
use crate::support::fuzz;

const VALID: &[&str] = &[
    "zk",
    "zk1:65535, zk2 ,zk3:3",
    "zk1.example.org:2181,zk2.example.org:2181,zk3.example.org:2181/app/one",
    "127.0.0.1:7/a/b",
    "[::1]:9,[2001:db8::7]/é/λ",
    "[fe80::1%eth0]:2181,b/x y",
    "räksmörgås.example:1/日本語",
];

#[rustfmt::skip]
const WORDS: &[&str] = &[
    ",", ":", "::", ":0", ":0,a", "/", "//", "/.", "/..", "[", "]", "[::1]", "%", "%eth0", " ", "\t", "\n", "\0",
    "-", "+1", "0", "65535", "65536", "99999999999999999999", "zk", "@", "?", "a:1/b,c:2/d", "://",
    "\u{85}", "\u{a0}", "\u{f000}", "\u{fff0}", "\u{202e}", "\u{661}", "😀",
];

/// Asserts that a parsed connect string has servers and a chroot and that its display is parsed as
/// the same, or that a refused one has a reason that can be printed.
fn is_taken_or_refused_well(text: &str) {
    match Hosts::parse(text) {
        Ok(hosts) => {
            let list = text.split('/').next().unwrap_or(text);
            assert_eq!(hosts.servers.len(), list.split(',').count());
            for Server { host, port } in &hosts.servers {
                assert!(!host.is_empty() && 0 < *port);
                let odd = |c: char| c.is_control() || c.is_whitespace() || ",/[]@".contains(c);
                assert!(!host.contains(odd), "{host:?}");
            }
            let root = hosts.chroot();
            assert!(root.is_empty() || root.starts_with('/'), "{root:?}");
            // The server must accept the paths below it.
            let path = format!("{root}/lock");
            let reserved = root.starts_with("/zookeeper");
            assert!(reserved || crate::path::check(&path).is_ok(), "{path:?}");
            let shown: Vec<_> = hosts.servers.iter().map(Server::to_string).collect();
            let shown = format!("{}{root}", shown.join(","));
            assert_eq!(Hosts::parse(&shown), Ok(hosts), "{shown}");
        }
        Err(error) => {
            let shown = error.to_string();
            assert!(!shown.contains(char::is_control), "{shown:?}");
            // An escape such as \u{10ffff} takes ten bytes for four.
            assert!(shown.len() < 200 + 12 * text.len(), "{}", shown.len());
            let Error::BadHosts { hosts, reason } = error else {
                panic!("{error:?}");
            };
            assert!(hosts == without_user(text) && !reason.is_empty());
        }
    }
}

proptest! {
    #![proptest_config(fuzz::config())]

    #[test]
    fn a_connect_string_with_mistakes_is_taken_or_refused_well(
        text in fuzz::texts(VALID, WORDS),
    ) {
        is_taken_or_refused_well(&text);
    }

    #[test]
    fn any_text_is_taken_or_refused_well(text: String) {
        is_taken_or_refused_well(&text);
    }
}

#[test]
fn a_huge_connect_string_is_taken_or_refused_in_time() {
    for piece in ["zk:1,", "[::1],", "é", "[", ":", "zk/", "/a", "\0", "/.."] {
        is_taken_or_refused_well(&piece.repeat(300_000));
        is_taken_or_refused_well(&format!("zk/{}", piece.repeat(300_000)));
        is_taken_or_refused_well(&format!("{}zk", piece.repeat(300_000)));
    }
}
