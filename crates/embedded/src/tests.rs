//! The tree and the watches, as values.

use super::acl::{Identity, NodeAcl};
use super::change::TreeChange;
use super::node::ChangeTime;
use super::tree::{Author, Tree};
use super::watches::{ConnectionId, Notice, Reach, ServerWatches, Subject};
use zklock_jute::{
    Access, CreateMode, Data, ErrorCode, EventKind, Permissions, Reply, Request, Stat, WatchKind,
};

type Result<T> = std::result::Result<T, ErrorCode>;

const SESSION: i64 = 0x77;

/// A tree, and a zxid for each change of it.
struct NumberedTree {
    nodes: Tree,
    zxid: i64,
}

impl NumberedTree {
    fn new() -> Self {
        Self {
            nodes: Tree::new(),
            zxid: 0,
        }
    }

    fn at(&mut self) -> ChangeTime {
        self.zxid += 1;
        ChangeTime {
            zxid: self.zxid,
            ms: 0,
        }
    }

    fn apply(&mut self, op: Request) -> Result<Reply> {
        let at = self.at();
        self.nodes.apply(op, AUTHOR, at).map(|(reply, _)| reply)
    }

    fn create(&mut self, path: &str, mode: CreateMode) -> Result<String> {
        match self.apply(create(path, mode))? {
            Reply::Created { path, .. } => Ok(path),
            other => panic!("{other:?}"),
        }
    }

    fn multi(&mut self, ops: Vec<Request>) -> Vec<Result<Reply>> {
        let at = self.at();
        self.nodes.multi(ops, AUTHOR, at).0
    }

    fn stat(&self, path: &str) -> Stat {
        self.nodes.node(path).unwrap().stat()
    }

    /// Returns everything that can be seen of the tree.
    fn look(&self) -> Vec<(String, Stat, Data)> {
        let mut paths: Vec<_> = self.nodes.paths().map(str::to_owned).collect();
        paths.push("/".to_owned());
        paths.sort();
        let data = |path: &str| self.nodes.node(path).unwrap().data.clone();
        let look = |path: String| (path.clone(), self.stat(&path), data(&path));
        paths.into_iter().map(look).collect()
    }
}

const AUTHOR: Author<'static> = Author {
    session: SESSION,
    who: &[],
};

fn open() -> Vec<Access> {
    NodeAcl::world(Permissions::ALL).shown_to(&[])
}

fn create(path: &str, mode: CreateMode) -> Request {
    Request::Create {
        path: path.to_owned(),
        data: vec![1].into(),
        acl: open(),
        mode,
        stat: false,
    }
}

fn delete(path: &str) -> Request {
    Request::Delete {
        path: path.to_owned(),
        version: -1,
    }
}

fn set(path: &str, version: i32) -> Request {
    Request::SetData {
        path: path.to_owned(),
        data: vec![2, 2].into(),
        version,
    }
}

fn check(path: &str, version: i32) -> Request {
    Request::Check {
        path: path.to_owned(),
        version,
    }
}

#[test]
fn each_refusal_has_its_code() {
    let mut tree = NumberedTree::new();
    tree.create("/a", CreateMode::Persistent).unwrap();
    tree.create("/a/e", CreateMode::Ephemeral).unwrap();
    let table = [
        (create("/no/b", CreateMode::Persistent), ErrorCode::NO_NODE),
        (create("/a", CreateMode::Persistent), ErrorCode::NODE_EXISTS),
        (create("/", CreateMode::Persistent), ErrorCode::NODE_EXISTS),
        (
            create("a", CreateMode::Persistent),
            ErrorCode::BAD_ARGUMENTS,
        ),
        (
            create("/a/", CreateMode::Persistent),
            ErrorCode::BAD_ARGUMENTS,
        ),
        (
            create("/a/e/x", CreateMode::Persistent),
            ErrorCode::NO_CHILDREN_FOR_EPHEMERALS,
        ),
        (delete("/a"), ErrorCode::NOT_EMPTY),
        (delete("/no"), ErrorCode::NO_NODE),
        (delete("/"), ErrorCode::BAD_ARGUMENTS),
        (delete("/zookeeper/quota"), ErrorCode::BAD_ARGUMENTS),
        (set("/a", 7), ErrorCode::BAD_VERSION),
        (set("/no", -1), ErrorCode::NO_NODE),
        (set("/zookeeper/config", -1), ErrorCode::NO_AUTH),
        (check("/a", 1), ErrorCode::BAD_VERSION),
    ];
    let before = tree.look();
    for (op, code) in table {
        let text = format!("{op:?}");
        assert_eq!(tree.apply(op), Err(code), "{text}");
    }
    assert_eq!(tree.look(), before);
}

#[test]
fn stats_bear_the_zxids_of_the_changes() {
    let mut tree = NumberedTree::new();
    tree.create("/a", CreateMode::Persistent).unwrap();
    tree.apply(set("/a", 0)).unwrap();
    tree.create("/a/b", CreateMode::Persistent).unwrap();
    tree.apply(delete("/a/b")).unwrap();
    let expected = Stat {
        czxid: 1,
        mzxid: 2,
        pzxid: 4,
        version: 1,
        cversion: 2,
        data_length: 2,
        ..Stat::default()
    };
    assert_eq!(tree.stat("/a"), expected);
    assert_eq!(tree.stat("/").cversion, 0);
    assert_eq!(Tree::new().node("/").unwrap().stat().cversion, -1);
}

#[test]
fn every_child_counts_for_the_next_number() {
    let mut tree = NumberedTree::new();
    tree.create("/d", CreateMode::Persistent).unwrap();
    tree.create("/d/foreign", CreateMode::Persistent).unwrap();
    tree.apply(delete("/d/foreign")).unwrap();
    let number = |tree: &mut NumberedTree| tree.create("/d/n-", CreateMode::EphemeralSequential);
    assert_eq!(number(&mut tree).unwrap(), "/d/n-0000000001");
    assert_eq!(number(&mut tree).unwrap(), "/d/n-0000000002");
}

#[test]
fn a_counter_stays_at_its_end() {
    let mut tree = NumberedTree::new();
    tree.create("/d", CreateMode::Persistent).unwrap();
    tree.nodes.set_counter("/d", i32::MAX - 1);
    let number = |tree: &mut NumberedTree| tree.create("/d/n-", CreateMode::EphemeralSequential);
    assert_eq!(number(&mut tree).unwrap(), "/d/n-2147483646");
    assert_eq!(number(&mut tree).unwrap(), "/d/n-2147483647");
    assert_eq!(number(&mut tree), Err(ErrorCode::NODE_EXISTS));
    assert_eq!(
        tree.create("/d/m-", CreateMode::EphemeralSequential)
            .unwrap(),
        "/d/m-2147483647"
    );
    // The next number, as a client works it out.
    let stat = tree.stat("/d");
    assert_eq!(
        stat.cversion.wrapping_add(stat.num_children) as u32 / 2,
        i32::MAX as u32
    );
}

#[test]
fn a_multi_with_a_failure_changes_nothing_and_says_which_part_it_was() {
    let mut tree = NumberedTree::new();
    tree.create("/a", CreateMode::Persistent).unwrap();
    tree.create("/a/old", CreateMode::Ephemeral).unwrap();
    let before = tree.look();
    let results = tree.multi(vec![
        create("/a/c", CreateMode::Container),
        create("/a/c/n-", CreateMode::EphemeralSequential),
        set("/a", 0),
        delete("/a/old"),
        delete("/a/no"),
        create("/a/d", CreateMode::Persistent),
    ]);
    let codes: Vec<_> = results.into_iter().map(Result::unwrap_err).collect();
    let (ok, after) = (ErrorCode::OK, ErrorCode::RUNTIME_INCONSISTENCY);
    assert_eq!(codes, [ok, ok, ok, ok, ErrorCode::NO_NODE, after]);
    assert_eq!(tree.look(), before);
    let gone = tree.at();
    assert_eq!(tree.nodes.end_session(SESSION, gone).len(), 1);
}

#[test]
fn the_parts_of_a_multi_see_each_other_and_share_a_zxid() {
    let mut tree = NumberedTree::new();
    let results = tree.multi(vec![
        create("/a", CreateMode::Persistent),
        create("/a/n-", CreateMode::EphemeralSequential),
        create("/a/n-", CreateMode::EphemeralSequential),
        check("/a", 0),
    ]);
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let stats = ["/a", "/a/n-0000000000", "/a/n-0000000001"].map(|path| tree.stat(path).czxid);
    assert_eq!(stats, [1, 1, 1]);
}

#[test]
fn nodes_end_with_their_session() {
    let mut tree = NumberedTree::new();
    tree.create("/a", CreateMode::Persistent).unwrap();
    tree.create("/a/mine", CreateMode::Ephemeral).unwrap();
    tree.create("/deleted", CreateMode::Ephemeral).unwrap();
    tree.apply(delete("/deleted")).unwrap();
    let at = tree.at();
    assert_eq!(tree.nodes.end_session(SESSION + 1, at).len(), 0);
    assert_eq!(tree.nodes.end_session(SESSION, at).len(), 1);
    assert_eq!(tree.nodes.paths().collect::<Vec<_>>(), ["/a"]);
}

#[test]
fn a_container_is_reaped_once_its_last_child_is_gone() {
    let mut tree = NumberedTree::new();
    tree.create("/c", CreateMode::Container).unwrap();
    assert_eq!(tree.nodes.over(0), [""; 0]);
    tree.create("/c/x", CreateMode::Persistent).unwrap();
    assert_eq!(tree.nodes.over(0), [""; 0]);
    tree.apply(delete("/c/x")).unwrap();
    assert_eq!(tree.nodes.over(0), ["/c"]);
    let at = tree.at();
    tree.create("/c/y", CreateMode::Persistent).unwrap();
    assert_eq!(
        tree.nodes.remove_over("/c", at).err(),
        Some(ErrorCode::NOT_EMPTY)
    );
    tree.apply(delete("/c/y")).unwrap();
    tree.nodes.remove_over("/c", at).unwrap();
    // A new container counts from 0 again.
    tree.create("/c", CreateMode::Container).unwrap();
    let first = tree.create("/c/n-", CreateMode::PersistentSequential);
    assert_eq!(first.unwrap(), "/c/n-0000000000");
}

#[test]
fn a_node_may_be_deleted_by_whoever_may_delete_in_its_directory() {
    let mut tree = Tree::new();
    let me = [Identity::of_credentials("digest", b"me:1").unwrap()];
    let mine = Author {
        session: SESSION,
        who: &me,
    };
    let mut private = create("/a", CreateMode::Persistent);
    if let Request::Create { acl, .. } = &mut private {
        acl[0].scheme = "auth".to_owned();
    }
    tree.apply(private, mine, ChangeTime::default()).unwrap();
    let inside = create("/a/b", CreateMode::Persistent);
    let refused = tree.apply(inside.clone(), AUTHOR, ChangeTime::default());
    assert_eq!(refused.err(), Some(ErrorCode::NO_AUTH));
    tree.apply(inside, mine, ChangeTime::default()).unwrap();
    let refused = tree.apply(delete("/a/b"), AUTHOR, ChangeTime::default());
    assert_eq!(refused.err(), Some(ErrorCode::NO_AUTH));
    tree.apply(delete("/a/b"), mine, ChangeTime::default())
        .unwrap();
    tree.apply(delete("/a"), AUTHOR, ChangeTime::default())
        .unwrap();
}

const ME: ConnectionId = 1;
const YOU: ConnectionId = 2;

/// Carries out the operation, and returns which client is told what.
fn told(
    tree: &mut NumberedTree,
    watches: &mut ServerWatches,
    op: Request,
) -> Vec<(ConnectionId, EventKind, String)> {
    let at = tree.at();
    let (_, change) = tree.nodes.apply(op, AUTHOR, at).unwrap();
    let change: TreeChange = change.unwrap();
    let tell = |notice: Notice| (notice.watcher, notice.kind, notice.path);
    watches.fire(&change).into_iter().map(tell).collect()
}

#[test]
fn a_watch_fires_once_and_its_owner_hears_once_of_a_deletion() {
    let (mut tree, mut watches) = (NumberedTree::new(), ServerWatches::default());
    tree.create("/a", CreateMode::Persistent).unwrap();
    watches.add(Subject::Node, "/a", ME);
    watches.add(Subject::Children, "/a", ME);
    watches.add(Subject::Children, "/a", YOU);
    watches.add(Subject::Children, "/", YOU);
    assert_eq!(
        told(&mut tree, &mut watches, delete("/a")),
        [
            (ME, EventKind::Deleted, "/a".to_owned()),
            (YOU, EventKind::Deleted, "/a".to_owned()),
            (YOU, EventKind::ChildrenChanged, "/".to_owned()),
        ]
    );
    assert_eq!(watches.len(), 0);
    assert_eq!(
        told(
            &mut tree,
            &mut watches,
            create("/a", CreateMode::Persistent)
        ),
        []
    );
}

#[test]
fn persistent_watches_stay_and_see_as_far_as_they_reach() {
    let (mut tree, mut watches) = (NumberedTree::new(), ServerWatches::default());
    tree.create("/a", CreateMode::Persistent).unwrap();
    watches.add_persistent(Reach::Path, "/a", ME);
    watches.add_persistent(Reach::Subtree, "/a", YOU);
    for _ in 0..2 {
        assert_eq!(
            told(
                &mut tree,
                &mut watches,
                create("/a/b", CreateMode::Persistent)
            ),
            [
                (YOU, EventKind::Created, "/a/b".to_owned()),
                (ME, EventKind::ChildrenChanged, "/a".to_owned()),
            ]
        );
        let set = told(&mut tree, &mut watches, set("/a", -1));
        assert_eq!(set.len(), 2, "{set:?}");
        tree.apply(delete("/a/b")).unwrap();
    }
}

#[test]
fn a_one_shot_watch_does_not_end_a_persistent_one_of_the_same_path() {
    let (mut tree, mut watches) = (NumberedTree::new(), ServerWatches::default());
    tree.create("/a", CreateMode::Persistent).unwrap();
    watches.add_persistent(Reach::Path, "/a", ME);
    watches.add(Subject::Node, "/a", ME);
    for _ in 0..2 {
        assert_eq!(told(&mut tree, &mut watches, set("/a", -1)).len(), 1);
    }
}

#[test]
fn watches_are_removed_by_kind_and_by_owner() {
    let mut watches = ServerWatches::default();
    watches.add(Subject::Node, "/a", ME);
    watches.add(Subject::Children, "/a", ME);
    watches.add(Subject::Children, "/a", YOU);
    watches.remove(WatchKind::DATA, "/a", ME);
    assert!(!watches.has(WatchKind::DATA, "/a", ME));
    assert!(watches.has(WatchKind::ANY, "/a", ME));
    watches.forget(ME);
    assert!(!watches.has(WatchKind::ANY, "/a", ME));
    assert!(watches.has(WatchKind::CHILDREN, "/a", YOU));
}
