//! The steps of the sessions of a script, chosen at random.

use fastrand::Rng;

use zklock_jute::{Access, CreateMode, Data, Permissions, Request, Secret, WatchKind, WatchLists};

/// The number of sessions at a time.
pub(super) const SESSIONS: usize = 3;

#[derive(Clone, Debug)]
pub(super) struct ScriptStep {
    pub(super) session: usize,
    pub(super) act: Act,
}

/// The act of a session; paths are below the script's directory.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Ask(Request),
    /// Sends all requests before it waits for the first reply.
    AskAtOnce(Vec<Request>),
    /// Like `Ask`, about a child, whose name is appended to the path.
    AskAboutChild(usize, Request),
    /// Closes the session and begins another one.
    Close,
    /// Reconnects and sets the watches again, after missing this many changes or none.
    Reconnect(WatchLists),
    /// Lets the session expire, and reconnects to learn of it.
    Expire,
}

/// The paths of nodes that requests create and delete.
const PATHS: [&str; 9] = [
    "/a", "/a/x", "/a/y", "/a/x/p", "/b", "/b/z", "/b/z/q", "/c", "",
];

/// The node with a persistent watch. No request sets a one-shot watch on the same path, because
/// ZooKeeper 3.8 confuses the two.
pub(super) const RECURSIVE: &str = "/w";
const PERSISTENT: &str = "/w/c";

const WRONG: [&str; 7] = [
    "a",
    "/a/",
    "/a//x",
    "/a/../b",
    "/.",
    "/a/\u{1}",
    "/\u{e000}",
];

pub(super) fn random_script(chance: &mut Rng, steps: usize) -> Vec<ScriptStep> {
    let step = |_| ScriptStep {
        session: chance.usize(0..SESSIONS),
        act: random_act(chance),
    };
    (0..steps).map(step).collect()
}

/// Returns the steps that are possible only while a server is new.
pub(super) fn on_a_new_server() -> Vec<ScriptStep> {
    let paths = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];
    let questions = paths.iter().flat_map(|path| {
        let path = || format!("!{path}");
        [
            Request::Exists {
                path: path(),
                watch: false,
            },
            Request::GetAcl { path: path() },
            Request::GetChildren {
                path: path(),
                watch: false,
                stat: true,
            },
            Request::Delete {
                path: path(),
                version: -1,
            },
            Request::CountDescendants { path: path() },
        ]
    });
    let ask = |request| ScriptStep {
        session: 0,
        act: Act::Ask(request),
    };
    questions.map(ask).collect()
}

fn random_act(chance: &mut Rng) -> Act {
    match chance.u32(0..1000) {
        0..=1 => Act::Expire,
        2..=9 => Act::Close,
        10..=29 => Act::Reconnect(random_lists(chance)),
        30..=99 => Act::AskAtOnce(random_batch(chance)),
        100..=249 => Act::AskAboutChild(chance.usize(..), random_request(chance)),
        _ => Act::Ask(random_request(chance)),
    }
}

/// Returns requests to send at once. None changes a list: only since 3.9 does a change apply at
/// once to requests on their way.
fn random_batch(chance: &mut Rng) -> Vec<Request> {
    let count = chance.usize(2..6);
    let requests = std::iter::repeat_with(|| random_request(chance));
    let fit = |request: &Request| {
        !matches!(
            request,
            Request::SetAcl { .. } | Request::Auth { .. } | Request::Unknown(_)
        )
    };
    requests.filter(fit).take(count).collect()
}

fn random_request(chance: &mut Rng) -> Request {
    let path = random_path(chance);
    let watch = chance.bool() && !path.starts_with(RECURSIVE);
    match chance.u32(0..100) {
        0..=29 => match random_op(chance) {
            Request::Create {
                path,
                data,
                acl,
                mode,
                stat,
            } => Request::Create {
                path,
                data,
                acl,
                mode: match chance.u32(0..40) {
                    // 5 and 6 stand for a TTL, and the rest for nothing.
                    0 => CreateMode::Other(chance.i32(5..9)),
                    _ => mode,
                },
                stat,
            },
            Request::Check { path, .. } => Request::Exists { path, watch: false },
            op => op,
        },
        30..=42 => Request::Multi((0..chance.usize(0..5)).map(|_| random_op(chance)).collect()),
        43..=45 => Request::MultiRead(random_reads(chance)),
        46..=54 => Request::Exists { path, watch },
        55..=66 => Request::GetData { path, watch },
        67..=80 => Request::GetChildren {
            path,
            watch,
            stat: chance.bool(),
        },
        81..=83 => Request::GetAcl { path },
        84 => Request::SetAcl {
            path: if path.is_empty() {
                "/c".to_owned()
            } else {
                path
            },
            acl: random_acl(chance),
            version: random_version(chance),
        },
        85 => Request::CountDescendants { path },
        86..=87 => Request::Sync { path },
        // ZooKeeper 3.8 answers checkWatches as if all watches were those of the asking client.
        88..=92 => Request::RemoveWatches {
            path,
            kind: random_kind(chance),
        },
        93..=95 => add_watch(chance),
        96 => Request::GetEphemerals { below: path },
        97 => Request::WhoAmI,
        98 => Request::Ping,
        _ => random_auth(chance),
    }
}

fn random_op(chance: &mut Rng) -> Request {
    let path = random_path(chance);
    match chance.u32(0..10) {
        0..=4 => Request::Create {
            path: match chance.u32(0..4) {
                0 => format!("{path}/n-"),
                // A number appended to the script's directory itself would be the root's.
                _ if path.is_empty() => "/r".to_owned(),
                _ => path,
            },
            data: random_data(chance),
            acl: random_acl(chance),
            mode: random_mode(chance),
            stat: chance.bool(),
        },
        5..=7 => Request::Delete {
            path,
            version: random_version(chance),
        },
        8 => Request::SetData {
            path,
            data: random_data(chance),
            version: random_version(chance),
        },
        _ => Request::Check {
            path,
            version: random_version(chance),
        },
    }
}

fn random_reads(chance: &mut Rng) -> Vec<Request> {
    let count = chance.usize(0..4);
    let one = |_| {
        let path = random_path(chance);
        let watch = chance.bool() && !path.starts_with(RECURSIVE);
        match chance.bool() {
            true => Request::GetChildren {
                path,
                watch,
                stat: false,
            },
            false => Request::GetData { path, watch },
        }
    };
    (0..count).map(one).collect()
}

fn add_watch(chance: &mut Rng) -> Request {
    let (path, mode) = match chance.u32(0..20) {
        0 => (RECURSIVE, 7),
        1..=9 => (RECURSIVE, 1),
        _ => (PERSISTENT, 0),
    };
    Request::AddWatch {
        path: path.to_owned(),
        mode,
    }
}

fn random_auth(chance: &mut Rng) -> Request {
    Request::Auth {
        scheme: "digest".to_owned(),
        credentials: Secret(random_user(chance).as_bytes().to_vec()),
    }
}

fn random_lists(chance: &mut Rng) -> WatchLists {
    let mut some = |paths: &[&str]| {
        let paths = paths.iter().filter(|_| chance.u32(0..4) == 0);
        paths.map(|path| (*path).to_owned()).collect()
    };
    let (data, exists, children) = (some(&PATHS), some(&PATHS), some(&PATHS));
    let (persistent, recursive) = (some(&[PERSISTENT]), some(&[RECURSIVE]));
    let since_zxid = -chance.i64(0..6);
    WatchLists {
        since_zxid,
        data,
        exists,
        children,
        persistent,
        recursive,
    }
}

fn random_path(chance: &mut Rng) -> String {
    let path = match chance.u32(0..30) {
        0 => WRONG[chance.usize(0..WRONG.len())],
        1..=2 => RECURSIVE,
        3..=4 => PERSISTENT,
        5 => "/w/c/d",
        _ => PATHS[chance.usize(0..PATHS.len())],
    };
    path.to_owned()
}

/// Returns random data: missing as often as empty.
fn random_data(chance: &mut Rng) -> Data {
    match chance.usize(0..6) {
        0 => Data::default(),
        length => vec![1; length - 1].into(),
    }
}

fn random_version(chance: &mut Rng) -> i32 {
    match chance.u32(0..4) {
        0 => chance.i32(-2..3),
        _ => -1,
    }
}

fn random_kind(chance: &mut Rng) -> i32 {
    [WatchKind::CHILDREN, WatchKind::DATA, WatchKind::ANY, 9][chance.usize(0..4)]
}

fn random_mode(chance: &mut Rng) -> CreateMode {
    match chance.u32(0..12) {
        0..=4 => CreateMode::Persistent,
        5 => CreateMode::PersistentSequential,
        6..=7 => CreateMode::Ephemeral,
        8 => CreateMode::EphemeralSequential,
        9 => CreateMode::Container,
        // The time to live is longer than a script, or refused.
        _ => CreateMode::Ttl {
            flag: [5, 5, 6, 6, 0, 4][chance.usize(0..6)],
            ms: [1 << 32, (1 << 40) - 1, 1 << 40, 0][chance.usize(0..4)],
        },
    }
}

fn random_user(chance: &mut Rng) -> &'static str {
    ["ada:1", "bob:2"][chance.usize(0..2)]
}

fn random_acl(chance: &mut Rng) -> Vec<Access> {
    let entry = |permissions, scheme: &str, id: &str| Access {
        permissions,
        scheme: scheme.to_owned(),
        id: id.to_owned(),
    };
    match chance.u32(0..60) {
        0 => Vec::new(),
        1 => vec![entry(Permissions::ALL, "nonsense", "")],
        2 => vec![entry(Permissions::ALL, "digest", "nocolon")],
        3..=5 => vec![entry(Permissions::ALL, "auth", "")],
        6 => vec![
            entry(Permissions::READ, "world", "anyone"),
            entry(
                Permissions::ALL,
                "digest",
                "ada:gR19tKYSL+hWUzIUeVDmaYWXxWw=",
            ),
        ],
        7 => vec![entry(Permissions::ALL, "ip", "127.0.0.0/8"); 2],
        8 => vec![entry(Permissions(chance.i32(0..32)), "world", "anyone")],
        _ => vec![entry(Permissions::ALL, "world", "anyone")],
    }
}
