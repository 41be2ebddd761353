//! `pg_advisory_lock`, which lasts as long as the connection.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use peers::Peer;
use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls, Statement};

/// Connections, one per waiter, because a statement that waits occupies it.
struct PostgreSql(String, Mutex<Vec<Session>>);

struct Session {
    client: Client,
    lock: Statement,
    unlock: Statement,
}

impl PostgreSql {
    async fn session(&self) -> Session {
        if let Some(session) = self.1.lock().await.pop() {
            return session;
        }
        let (client, connection) = tokio_postgres::connect(&self.0, NoTls)
            .await
            .expect("a server");
        tokio::spawn(connection);
        let lock = client
            .prepare("SELECT pg_advisory_lock($1)")
            .await
            .expect("a statement");
        let unlock = client
            .prepare("SELECT pg_advisory_unlock($1)")
            .await
            .expect("a statement");
        Session {
            client,
            lock,
            unlock,
        }
    }
}

impl Peer for PostgreSql {
    type Held = (Session, i64);

    async fn connect(hosts: &str) -> Self {
        Self(hosts.to_owned(), Mutex::default())
    }

    async fn lock(&self, dir: &str) -> (Session, i64) {
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let (session, key) = (self.session().await, hasher.hash_one(dir) as i64);
        session
            .client
            .query(&session.lock, &[&key])
            .await
            .expect("the lock");
        (session, key)
    }

    async fn unlock(&self, (session, key): (Session, i64)) {
        session
            .client
            .query(&session.unlock, &[&key])
            .await
            .expect("it is held");
        self.1.lock().await.push(session);
    }

    async fn contenders(&self, _: &str) -> usize {
        unimplemented!("its queues are not measured")
    }
}

fn main() {
    peers::run::<PostgreSql>();
}
