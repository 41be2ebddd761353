//! The same locks over a table in MySQL or MariaDB.
//!
//! For shops that have a database and no ZooKeeper. A lock is a row of the table `database_lock`:
//! INSERT takes it and DELETE frees it. That is the well-known form of such a lock. Programs that
//! use the plain form on the same table exclude these locks, and are excluded by them. Beyond the
//! plain form, a lock here has a *lease*: it ends some time after its holder died, by the
//! database's clock, and a thread of the client renews it. A client can wait for the lock, the lock
//! can be reentrant, and it carries a [`FencingToken`].
//!
//! ```no_run
//! use zklock::mysql::Client;
//!
//! # fn main() -> zklock::Result<()> {
//! let client = Client::connect("mysql://app:secret@db:3306/app")?;
//! client.create_table()?; // once; or hand `zklock::mysql::CREATE_TABLE` to the DBA
//! let mutex = client.mutex("nightly-report")?;
//! let guard = mutex.lock()?; // blocks
//! println!("token {}", guard.fencing_token());
//! guard.unlock()?; // or drop it
//! # Ok(())
//! # }
//! ```
//!
//! `docs/mysql.md` says what is guaranteed, and under which conditions.
//!
//! [`FencingToken`]: crate::FencingToken

mod client;
mod job;
mod mutex;
mod reentrant_mutex;

mod acquire;
mod description;
mod guard_methods;
mod held;
mod shared_client;

mod database;
mod deletion;
mod job_table;
mod lease;
mod renew;
mod renewal;

mod connection;
mod lock_table;
mod primary;
mod schema;
mod server;
mod source;
mod sql_session;
mod statement_error;
mod worker;

pub use self::client::{Client, ClientBuilder};
pub use self::job::{Job, Run};
pub use self::mutex::{Mutex, MutexGuard, SendMutexGuard};
pub use self::reentrant_mutex::{ReentrantMutex, ReentrantMutexGuard};
pub use self::schema::{ALTER_TABLE, CREATE_TABLE};
