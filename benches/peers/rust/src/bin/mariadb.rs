//! `GET_LOCK` of MySQL and MariaDB, which lasts as long as the connection.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use peers::Peer;
use tokio::sync::Mutex;

/// Connections, one per waiter, because a statement that waits occupies it.
struct MariaDb(String, Mutex<Vec<Conn>>);

impl Peer for MariaDb {
    type Held = (Conn, String);

    async fn connect(hosts: &str) -> Self {
        Self(hosts.to_owned(), Mutex::default())
    }

    async fn lock(&self, dir: &str) -> (Conn, String) {
        let idle = self.1.lock().await.pop();
        let mut conn = match idle {
            Some(conn) => conn,
            None => Conn::new(Opts::from_url(&self.0).expect("an address"))
                .await
                .expect("a server"),
        };
        // A name may have at most 64 characters.
        let name = dir[dir.len().saturating_sub(60)..].to_owned();
        let got: Option<i32> = conn
            .exec_first("SELECT GET_LOCK(?, 60)", (&name,))
            .await
            .expect("an answer");
        assert_eq!(got, Some(1), "the lock");
        (conn, name)
    }

    async fn unlock(&self, (mut conn, name): (Conn, String)) {
        let freed: Option<i32> = conn
            .exec_first("SELECT RELEASE_LOCK(?)", (&name,))
            .await
            .expect("an answer");
        assert_eq!(freed, Some(1), "it was held");
        self.1.lock().await.push(conn);
    }

    async fn contenders(&self, _: &str) -> usize {
        unimplemented!("its queues are not measured")
    }
}

fn main() {
    peers::run::<MariaDb>();
}
