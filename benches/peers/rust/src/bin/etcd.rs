//! etcd's own lock service: a lease for each client, one call to lock and one to unlock.

use etcd_client::{Client, LockOptions};
use peers::{Peer, SESSION_TIMEOUT};

struct Etcd(Client, i64);

impl Peer for Etcd {
    type Held = Vec<u8>;

    async fn connect(hosts: &str) -> Self {
        let mut client = Client::connect([hosts], None).await.expect("a server");
        let seconds = SESSION_TIMEOUT.as_secs() as i64;
        let lease = client.lease_grant(seconds, None).await.expect("a lease");
        Self(client, lease.id())
    }

    async fn lock(&self, dir: &str) -> Vec<u8> {
        let options = LockOptions::new().with_lease(self.1);
        let mut client = self.0.clone();
        let held = client.lock(dir, Some(options)).await.expect("the lock");
        held.key().to_vec()
    }

    async fn unlock(&self, held: Vec<u8>) {
        self.0.clone().unlock(held).await.expect("it is held");
    }

    async fn contenders(&self, _: &str) -> usize {
        unimplemented!("its queues are not measured")
    }
}

fn main() {
    peers::run::<Etcd>();
}
