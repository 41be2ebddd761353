//! A distributed lock for blocking Rust programs, on Apache ZooKeeper.
//!
//! A client that locks a path excludes every other client in the cluster, and those that come later
//! wait in order of arrival. There is no async runtime: a call blocks until the lock is held, and
//! the guard releases it when it is dropped.
//!
//! # Quick start
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use zklock::Client;
//!
//! # let server = zklock::embedded::Server::start()?;
//! # let hosts = server.hosts();
//! // "zk1:2181,zk2:2181,zk3:2181/app" in production.
//! let client = Client::connect(hosts)?;
//! let zk_mutex = client.mutex("/locks/nightly-report")?;
//! let guard = zk_mutex.lock()?; // blocks; released when it drops
//!
//! for page in 1..=3 {
//!     guard.check()?; // no I/O: is the lock still held?
//!     println!("page {page}, written with token {}", guard.fencing_token());
//! }
//! guard.unlock()?; // waits for the server; fails if the lock was lost
//! # Ok(())
//! # }
//! ```
//!
//! # Which lock to use
//!
//! | For | Use | Held by |
//! |---|---|---|
//! | one job at a time | [`Mutex`] | one guard |
//! | one job at a time, in functions that may lock it again | [`ReentrantMutex`] | one thread |
//! | many readers and few writers | [`RwLock`] | readers, or one writer |
//! | at most n imports, connections, licences | [`Semaphore`] | n permits |
//! | several things at once, such as two accounts | [`MultiLock`] | one guard for all |
//! | a job that must run once per slot and be recorded as done | [`Job`] | one run |
//! | a service with one active process | [`Standby`] | one term |
//!
//! | To | Call |
//! |---|---|
//! | wait as long as it takes | [`lock`](Mutex::lock) |
//! | skip the job if another machine has the lock | [`try_lock`](Mutex::try_lock) |
//! | wait for a limited time | [`try_lock_for`](Mutex::try_lock_for), [`try_lock_until`](Mutex::try_lock_until) |
//! | wait until cancelled; see who is ahead | [`lock_with`](Mutex::lock_with) and [`LockOptions`] |
//!
//! `RwLock` has the same methods for `read` and `write`, `Semaphore` for `acquire`. A lock that is
//! taken is not an error: the result is `Ok(None)`. Mutexes, reentrant mutexes, read-write locks and
//! multi-locks on one path exclude each other. With a lock of another library that would not wait, the
//! call fails with [`Error::ForeignContender`].
//!
//! | For batch jobs | Use |
//! |---|---|
//! | list holders and waiters, with host, program and note | [`Client::contenders`] |
//! | ask a holder to release the lock; delete its node | [`Contender::revoke`], [`Contender::evict`] |
//! | evict a holder that hangs, while waiting behind it | [`LockOptions::evict_overdue`] |
//! | learn that the last holder died midway | [`LockOptions::track_abandonment`] |
//! | give the operations it left behind time to end | [`LockOptions::successor_delay`] |
//! | run a job once, and know that it ran | [`Job::once`] |
//!
//! # What is guaranteed
//!
//! - **Exclusion.** Two guards of one lock never both pass [`check`](MutexGuard::check).
//! - **Early warning.** A guard knows that its lock is lost *before* the server can grant it to
//!   another client.
//! - **No ghosts.** However an attempt ends (an error, a timeout, a panic, a lost reply), its node
//!   is deleted, in the background if necessary. The locks of a process that dies are free once its
//!   session has timed out.
//! - **Order.** First come, first served, among processes of any language and among the threads of
//!   each. A release wakes the next waiter, or the next readers. The release of a mutex also wakes
//!   the waiter after that one, which looks at the queue ahead of its turn.
//! - **No hang.** A call with a time limit returns within that limit plus at most 100 ms, even
//!   without a network. Dropping a guard or a client never waits for the network.
//!
//! # What is not
//!
//! - **A paused process cannot stop itself.** Between `check()` and the next step a machine may
//!   sleep or swap until another client has the lock. No lock service can prevent that. The
//!   [`FencingToken`] covers this case: send it with each write, and have the storage refuse a
//!   token lower than one it has seen.
//! - **The place in the queue** is lost when the session expires: the waiter queues again, at the
//!   end.
//! - **Clients that may write to the lock's directory** can delete nodes in it. The holder learns
//!   of a deletion, but a moment after the next holder does. Use an [`Acl`].
//! - **A session that is ended by hand**, by an administrator over JMX, by a tool that closes it
//!   with its id and password, or in a test by `embedded::Server::expire_session`, loses its locks
//!   at once: the next holder may begin before the client learns of it.
//! - **Servers that forget**, because they were restored from a backup or set up from scratch, do
//!   not know who holds what, see [`Client`]; nor do those whose `minSessionTimeout` is below two
//!   ticks.
//! - **Forked children** have a copy of a guard, but not the lock; see [`Client`].
//! - **Clients that do not check** are not stopped: a lock binds only programs that honour it.
//! - **High rates**: each lock costs the ensemble two writes to its disks.
//!
//! # When the connection is lost
//!
//! Every guard has a [`state`](MutexGuard::state). T is the session timeout: the shortest that was
//! negotiated in this session ([`Client::session_timeout`]).
//!
//! ```text
//! Held ──(T/6 before the deadline, or disconnected)──► Suspect ──(deadline, expiry, node gone)──► Lost
//!   ▲                                                        │
//!   └───────────(same session, own node verified)────────────┘
//! ```
//!
//! While a guard exists, the client asks the quorum every T/8 whether the lock's node still exists.
//! A ping is no proof: a follower that is cut off from its leader answers pings while the leader
//! grants the lock to another client. The deadline is T/2 after the client sent the last check that
//! the quorum committed, or earlier: a commit does not prolong the session, so the guard also
//! relies on the last message that the leader has heard of. After a silence of 3/5 T, as in a
//! suspend, a client may wait up to 3/5 T before it is granted a lock, and T/4 after a reconnect.
//!
//! | State | Meaning | What to do |
//! |---|---|---|
//! | Held | a quorum confirmed the lock at most T/3 ago | continue |
//! | Suspect | not confirmed recently; no other client can have it for [`valid_for`](MutexGuard::valid_for) | start nothing new |
//! | Lost | another client may have it; this is final | stop |
//!
//! [`check`](MutexGuard::check) passes while Held or Suspect, [`verify`](MutexGuard::verify)
//! asks the quorum now, and [`events`](MutexGuard::events) is a channel for `select!`.
//! A waiter keeps its place in the queue if the client reconnects to any server of the list
//! before the session expires.
//!
//! # What it logs
//!
//! Evictions, losses, reconnects and what a waiter waits for go to the [`log`](https://docs.rs/log)
//! crate, at `info` and above; a wait for another thread of the same client, and each grant and each release, with
//! how long the lock was waited for and held, at `debug`. A program sees them with a logger such as `env_logger`, or through `tracing-log`; without one they are dropped. The
//! logger is called on the threads of the client, too: as long as it blocks there, no lock is confirmed
//! and no connection made, so it must not wait for this client.
//!
//! # Units and clocks
//!
//! All times are [`Duration`](std::time::Duration)s and [`Instant`](std::time::Instant)s. The
//! validity of a lock is measured by a clock that keeps running while the machine sleeps. Machines
//! do not have to agree on the time of day; their clocks may differ in speed by one percent.
//!
//! # More
//!
//! | Page | About |
//! |---|---|
//! | [`guide::coming_from`] | flock, Curator, kazoo, ShedLock, Redlock: names and differences |
//! | [`guide::jobs`] | lock, job or standby: which of the three to use |
//! | [`guide::nightly`] | once a night, with a lock and your own table |
//! | [`guide::standby`] | your own hot standby loop |
//! | [`guide::fencing`] | writes to a database or a file that an old holder cannot make |
//! | [`guide::frameworks`] | tokio, axum, Diesel, sqlx, Airflow, Nomad, `tracing`, Prometheus |
//! | [`guide::names`] | host names, DNS, changing servers, chroots |
//! | [`guide::credentials`] | credentials, SASL, TLS, access control lists |
//! | [`guide::testing`] | testing a job against a server that misbehaves on request |
//! | [`guide::transports`] | your own client, or a handle of the `zookeeper` crate |
//!
//! # Features
//!
//! Features are additive: none changes what another does.
//!
//! | Feature | Gives | Default |
//! |---|---|---|
//! | `zookeeper` | [`Client::from_zookeeper`] | yes |
//! | `tls` | encrypted connections, `ClientBuilder::tls` | no |
//! | `sasl` | login with SASL, `ClientBuilder::sasl` | no |
//! | `sasl-gssapi` | login with Kerberos, `Sasl::kerberos`, through the system's library | no |
//! | `embedded` | `zklock::embedded`, a server for development and tests | no |
//! | `metrics` | the numbers of [`Client::metrics`] through the `metrics` crate's facade | no |
//! | `mysql` | `zklock::mysql`, the same guards over a MySQL or MariaDB table | no |

// Shows the feature that each item needs, in the published documentation.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acl;
mod builder;
mod client;
mod contender;
pub mod diagnostics;
mod error;
pub mod fence;
mod guard;
#[cfg(any(doc, doctest))]
pub mod guide;
mod histogram;
mod hold;
mod job;
mod metrics;
mod multi_lock;
mod mutex;
pub mod nodes;
mod options;
mod owner;
mod path;
mod queues;
mod reentrant_mutex;
mod rwlock;
#[cfg(feature = "sasl")]
mod sasl;
mod semaphore;
mod shards;
mod standby;
#[cfg(feature = "tls")]
mod tls;

// Without the embedded server, one half of it is unused.
mod local;
mod lock;
#[cfg(feature = "mysql")]
pub mod mysql;
mod session;
#[cfg(zklock_sim)]
#[doc(hidden)]
pub mod sim;
mod system;
mod time;
mod token;
mod transaction;
mod transport;

#[cfg(test)]
use zklock_testkit as support;

pub use crate::acl::{Acl, Permission};
pub use crate::builder::ClientBuilder;
pub use crate::client::Client;
#[doc(no_inline)]
pub use crate::diagnostics::{Contender, Owner};
pub use crate::error::{Error, LostReason, Result};
pub use crate::guard::{GuardEvent, GuardState, LockGuard};
pub use crate::job::{Job, JobOptions, Once, Outcome, Run, RunRecord};
pub use crate::multi_lock::{MultiGuard, MultiLock, SendMultiGuard};
pub use crate::mutex::{Mutex, MutexGuard, SendMutexGuard};
#[doc(no_inline)]
pub use crate::nodes::{Node, Nodes};
pub use crate::options::{LockOptions, Waiting};
pub use crate::reentrant_mutex::{ReentrantMutex, ReentrantMutexGuard};
pub use crate::rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard, SendReadGuard, SendWriteGuard};
#[cfg(feature = "sasl")]
pub use crate::sasl::Sasl;
pub use crate::semaphore::{Permit, Semaphore};
pub use crate::shards::Shards;
pub use crate::standby::{Standby, Term};
#[cfg(feature = "tls")]
pub use crate::tls::Tls;
pub use crate::token::FencingToken;
pub use crate::transaction::Transaction;
pub use crate::transport::handover::Handover;
pub use crate::transport::session_state::{SessionEvent, SessionState};
pub use zklock_core::dialect::{Dialect, Role};
#[cfg(feature = "embedded")]
#[doc(inline)]
pub use zklock_embedded as embedded;
