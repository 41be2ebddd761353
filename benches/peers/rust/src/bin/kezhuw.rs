//! The lock of kezhuw's `zookeeper-client`, in tokio tasks; it deletes in the background.

use peers::{Peer, SESSION_TIMEOUT};
use zookeeper_client::{Acls, Client, CreateMode, LockOptions, LockPrefix, OwnedLockClient};

struct Kezhuw(Client);

impl Peer for Kezhuw {
    type Held = OwnedLockClient;

    async fn connect(hosts: &str) -> Self {
        let connector = Client::connector().with_session_timeout(SESSION_TIMEOUT);
        Self(connector.connect(hosts).await.expect("a server"))
    }

    async fn lock(&self, dir: &str) -> OwnedLockClient {
        let prefix = LockPrefix::new_curator(dir, "lock-").expect("a path");
        let options = LockOptions::new(Acls::anyone_all())
            .with_ancestor_options(CreateMode::Persistent.with_acls(Acls::anyone_all()))
            .expect("options");
        let held = self.0.lock(prefix, b"", options).await;
        held.expect("the lock").into_owned()
    }

    async fn unlock(&self, held: OwnedLockClient) {
        drop(held);
    }

    async fn contenders(&self, dir: &str) -> usize {
        self.0.list_children(dir).await.expect("a directory").len()
    }
}

fn main() {
    peers::run::<Kezhuw>();
}
