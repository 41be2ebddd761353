//! The requests that the server is known to support.
//!
//! ZooKeeper 3.4 answers an unknown request with "unimplemented" and closes the connection;
//! ClickHouse Keeper just closes it, or says "bad arguments"; RaftKeeper leaves it without an
//! answer. All know the older requests, so a request that fails is sent again in its older form.
//!
//! Each newer request is judged by itself: ClickHouse Keeper learned `create2` years before `createContainer`.
//!
//! What a server has not said is a guess: connections that broke twice in a row, just as the same request was open, look
//! like a server that does not know it. So a guess is forgotten with the first connection after a while. Where it was
//! right, another connection breaks.

use core::time::Duration;

use zklock_jute::{CreateMode, ErrorCode, OpCode, Request};

/// How long a guess is kept, from the connection after it.
const GUESS: Duration = Duration::from_secs(600);

/// A feature that some servers lack. A request that needs one of the first two has an older form.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Feature {
    Create2,
    Containers,
    RemoveWatches,
    Multi,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Knowledge {
    #[default]
    Unknown,
    Present,
    /// The server has said that it lacks it.
    Missing,
    /// It seems to lack it; since that connection was made, if there was one since.
    Presumed(Option<Duration>),
}

impl Knowledge {
    fn is_missing(self) -> bool {
        matches!(self, Self::Missing | Self::Presumed(_))
    }
}

/// The features of a server, as far as they are known; see the module's documentation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Features {
    create2: Knowledge,
    containers: Knowledge,
    remove_watches: Knowledge,
    multi: Knowledge,
    /// The feature over which the server last left the client or skipped a request, and how many times in a row.
    suspect: Option<(Feature, u32)>,
}

impl Features {
    /// Returns whether the server carries out transactions, as far as is known.
    pub fn transacts(self) -> bool {
        !self.multi.is_missing()
    }

    /// Returns whether created nodes come with their stat, as far as is known.
    pub fn tells_stats(self) -> bool {
        !self.create2.is_missing()
    }

    /// Returns whether to send `removeWatches`. A server that lacks it closes the connection. A client that
    /// only reads creates nothing, which would tell whether the server has it, and may have many watches.
    pub fn removes_watches(self) -> bool {
        !self.create2.is_missing() && !self.remove_watches.is_missing()
    }

    /// Notes that a connection begins, which puts old guesses to the test.
    pub fn connects(&mut self, now: Duration) {
        for known in [
            &mut self.create2,
            &mut self.containers,
            &mut self.remove_watches,
            &mut self.multi,
        ] {
            match known {
                Knowledge::Presumed(Some(since)) if *since + GUESS <= now => {
                    *known = Knowledge::Unknown;
                }
                Knowledge::Presumed(since) => _ = since.get_or_insert(now),
                _ => {}
            }
        }
    }

    /// Puts a request into the form that the server knows.
    pub fn fit(self, mut request: Request) -> Request {
        for_each_create(&mut request, &mut |mode, stat| {
            let lacks = match mode {
                CreateMode::Container => [self.create2, self.containers],
                _ => [self.create2; 2],
            };
            if lacks.iter().any(|known| known.is_missing()) {
                age(mode, stat);
            }
        });
        request
    }

    /// Notes that a request was carried out.
    pub fn succeeded(&mut self, request: &Request) {
        let feature = match request.op() {
            OpCode::CREATE2 => Feature::Create2,
            OpCode::CREATE_CONTAINER => Feature::Containers,
            OpCode::MULTI => Feature::Multi,
            OpCode::REMOVE_WATCHES => Feature::RemoveWatches,
            _ => return,
        };
        *self.of(feature) = Knowledge::Present;
        self.suspect = self.suspect.filter(|(suspect, _)| *suspect != feature);
    }

    /// Notes that a request was refused. Returns whether to send it again in its older form.
    pub fn refused(&mut self, request: &Request, code: ErrorCode) -> bool {
        let Some(feature) = self.needed_by(request) else {
            return false;
        };
        if code == ErrorCode::UNIMPLEMENTED {
            *self.of(feature) = Knowledge::Missing;
        }
        match feature {
            Feature::Create2 => code == ErrorCode::UNIMPLEMENTED,
            Feature::Containers => {
                matches!(code, ErrorCode::UNIMPLEMENTED | ErrorCode::BAD_ARGUMENTS)
            }
            Feature::RemoveWatches | Feature::Multi => false,
        }
    }

    /// Notes that the server answered a later request, and not this one: it may drop what it does not know.
    ///
    /// Once may be a coincidence. If ZooKeeper takes a session for moved, it refuses the session's write by hanging
    /// up, and the answers to the reads behind the write still leave. A leader that was silent takes a session for
    /// moved when it hears of each attempt that the client has made meanwhile to resume it elsewhere.
    pub fn skipped(&mut self, request: &Request) {
        self.suspects(self.needed_by(request), 3);
    }

    /// Notes that the server closed the connection, or fell silent, while `oldest` was the oldest open request.
    ///
    /// Once may be a coincidence, and a wrong guess costs containers and the stats of created nodes. A watch that
    /// is not removed costs a server next to nothing.
    pub fn left_over(&mut self, oldest: Option<&Request>) {
        let feature = oldest.and_then(|request| self.needed_by(request));
        // Any server may leave a transaction open when the quorum is lost.
        self.suspects(feature.filter(|feature| *feature != Feature::Multi), 2);
    }

    /// Notes that the server seems not to know this; `enough` times in a row are convincing.
    fn suspects(&mut self, feature: Option<Feature>, enough: u32) {
        let before = self.suspect.take();
        let Some(feature) = feature else { return };
        let before = before.filter(|(suspect, _)| *suspect == feature);
        let times = before.map_or(1, |(_, times)| times.saturating_add(1));
        self.suspect = Some((feature, times));
        if feature == Feature::RemoveWatches || enough <= times {
            self.doubt(feature);
        }
    }

    /// Notes that the server seems to lack this. If a server has shown it, perhaps that was another server.
    fn doubt(&mut self, feature: Feature) {
        let known = self.of(feature);
        *known = match known {
            Knowledge::Present => Knowledge::Unknown,
            Knowledge::Unknown => Knowledge::Presumed(None),
            Knowledge::Missing | Knowledge::Presumed(_) => *known,
        };
    }

    /// Returns the feature that a server needs for a request, as far as that is in doubt.
    fn needed_by(&self, request: &Request) -> Option<Feature> {
        match request {
            Request::Create { mode, .. } if *mode == CreateMode::Container => {
                Some(Feature::Containers)
            }
            Request::Create { stat, .. } => stat.then_some(Feature::Create2),
            Request::RemoveWatches { .. } => Some(Feature::RemoveWatches),
            Request::Multi(ops) => {
                let mut needed = ops.iter().filter_map(|op| self.needed_by(op));
                let doubtful = |feature: &Feature| self.get(*feature) != Knowledge::Present;
                needed.find(doubtful).or(Some(Feature::Multi))
            }
            _ => None,
        }
    }

    fn get(mut self, feature: Feature) -> Knowledge {
        *self.of(feature)
    }

    fn of(&mut self, feature: Feature) -> &mut Knowledge {
        match feature {
            Feature::Create2 => &mut self.create2,
            Feature::Containers => &mut self.containers,
            Feature::RemoveWatches => &mut self.remove_watches,
            Feature::Multi => &mut self.multi,
        }
    }
}

/// Returns the older form of a request, which every server knows.
pub fn older(mut request: Request) -> Request {
    for_each_create(&mut request, &mut age);
    request
}

fn for_each_create(request: &mut Request, change: &mut impl FnMut(&mut CreateMode, &mut bool)) {
    match request {
        Request::Create { mode, stat, .. } => change(mode, stat),
        Request::Multi(ops) => {
            for op in ops {
                for_each_create(op, change);
            }
        }
        _ => {}
    }
}

fn age(mode: &mut CreateMode, stat: &mut bool) {
    *stat = false;
    if *mode == CreateMode::Container {
        *mode = CreateMode::Persistent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(mode: CreateMode, stat: bool) -> Request {
        Request::Create {
            path: "/a".to_owned(),
            data: Vec::new().into(),
            acl: Vec::new(),
            mode,
            stat,
        }
    }

    #[test]
    fn a_server_that_says_so_is_asked_in_the_older_form_from_then_on() {
        let newer = create(CreateMode::Ephemeral, true);
        let mut features = Features::default();
        assert_eq!(features.fit(newer.clone()), newer);
        assert!(features.refused(&newer, ErrorCode::UNIMPLEMENTED));
        assert_eq!(features.fit(newer), create(CreateMode::Ephemeral, false));
        let container = create(CreateMode::Container, true);
        assert_eq!(
            features.fit(container),
            create(CreateMode::Persistent, false)
        );
        assert!(!features.removes_watches());
    }

    #[test]
    fn a_server_that_hangs_up_twice_is_taken_for_old_unless_it_has_shown_otherwise() {
        let newer = create(CreateMode::Ephemeral, true);
        let read = Request::Sync { path: "/".into() };
        let older = create(CreateMode::Ephemeral, false);

        let mut features = Features::default();
        for oldest in [Some(&newer), Some(&read), Some(&newer), None, Some(&newer)] {
            features.left_over(oldest);
            assert_eq!(features.fit(newer.clone()), newer);
        }
        features.left_over(Some(&newer));
        assert_eq!(features.fit(newer.clone()), older);

        let mut features = Features::default();
        for oldest in [&newer; 9] {
            features.left_over(Some(oldest));
            features.succeeded(&newer);
        }
        assert!(features.removes_watches());
        for _ in 0..2 {
            features.left_over(Some(&newer));
            assert_eq!(features.fit(newer.clone()), newer);
        }
        features.left_over(Some(&newer));
        assert_eq!(features.fit(newer.clone()), older);
    }

    #[test]
    fn a_server_that_skips_a_newer_request_three_times_lacks_it_unless_it_has_shown_otherwise() {
        let newer = create(CreateMode::Ephemeral, true);
        let older = create(CreateMode::Ephemeral, false);
        let mut features = Features::default();
        for skipped in [&Request::Sync { path: "/".into() }, &newer, &newer] {
            features.skipped(skipped);
            assert_eq!(features.fit(newer.clone()), newer);
        }
        features.skipped(&newer);
        assert_eq!(features.fit(newer.clone()), older);
        // Perhaps it was another server that has shown it.
        let mut features = Features::default();
        features.succeeded(&newer);
        for _ in 0..3 {
            features.skipped(&newer);
            assert_eq!(features.fit(newer.clone()), newer);
        }
        features.skipped(&newer);
        assert_eq!(features.fit(newer.clone()), older);
    }

    /// A client whose connections broke in a bad moment created no containers any more, and asked for each created node's
    /// stat, until it ended.
    #[test]
    fn a_guess_is_put_to_the_test_after_a_while_and_what_a_server_says_is_not() {
        let newer = create(CreateMode::Ephemeral, true);
        let older = create(CreateMode::Ephemeral, false);
        let start = Duration::from_secs(1000);
        let mut guessed = Features::default();
        for _ in 0..2 {
            guessed.left_over(Some(&newer));
        }
        let mut said = Features::default();
        said.refused(&newer, ErrorCode::UNIMPLEMENTED);
        for now in [start, start + GUESS / 2] {
            guessed.connects(now);
            assert_eq!(guessed.fit(newer.clone()), older);
        }
        guessed.connects(start + GUESS);
        assert_eq!(guessed.fit(newer.clone()), newer);
        assert!(guessed.tells_stats());
        for _ in 0..2 {
            guessed.left_over(Some(&newer));
        }
        assert_eq!(guessed.fit(newer.clone()), older, "it was right");
        said.connects(start);
        said.connects(start + 2 * GUESS);
        assert_eq!(said.fit(newer), older);
    }

    #[test]
    fn a_session_that_moved_while_a_transaction_was_open_keeps_its_transactions() {
        let check = Request::Multi(vec![Request::check("/a")]);
        let mut features = Features::default();
        for _ in 0..9 {
            for _ in 0..2 {
                features.skipped(&check);
                assert!(features.transacts());
            }
            features.succeeded(&check);
        }
    }

    #[test]
    fn a_server_that_knows_create2_may_lack_the_others() {
        let newer = create(CreateMode::Ephemeral, true);
        let container = create(CreateMode::Container, true);
        let (path, kind) = ("/a".to_owned(), 1);
        let removal = Request::RemoveWatches { path, kind };
        let mut features = Features::default();
        features.succeeded(&newer);
        features.left_over(Some(&container));
        assert_eq!(features.fit(container.clone()), container);
        features.left_over(Some(&container));
        let plain = create(CreateMode::Persistent, false);
        assert_eq!(features.fit(container), plain);
        assert_eq!(features.fit(newer.clone()), newer);
        assert!(features.removes_watches());
        features.left_over(Some(&removal));
        assert!(!features.removes_watches());
    }

    #[test]
    fn a_server_that_has_removed_watches_lacks_that_only_if_it_hangs_up_twice() {
        let (path, kind) = ("/a".to_owned(), 1);
        let removal = Request::RemoveWatches { path, kind };
        let mut features = Features::default();
        for _ in 0..9 {
            features.succeeded(&removal);
            features.left_over(Some(&removal));
            assert!(features.removes_watches());
        }
        features.left_over(Some(&removal));
        assert!(!features.removes_watches());
    }

    #[test]
    fn a_transaction_is_doubted_for_what_is_in_it_first_and_never_for_silence() {
        let Request::Create { path, data, .. } = create(CreateMode::Ephemeral, true) else {
            unreachable!("it is a create");
        };
        let transaction = Request::Multi(vec![Request::Create {
            path,
            data,
            acl: Vec::new(),
            mode: CreateMode::Ephemeral,
            stat: true,
        }]);
        let mut features = Features::default();
        (0..3).for_each(|_| features.skipped(&transaction));
        assert_eq!(
            features.fit(transaction.clone()),
            older(transaction.clone())
        );
        let aged = older(transaction);
        for _ in 0..9 {
            features.left_over(Some(&aged));
        }
        (0..2).for_each(|_| features.skipped(&aged));
        assert!(features.transacts());
        features.skipped(&aged);
        assert!(!features.transacts());
    }

    #[test]
    fn a_refused_container_becomes_a_plain_node_only_this_once() {
        let container = create(CreateMode::Container, true);
        let mut features = Features::default();
        assert!(features.refused(&container, ErrorCode::BAD_ARGUMENTS));
        assert_eq!(features.fit(container.clone()), container);
        assert!(!features.refused(&container, ErrorCode::NODE_EXISTS));
        assert!(!features.refused(&older(container), ErrorCode::BAD_ARGUMENTS));
    }

    #[test]
    fn multi_is_reported_as_missing_once_the_server_said_so() {
        let mut features = Features::default();
        let multi = Request::Multi(Vec::new());
        assert!(!features.refused(&multi, ErrorCode::NO_NODE));
        assert!(features.transacts());
        assert!(!features.refused(&multi, ErrorCode::UNIMPLEMENTED));
        assert!(!features.transacts());
    }
}
