//! Our locks over a table of MySQL or MariaDB, with a thread for each contender.

use peers::Peer;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};
use zklock::mysql::{Client, SendMutexGuard};

struct Table(Client);

/// A client whose calls block their threads.
impl Peer for Table {
    type Held = SendMutexGuard;

    async fn connect(hosts: &str) -> Self {
        let client = Client::connect(&format!("{hosts}/zklock")).expect("a database");
        client.create_table().expect("the right to make tables");
        Self(client)
    }

    async fn lock(&self, dir: &str) -> SendMutexGuard {
        let mutex = self.0.mutex(dir).expect("a name");
        mutex.lock().expect("the lock").into_send()
    }

    async fn unlock(&self, held: SendMutexGuard) {
        drop(held);
    }

    async fn contenders(&self, _: &str) -> usize {
        unimplemented!("its queues are not measured")
    }

    fn spawn(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let runtime = Handle::current();
        spawn_blocking(move || runtime.block_on(task))
    }
}

fn main() {
    peers::run::<Table>();
}
