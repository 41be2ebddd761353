//! Both servers, the sessions with each of them, and the player of a script.

use std::io;

use std::time::Duration;

use super::client::{Differences, Heard, RecordingClient};
use super::script::{Act, RECURSIVE, SESSIONS, ScriptStep};
use crate::support::eventually;
use zklock::embedded::Server;
use zklock_jute::{
    Access, CreateMode, EventKind, Permissions, Request, WatchKind, WatchLists, xid,
};

/// The tick, which the real server uses too.
const TICK: Duration = Duration::from_millis(500);

/// The session timeout, long enough for a session that waits while another one expires.
const TIMEOUT_MS: i32 = 10_000;

const SHORT_MS: i32 = 1000;

/// The numbers that requests get in turn.
const XIDS: [i32; 7] = [
    7,
    xid::AUTH,
    0,
    xid::PING,
    i32::MAX,
    xid::SET_WATCHES,
    -1000,
];

/// A value for each server.
type Both<T> = [T; 2];

pub(super) struct BothServers {
    /// The server, which runs as long as this exists.
    embedded: Server,
    directory: String,
    sides: Both<Side>,
    /// Whether the real server is version 3.9 or later.
    newer: bool,
    /// Whether each session is about to get events in an undefined order.
    in_any_order: [bool; SESSIONS],
    begun: i64,
    asked: usize,
}

struct Side {
    hosts: String,
    names: Differences,
    clients: Vec<RecordingClient>,
}

impl BothServers {
    /// Connects the sessions. The real server is version 3.9 or later if it is `newer`.
    pub(super) fn new(real: &str, newer: bool) -> Self {
        let embedded = Server::builder()
            .tick(TICK)
            .extended_types()
            .start()
            .expect("an embedded server");
        let hosts = [real.to_owned(), embedded.hosts().to_owned()];
        let mut stage = Self {
            embedded,
            directory: format!("/t{:016x}", fastrand::u64(..)),
            sides: hosts.map(|hosts| Side {
                hosts,
                names: Differences {
                    newer,
                    ..Differences::default()
                },
                clients: Vec::new(),
            }),
            newer,
            in_any_order: [false; SESSIONS],
            begun: 0,
            asked: 0,
        };
        for session in 0..SESSIONS {
            stage.begin(session);
        }
        stage.open_directory();
        stage
    }

    fn open_directory(&mut self) {
        let create = create(&self.directory, CreateMode::Persistent);
        for side in &mut self.sides {
            let first = &mut side.clients[0];
            let created = first
                .call(&create, &Differences::default())
                .expect("a reply");
            assert_eq!(created.code(), 0);
            side.names.shift = first.seen;
        }
    }

    fn begin(&mut self, session: usize) {
        self.begun += 1;
        for side in &mut self.sides {
            let (client, _) = RecordingClient::connect(&side.hosts, TIMEOUT_MS).expect("a session");
            side.names.sessions.insert(client.session, self.begun);
            match side.clients.get_mut(session) {
                Some(place) => *place = client,
                None => side.clients.push(client),
            }
        }
    }

    /// Lets both sides do the same, and compares the results.
    fn both<T: PartialEq + std::fmt::Debug>(
        &mut self,
        act: impl Fn(&mut Side) -> io::Result<T>,
    ) -> Result<T, String> {
        let [real, embedded] = &mut self.sides;
        let [real, embedded] = [act(real), act(embedded)];
        let real = real.map_err(|error| format!("ZooKeeper: {error}"))?;
        let embedded = embedded.map_err(|error| format!("embedded: {error}, real: {real:?}"))?;
        if real == embedded {
            Ok(real)
        } else {
            Err(format!("ZooKeeper: {real:#?}\nembedded: {embedded:#?}"))
        }
    }

    fn compare_events(&mut self, session: usize) -> Result<(), String> {
        let free = std::mem::take(&mut self.in_any_order[session]);
        self.both(|side| {
            let mut events = std::mem::take(&mut side.clients[session].events);
            if free {
                events.sort_by_key(|event| (event.path.clone(), rank(event.kind)));
            }
            Ok(events)
        })
        .map(drop)
    }

    fn take(&mut self, step: &ScriptStep) -> Result<(), String> {
        let session = step.session;
        match &step.act {
            Act::Ask(request) => self.ask(session, &[self.placed(request)]),
            Act::AskAtOnce(requests) => {
                let requests: Vec<_> = requests.iter().map(|each| self.placed(each)).collect();
                self.ask(session, &requests)
            }
            Act::AskAboutChild(which, request) => {
                let request = self.about_child(*which, self.placed(request));
                self.ask(session, &[request])
            }
            Act::Close => self.close(session),
            Act::Reconnect(lists) => self.reconnect(session, lists),
            Act::Expire => self.expire(session),
        }
    }

    fn ask(&mut self, session: usize, requests: &[Request]) -> Result<(), String> {
        self.asked += 1;
        let xids = XIDS.iter().cycle().skip(self.asked % XIDS.len());
        self.both(|side| {
            let client = &mut side.clients[session];
            requests
                .iter()
                .zip(xids.clone())
                .try_for_each(|(request, xid)| client.send(request, *xid))?;
            let hear = |request| client.hear(request, &side.names);
            requests
                .iter()
                .map(hear)
                .collect::<io::Result<Vec<Heard>>>()
        })?;
        self.compare_events(session)
    }

    fn close(&mut self, session: usize) -> Result<(), String> {
        self.in_any_order = [true; SESSIONS];
        self.ask(session, &[Request::Close])?;
        self.both(|side| Ok(side.clients[session].hear_the_end()))?;
        self.begin(session);
        Ok(())
    }

    fn reconnect(&mut self, session: usize, lists: &WatchLists) -> Result<(), String> {
        self.both(|side| {
            let client = &mut side.clients[session];
            let before = client.session;
            let reply = client.reconnect(TIMEOUT_MS)?;
            Ok((reply.timeout_ms, reply.session == before))
        })?;
        let directory = self.directory.clone();
        let lists = place_lists(&directory, lists);
        self.both(|side| {
            let client = &mut side.clients[session];
            let since_zxid = client.seen + lists.since_zxid;
            let request = Request::SetWatches(WatchLists {
                since_zxid,
                ..lists.clone()
            });
            client.call(&request, &side.names)
        })?;
        self.compare_events(session)
    }

    fn expire(&mut self, session: usize) -> Result<(), String> {
        // The marker is beside the directory, which the script may have deleted.
        let marker = format!("{}-{}", self.directory, self.begun);
        self.ask(session, &[create(&marker, CreateMode::Ephemeral)])?;
        self.in_any_order = [true; SESSIONS];
        let observer = (session + 1) % SESSIONS;
        let look = Request::GetData {
            path: marker,
            watch: false,
        };
        self.both(|side| {
            let reply = side.clients[session].reconnect(SHORT_MS)?;
            Ok(reply.timeout_ms)
        })?;
        for side in &mut self.sides {
            eventually("the session expires", || {
                let heard = side.clients[observer].call(&look, &side.names);
                heard.expect("a reply").code() != 0
            });
        }
        self.both(|side| {
            let reply = side.clients[session].reconnect(SHORT_MS)?;
            Ok((reply.timeout_ms, reply.session, reply.password))
        })?;
        self.begin(session);
        Ok(())
    }

    fn placed(&self, request: &Request) -> Request {
        let mut request = request.clone();
        let directory = &self.directory;
        each_path(&mut request, &mut |path| place(directory, path));
        if let Request::SetWatches(lists) = &mut request {
            *lists = place_lists(directory, lists);
        }
        if let Request::RemoveWatches { path, kind } = &mut request {
            let path = path.strip_prefix(directory.as_str());
            let for_good = path.is_some_and(|path| path.starts_with(RECURSIVE));
            let of_one_kind = [WatchKind::CHILDREN, WatchKind::DATA].contains(kind);
            if for_good && of_one_kind && self.newer {
                // From 3.9 on, a persistent watch is of neither kind.
                *kind = WatchKind::ANY;
            }
        }
        if let Request::Exists { watch, .. } = &mut request {
            // From 3.9.5 on, at the latest, a client that may not read gets no watch.
            *watch &= !self.newer;
        }
        request
    }

    /// Turns a request about a directory into one about one of its children.
    fn about_child(&self, which: usize, mut request: Request) -> Request {
        let nodes = self.embedded.nodes();
        let watched_for_good = format!("{}{RECURSIVE}", self.directory);
        each_path(&mut request, &mut |path| {
            let child = |node: &&String| {
                node.strip_prefix(path.as_str())
                    .and_then(|rest| rest.strip_prefix('/'))
                    .is_some_and(|name| !name.is_empty() && !name.contains('/'))
                    && !node.starts_with(&watched_for_good)
            };
            let children: Vec<_> = nodes.iter().filter(child).collect();
            if let Some(child) = children.get(which % children.len().max(1)) {
                path.clone_from(child);
            }
        });
        request
    }
}

impl Drop for BothServers {
    /// Closes the sessions: otherwise they would end, and be counted, in the middle of another
    /// script.
    fn drop(&mut self) {
        for client in self.sides.iter_mut().flat_map(|side| &mut side.clients) {
            let _ = client.call(&Request::Close, &Differences::default());
        }
    }
}

pub(super) fn play(mut stage: BothServers, script: &[ScriptStep]) -> Result<(), String> {
    for (number, step) in script.iter().enumerate() {
        let taken = stage.take(step);
        taken.map_err(|difference| format!("at step {number}, {step:?}:\n{difference}"))?;
    }
    // Events after which nobody asked for anything are still due.
    for session in 0..SESSIONS {
        let ask = stage.ask(session, &[Request::Ping]);
        ask.map_err(|difference| format!("at the end, of session {session}:\n{difference}"))?;
    }
    Ok(())
}

fn create(path: &str, mode: CreateMode) -> Request {
    Request::Create {
        path: path.to_owned(),
        data: Vec::new().into(),
        acl: vec![Access {
            permissions: Permissions::ALL,
            scheme: "world".to_owned(),
            id: "anyone".to_owned(),
        }],
        mode,
        stat: false,
    }
}

/// Puts a path below the directory. A path without a leading slash stays as it is, and so does the
/// rest of a path after a leading `!`.
fn place(directory: &str, path: &mut String) {
    if let Some(outside) = path.strip_prefix('!') {
        *path = outside.to_owned();
    } else if path.is_empty() || path.starts_with('/') {
        path.insert_str(0, directory);
    }
}

fn place_lists(directory: &str, lists: &WatchLists) -> WatchLists {
    let mut lists = lists.clone();
    for list in [
        &mut lists.data,
        &mut lists.exists,
        &mut lists.children,
        &mut lists.persistent,
        &mut lists.recursive,
    ] {
        list.iter_mut().for_each(|path| place(directory, path));
    }
    lists
}

fn each_path(request: &mut Request, change: &mut impl FnMut(&mut String)) {
    match request {
        Request::Create { path, .. }
        | Request::Check { path, .. }
        | Request::Delete { path, .. }
        | Request::Exists { path, .. }
        | Request::GetData { path, .. }
        | Request::SetData { path, .. }
        | Request::GetAcl { path }
        | Request::SetAcl { path, .. }
        | Request::GetChildren { path, .. }
        | Request::CountDescendants { path }
        | Request::Sync { path }
        | Request::CheckWatches { path, .. }
        | Request::RemoveWatches { path, .. }
        | Request::AddWatch { path, .. }
        | Request::GetEphemerals { below: path } => change(path),
        Request::Multi(ops) | Request::MultiRead(ops) => {
            ops.iter_mut().for_each(|op| each_path(op, change));
        }
        _ => {}
    }
}

fn rank(kind: EventKind) -> u8 {
    match kind {
        EventKind::Created => 1,
        EventKind::Deleted => 2,
        EventKind::DataChanged => 3,
        EventKind::ChildrenChanged => 4,
        EventKind::None | EventKind::Other(_) => 0,
    }
}
