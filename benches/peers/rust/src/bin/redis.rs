//! `SET NX PX` with a token, and a script that deletes the key with it: Redlock for one server.
//!
//! A client that finds the lock taken asks again after a random pause of a millisecond, which
//! is shorter than in libraries.

use std::time::Duration;

use peers::{Peer, SESSION_TIMEOUT};
use redis::aio::MultiplexedConnection;
use redis::{Client, Script, Value, cmd};
use tokio::time::sleep;

const UNLOCK: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

struct Redis(MultiplexedConnection);

impl Peer for Redis {
    type Held = (String, u64);

    async fn connect(hosts: &str) -> Self {
        let client = Client::open(format!("redis://{hosts}")).expect("an address");
        Self(
            client
                .get_multiplexed_async_connection()
                .await
                .expect("a server"),
        )
    }

    async fn lock(&self, dir: &str) -> (String, u64) {
        let token = fastrand::u64(..);
        loop {
            let mut set = cmd("SET");
            set.arg(dir).arg(token).arg("NX").arg("PX");
            set.arg(SESSION_TIMEOUT.as_millis() as u64);
            let set: Value = set
                .query_async(&mut self.0.clone())
                .await
                .expect("an answer");
            if set == Value::Okay {
                return (dir.to_owned(), token);
            }
            sleep(Duration::from_micros(fastrand::u64(500..1500))).await;
        }
    }

    async fn unlock(&self, (dir, token): (String, u64)) {
        let script = Script::new(UNLOCK);
        let (mut unlock, mut connection) = (script.key(dir), self.0.clone());
        let unlock = unlock.arg(token);
        let deleted: u64 = unlock
            .invoke_async(&mut connection)
            .await
            .expect("an answer");
        assert_eq!(deleted, 1, "it was held");
    }

    async fn contenders(&self, _: &str) -> usize {
        unimplemented!("it has no queue")
    }
}

fn main() {
    peers::run::<Redis>();
}
