//! How a client's operations change the tree.
//!
//! The order of the checks is ZooKeeper's, because it decides which error a client sees.

use super::{Author, Result, SYSTEM, Tree};
use crate::acl::{Identity, NodeAcl};
use crate::change::{Above, TreeChange};
use crate::node::{ChangeTime, Node, NodeOwner, next_version};
use crate::path;
use zklock_jute::{Access, CreateMode, Data, ErrorCode, Permissions, Reply, Request, Stat};

impl Tree {
    /// Carries out one operation. If it fails, nothing is changed.
    pub fn apply(
        &mut self,
        op: Request,
        by: Author<'_>,
        at: ChangeTime,
    ) -> Result<(Reply, Option<TreeChange>)> {
        match op {
            Request::Check { path, version } => self.check(&path, version, by),
            Request::Create {
                path,
                data,
                acl,
                mode,
                stat,
            } => self
                .create(path, data, &acl, mode, by, at)
                .map(|(path, change)| {
                    let stat = stat.then(|| self.node(&path).map(Node::stat).unwrap_or_default());
                    (Reply::Created { path, stat }, Some(change))
                }),
            Request::Delete { path, version } => {
                let change = self.delete(&path, version, by, at)?;
                Ok((Reply::Nothing, Some(change)))
            }
            Request::SetData {
                path,
                data,
                version,
            } => {
                let (stat, change) = self.set_data(path, data, version, by, at)?;
                Ok((Reply::Stat(stat), Some(change)))
            }
            _ => Err(ErrorCode::UNIMPLEMENTED),
        }
    }

    /// Carries out all operations or none. Returns the result of each, and the changes.
    pub fn multi(
        &mut self,
        ops: Vec<Request>,
        by: Author<'_>,
        at: ChangeTime,
    ) -> (Vec<Result<Reply>>, Vec<TreeChange>) {
        let count = ops.len();
        let mut replies = Vec::with_capacity(count);
        let mut changes = Vec::new();
        for op in ops {
            match self.apply(without_stat(op), by, at) {
                Ok((reply, change)) => {
                    replies.push(Ok(reply));
                    changes.extend(change);
                }
                Err(code) => {
                    changes.drain(..).rev().for_each(|change| self.undo(change));
                    return (refusals(count, replies.len(), code), changes);
                }
            }
        }
        (replies, changes)
    }

    pub fn set_acl(
        &mut self,
        path: &str,
        acl: &[Access],
        version: i32,
        who: &[Identity],
    ) -> Result<Stat> {
        path::validate(path)?;
        let acl = NodeAcl::settle(acl, who)?;
        let node = self.nodes.get_mut(path).ok_or(ErrorCode::NO_NODE)?;
        node.acl.check(Permissions::ADMIN.0, who)?;
        node.marks.acl_version = next_version(node.marks.acl_version, version)?;
        node.acl = acl;
        Ok(node.stat())
    }

    fn check(
        &mut self,
        path: &str,
        version: i32,
        by: Author<'_>,
    ) -> Result<(Reply, Option<TreeChange>)> {
        path::validate(path)?;
        let node = self.node_for(path, Permissions::READ.0, by.who)?;
        next_version(node.marks.version, version)?;
        Ok((Reply::Checked, None))
    }

    fn create(
        &mut self,
        asked: String,
        data: Data,
        acl: &[Access],
        mode: CreateMode,
        by: Author<'_>,
        at: ChangeTime,
    ) -> Result<(String, TreeChange)> {
        let owner = NodeOwner::of(mode, by.session)?;
        let parent = path::parent(&asked)?;
        let acl = NodeAcl::settle(acl, by.who)?;
        let directory = self.node_for(parent, Permissions::CREATE.0, by.who)?;
        let path = if is_sequential(mode) {
            format!("{asked}{:010}", directory.marks.counter)
        } else {
            asked.clone()
        };
        path::validate(&path)?;
        if self.nodes.contains_key(&path) {
            return Err(ErrorCode::NODE_EXISTS);
        }
        if directory.is_ephemeral() {
            return Err(ErrorCode::NO_CHILDREN_FOR_EPHEMERALS);
        }
        let above = Above::of(directory);
        if let Some(directory) = self.nodes.get_mut(parent) {
            directory.count_creation(at.zxid);
        }
        self.insert(&path, Node::new(data, acl.clone(), owner, at));
        Ok((path.clone(), TreeChange::Created { path, acl, above }))
    }

    fn delete(
        &mut self,
        path: &str,
        version: i32,
        by: Author<'_>,
        at: ChangeTime,
    ) -> Result<TreeChange> {
        let parent = path::parent(path)?;
        if SYSTEM.contains(&path) {
            return Err(ErrorCode::BAD_ARGUMENTS);
        }
        self.node_for(parent, Permissions::DELETE.0, by.who)?;
        let node = self.node(path)?;
        next_version(node.marks.version, version)?;
        if !node.children.is_empty() {
            return Err(ErrorCode::NOT_EMPTY);
        }
        self.remove(path, at)
    }

    fn set_data(
        &mut self,
        path: String,
        data: Data,
        version: i32,
        by: Author<'_>,
        at: ChangeTime,
    ) -> Result<(Stat, TreeChange)> {
        path::validate(&path)?;
        let node = self.nodes.get_mut(&path).ok_or(ErrorCode::NO_NODE)?;
        node.acl.check(Permissions::WRITE.0, by.who)?;
        let version = next_version(node.marks.version, version)?;
        let marks = node.marks;
        let data = std::mem::replace(&mut node.data, data);
        node.marks.version = version;
        node.marks.modified = at;
        let acl = node.acl.clone();
        let change = TreeChange::Set {
            path,
            acl,
            data,
            marks,
        };
        Ok((node.stat(), change))
    }
}

fn is_sequential(mode: CreateMode) -> bool {
    matches!(
        mode,
        CreateMode::PersistentSequential
            | CreateMode::EphemeralSequential
            | CreateMode::Ttl { flag: 6, .. }
    )
}

/// In a multi, ZooKeeper treats create2 as create: the reply has no stat.
fn without_stat(mut op: Request) -> Request {
    if let Request::Create { mode, stat, .. } = &mut op {
        *stat = matches!(mode, CreateMode::Container | CreateMode::Ttl { .. });
    }
    op
}

/// Returns the results of a multi in which one operation failed.
fn refusals(count: usize, failed: usize, code: ErrorCode) -> Vec<Result<Reply>> {
    let told = |place: usize| match place.cmp(&failed) {
        std::cmp::Ordering::Less => ErrorCode::OK,
        std::cmp::Ordering::Equal => code,
        std::cmp::Ordering::Greater => ErrorCode::RUNTIME_INCONSISTENCY,
    };
    (0..count).map(|place| Err(told(place))).collect()
}
