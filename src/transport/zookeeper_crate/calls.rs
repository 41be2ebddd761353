//! Translates requests and replies to and from the `zookeeper` crate.

use zookeeper::{Acl, CreateMode, Permission, ZkError, ZkResult, ZooKeeper};

use super::watches::Watches;
use crate::transport::{Failure, Watch};
use zklock_core::connection::watches::Kind;
use zklock_jute::{Access, ErrorCode, Reply, Request, Stat};

/// Carries out one request. Blocks until the crate returns, perhaps forever.
pub(super) fn perform(
    handle: &ZooKeeper,
    request: Request,
    watch: Option<Watch>,
    watches: &Watches,
) -> Result<Reply, Failure> {
    match watch.zip(watched(&request)) {
        Some((watch, (path, of))) => read_and_watch(handle, (&path, of), watch, watches),
        None => carry_out(handle, request),
    }
}

/// Returns what the request watches, if it does.
fn watched(request: &Request) -> Option<(String, Kind)> {
    let of = match request {
        Request::Exists { .. } => Kind::Exists,
        Request::GetData { .. } => Kind::Data,
        _ => Kind::Children,
    };
    Some((request.watches()?.to_owned(), of))
}

/// Carries out a request that sets a watch.
fn read_and_watch(
    handle: &ZooKeeper,
    (path, of): (&str, Kind),
    watch: Watch,
    watches: &Watches,
) -> Result<Reply, Failure> {
    let id = watch.id;
    let answer = match watches.join((path, of), watch) {
        Ok(()) => match of {
            Kind::Exists => found(handle.exists(path, true)),
            Kind::Data => data(handle.get_data(path, true)),
            Kind::Children => children(handle.get_children(path, true)),
        },
        Err(watch) => {
            let (number, watcher) = watches.add((path, of), watch);
            let answer = match of {
                Kind::Exists => found(handle.exists_w(path, watcher)),
                Kind::Data => data(handle.get_data_w(path, watcher)),
                Kind::Children => children(handle.get_children_w(path, watcher)),
            };
            // A contender that has gone does not come back, and nobody looks at it again.
            let comes_back = answer == no_node() && of != Kind::Data;
            watches.answered(path, number, answer.is_ok() || comes_back);
            answer
        }
    };
    let leaves_a_watch_on_nothing = of == Kind::Exists && answer == no_node();
    if answer.is_err() && !leaves_a_watch_on_nothing {
        watches.remove(path, id);
    }
    answer
}

fn carry_out(handle: &ZooKeeper, request: Request) -> Result<Reply, Failure> {
    match request {
        Request::Create {
            path,
            data,
            acl,
            mode,
            ..
        } => {
            let acl = acl.iter().map(access).collect();
            let created = handle.create(&path, data.into(), acl, create_mode(mode));
            created
                .map(|path| Reply::Created { path, stat: None })
                .map_err(failure)
        }
        Request::Delete { path, version } => handle
            .delete(&path, expected(version))
            .map(|()| Reply::Nothing)
            .map_err(failure),
        Request::SetData {
            path,
            data,
            version,
        } => handle
            .set_data(&path, data.into(), expected(version))
            .map(|found| Reply::Stat(stat(&found)))
            .map_err(failure),
        Request::Exists { path, .. } => found(handle.exists(&path, false)),
        Request::GetData { path, .. } => data(handle.get_data(&path, false)),
        Request::GetChildren { path, .. } => children(handle.get_children(&path, false)),
        // The crate has no calls for the other requests.
        _ => Err(Failure::Refused(ErrorCode::UNIMPLEMENTED)),
    }
}

fn found(answer: ZkResult<Option<zookeeper::Stat>>) -> Result<Reply, Failure> {
    match answer {
        Ok(Some(found)) => Ok(Reply::Stat(stat(&found))),
        Ok(None) => no_node(),
        Err(error) => Err(failure(error)),
    }
}

fn data(answer: ZkResult<(Vec<u8>, zookeeper::Stat)>) -> Result<Reply, Failure> {
    let (data, found) = answer.map_err(failure)?;
    let (data, stat) = (data.into(), stat(&found));
    Ok(Reply::Data { data, stat })
}

fn children(answer: ZkResult<Vec<String>>) -> Result<Reply, Failure> {
    let names = answer.map_err(failure)?.into_iter().collect();
    Ok(Reply::Children { names, stat: None })
}

fn no_node() -> Result<Reply, Failure> {
    Err(Failure::Refused(ErrorCode::NO_NODE))
}

fn failure(error: ZkError) -> Failure {
    match error {
        // There is no reply, or none that the crate can read.
        ZkError::ConnectionLoss
        | ZkError::MarshallingError
        | ZkError::OperationTimeout
        | ZkError::SessionExpired => Failure::Lost,
        error => Failure::Refused(ErrorCode(error as i32)),
    }
}

fn expected(version: i32) -> Option<i32> {
    (version != -1).then_some(version)
}

fn create_mode(mode: zklock_jute::CreateMode) -> CreateMode {
    match mode {
        zklock_jute::CreateMode::Persistent => CreateMode::Persistent,
        zklock_jute::CreateMode::Ephemeral => CreateMode::Ephemeral,
        zklock_jute::CreateMode::PersistentSequential => CreateMode::PersistentSequential,
        zklock_jute::CreateMode::EphemeralSequential => CreateMode::EphemeralSequential,
        // Containers need a request of their own, which the crate lacks.
        zklock_jute::CreateMode::Container
        | zklock_jute::CreateMode::Ttl { .. }
        | zklock_jute::CreateMode::Other(_) => CreateMode::Persistent,
    }
}

fn access(access: &Access) -> Acl {
    let known = [
        (zklock_jute::Permissions::READ, Permission::READ),
        (zklock_jute::Permissions::WRITE, Permission::WRITE),
        (zklock_jute::Permissions::CREATE, Permission::CREATE),
        (zklock_jute::Permissions::DELETE, Permission::DELETE),
        (zklock_jute::Permissions::ADMIN, Permission::ADMIN),
    ];
    let given = known
        .iter()
        .filter(|(ours, _)| access.permissions.0 & ours.0 != 0)
        .fold(Permission::NONE, |given, (_, theirs)| given | *theirs);
    Acl::new(given, &access.scheme, &access.id)
}

fn stat(stat: &zookeeper::Stat) -> Stat {
    Stat {
        czxid: stat.czxid,
        mzxid: stat.mzxid,
        ctime: stat.ctime,
        mtime: stat.mtime,
        version: stat.version,
        cversion: stat.cversion,
        aversion: stat.aversion,
        ephemeral_owner: stat.ephemeral_owner,
        data_length: stat.data_length,
        num_children: stat.num_children,
        pzxid: stat.pzxid,
    }
}
