//! No place in a queue is given up: a client that looks for the node of a create whose answer was lost finds
//! the node if it stands.

use std::collections::BTreeMap;

use zklock_jute::Request;

use crate::servers::Time;
use crate::world::World;

/// The requests of one client about its places in queues.
#[derive(Default)]
pub(crate) struct Places {
    /// When the client last asked for the children of a directory.
    listed: BTreeMap<String, Time>,
    /// The client's creates of contenders: the path up to the number, and when each was sent.
    created: Vec<(String, Time)>,
}

impl World {
    /// Judges a request that the client sends. The judge knows which thread a node belongs to only if one thread
    /// of the client wants the path.
    pub(crate) fn judge_place(&mut self, client: usize, session: i64, request: &Request) {
        if let Request::GetChildren { path, .. } = request {
            let listed = &mut self.clients[client].places.listed;
            match listed.get_mut(path) {
                Some(at) => *at = self.now,
                None => drop(listed.insert(path.clone(), self.now)),
            }
        }
        let Some((path, dir)) = created(request) else {
            return;
        };
        if let Some(node) = self.stands_already(client, session, dir) {
            self.fail(format!("c{client} asks for {path} while its {node} stands"));
        }
        let created = (path.to_owned(), self.now);
        self.clients[client].places.created.push(created);
    }

    fn stands_already(&self, client: usize, session: i64, dir: &str) -> Option<String> {
        let one = &self.clients[client];
        let wants = |thread: &&crate::client::ThreadState| thread.wants(dir);
        if one.threads.iter().filter(wants).count() != 1 {
            return None;
        }
        let asks = |op: &&crate::client::Op| op.client == client && op.path() == dir;
        let op = self.ops.iter().rfind(asks)?;
        let listed = *one.places.listed.get(dir)?;
        let is_its = |(prefix, at): &&(String, Time)| {
            op.asked <= *at && prefix.rsplit_once('/').is_some_and(|(of, _)| of == dir)
        };
        let mut prefixes = one
            .places
            .created
            .iter()
            .filter(is_its)
            .map(|(prefix, _)| prefix);
        let stands = |prefix: &String| {
            self.lives.iter().find(|life| {
                let is_ours = life.owner == session && life.path.starts_with(prefix.as_str());
                is_ours && life.to.is_none() && life.from < listed
            })
        };
        prefixes.find_map(stands).map(|life| life.path.to_string())
    }
}

/// Returns the contender that a request creates, and its directory.
fn created(request: &Request) -> Option<(&str, &str)> {
    let path = match request {
        Request::Create { path, .. } => path,
        Request::Multi(ops) => ops.iter().find_map(|op| match op {
            Request::Create { path, .. } => Some(path),
            _ => None,
        })?,
        _ => return None,
    };
    let (dir, _) = path.rsplit_once('/').filter(|(dir, _)| !dir.is_empty())?;
    Some((path, dir))
}
